package linktest

import (
	"net"

	"github.com/causewayproject/causeway/internal/abort"
)

// socketBuffer is what the system holds of a connection at each side of the
// link. (Linux takes twice as much, for its own use.) It has room for some
// segments of loopback, of 64 KiB each: if one alone fills it, Linux's sender
// waits now and then for 200 ms until it looks for room again.
const socketBuffer = 128 << 10

// accept leads the connections of one listener to target.
func (l *Link) accept(listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		if l.Config().Refuse {
			abort.Reset(client, 0)
			continue
		}
		l.wg.Go(func() { l.connect(client, target) })
	}
}

// connect dials the target as soon as the way up lets anything through.
func (l *Link) connect(client net.Conn, target string) {
	for {
		c, changed := l.current()
		if !c.Up.Drop && !c.Up.Stall {
			break
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			abort.Reset(client, 0)
			return
		}
	}
	far, err := (&net.Dialer{}).DialContext(l.ctx, "tcp", target)
	if err != nil {
		abort.Reset(client, 0)
		return
	}
	for _, conn := range []net.Conn{client, far} {
		// Failing, they are as large as the system likes.
		conn.(*net.TCPConn).SetReadBuffer(socketBuffer)
		conn.(*net.TCPConn).SetWriteBuffer(socketBuffer)
	}
	l.Join(client, far)
}

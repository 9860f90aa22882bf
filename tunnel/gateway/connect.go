package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
)

const (
	// lingerTime and lingerBytes bound what a refused client may still send: a
	// close with bytes unread is a reset, which can overtake the answer.
	lingerTime  = time.Second
	lingerBytes = 256 << 10

	// maxEarly is how much of what comes before the answer is kept, for a
	// client that does not wait for it.
	maxEarly = 16 << 10
)

var (
	longAgo     = time.Unix(1, 0)
	errShutdown = errors.New("the gateway shuts down")
)

// connect serves a connection of the CONNECT door.
func (g *Gateway) connect(gr *group.Group, raw net.Conn) {
	g.receive(gr, raw, DoorConnect, (*caller).handshake, func(err error) string {
		if g.TLS != nil {
			return ""
		}
		return string(answerTo(err).appendTo(nil, false))
	})
}

// handshake goes from the first byte to the answer. It returns the target's
// connection, nil if there is none.
func (c *caller) handshake() net.Conn {
	// Who has asked for nothing yet is not waited for.
	settle := context.AfterFunc(c.gr.Accepting(), func() { c.raw.SetReadDeadline(longAgo) })
	defer settle()
	if err := c.startTLS(); err != nil {
		c.failTLS(err)
		return nil
	}
	admitted, h2 := c.admit(c.place.Context())
	if h2 {
		if settle() {
			c.awaitClient(admission.Greeting)
			c.serveHTTP2(c.deadline)
			if cause := c.displaced(); cause != nil {
				c.v.fail(PhaseHandshake, cause)
			}
		}
		return nil
	}
	if !admitted {
		return nil
	}
	if !settle() || c.gr.Accepting().Err() != nil {
		c.refuse(c.v.fail(PhaseHandshake, errShutdown), false)
		return nil
	}
	c.letIn()
	return c.dial()
}

// admit reads requests until one is let in, or one is the beginning of HTTP/2: a
// client that knows only from a 407 that credentials are wanted sends them on the
// same connection. What ALPN said is not asked: net/http, and so kubectl, offers
// h2 to an https proxy and speaks HTTP/1.1 whatever is chosen.
func (c *caller) admit(ctx context.Context) (admitted, http2 bool) {
	for {
		h, err := c.readRequest()
		if err == errHTTP2 {
			return false, true
		}
		if err != nil {
			if err != errSilent || c.displaced() != nil {
				c.refuse(c.failHandshake(err), false)
			}
			return false, false
		}
		c.beginAsking()
		err = c.v.admit(ctx, c.credentials(h))
		c.endAsking(admission.Greeting)
		if err == nil {
			return true, false
		}
		// What came along was not meant to be a request.
		keep := !h.close && len(c.early) == 0
		if !c.refuse(err, keep) {
			return false, false
		}
	}
}

// readRequest reads a header, and leaves in early what follows it.
func (c *caller) readRequest() (*head, error) {
	buf := buffers.Get().(*[headSize]byte)
	defer buffers.Put(buf)
	c.awaitClient(admission.Silent)
	all, end, err := readHead(c.conn, buf[:0], orDefault(c.g.MaxHeader, 16<<10))
	if err != nil {
		return nil, err
	}
	if string(all[:end]) == preface {
		c.early = bytes.Clone(all)
		return nil, errHTTP2
	}
	c.early = bytes.Clone(all[end:])
	return parseHead(all[:end])
}

func (c *caller) credentials(h *head) Credentials {
	return Credentials{
		Door: DoorConnect, User: h.user, Password: h.password, Bearer: h.bearer,
		Certificates: c.certificates(), ServerName: c.tls.ServerName,
		Address: h.authority, Remote: c.raw.RemoteAddr(),
	}
}

// dial connects the target and tells the client.
func (c *caller) dial() net.Conn {
	ctx, cancel := context.WithCancel(c.gr.Context())
	defer cancel()
	c.conn.SetDeadline(time.Time{})
	stop := c.watch(cancel)
	target, err := c.v.dial(ctx)
	stop()
	if err != nil {
		c.refuse(err, false)
		return nil
	}
	c.conn.SetWriteDeadline(time.Now().Add(c.g.handshakeTimeout()))
	if _, err := io.WriteString(c.conn, connected); err != nil {
		abort.Reset(target, 0)
		c.v.fail(PhaseRelay, err)
		return nil
	}
	c.conn.SetWriteDeadline(time.Time{})
	return target
}

// watch calls left when the client hangs up, until the function that it returns
// is called. What the client sends meanwhile is kept.
func (c *caller) watch(left func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := buffers.Get().(*[headSize]byte)
		defer buffers.Put(buf)
		for len(c.early) < maxEarly {
			n, err := c.conn.Read(buf[:])
			c.early = append(c.early, buf[:n]...)
			switch {
			case err == nil:
				continue
			case errors.Is(err, os.ErrDeadlineExceeded):
			case err == io.EOF && len(c.early) > 0:
				// It has said what it wants to, and may wait for an answer.
			default:
				left()
			}
			return
		}
	}()
	return func() {
		c.conn.SetReadDeadline(longAgo)
		<-done
		c.conn.SetReadDeadline(time.Time{})
	}
}

// refuse tells the client about an error. It reports whether the client may
// ask once more, by the same connection.
func (c *caller) refuse(err error, keep bool) bool {
	a := answerTo(err)
	keep = keep && a.status == 407
	if !keep { // the time for the request may be over
		c.raw.SetWriteDeadline(time.Now().Add(lingerTime))
	}
	if _, err := c.conn.Write(a.appendTo(nil, keep)); err != nil {
		return false
	}
	if !keep {
		c.linger()
	}
	return keep
}

// linger ends what the client gets, and gives it time to read that.
func (c *caller) linger() {
	c.awaitClient(admission.Greeting)
	if cw, ok := c.conn.(interface{ CloseWrite() error }); ok && cw.CloseWrite() == nil {
		c.conn.SetReadDeadline(time.Now().Add(lingerTime))
		io.CopyN(io.Discard, c.conn, lingerBytes)
	}
}

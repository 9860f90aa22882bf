package probe

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

// A proxy that gets another protocol than its own may close the connection, or wait for
// minutes for the rest of what it takes for a request.
//
//	event                                   then
//	the dial fails, the proxy said nothing  ask at once what it speaks
//	no answer after askAfter                ask, and go on if it is the right protocol
const (
	askAfter   = 500 * time.Millisecond
	askTimeout = time.Second
)

// otherProtocol is the error of a dial to a proxy that speaks another protocol than
// proxy-url says.
type otherProtocol struct{ addr, scheme, spoken string }

func (e *otherProtocol) Error() string {
	return fmt.Sprintf("%s speaks %s, and proxy-url begins with %s://", e.addr, protocolNames[e.spoken], e.scheme)
}

func (e *otherProtocol) finding() finding {
	return finding{"the proxy at " + e.Error(), fmt.Sprintf("Write %s:// in place of %s:// in the kubeconfig's proxy-url, if %s is the right proxy.", e.spoken, e.scheme, e.addr)}
}

var protocolNames = map[string]string{"http": "HTTP", "socks5": "SOCKS5"}

// dialAndAsk dials the API server. If the dial gets nowhere, it asks the proxy that was
// reached what it speaks.
func (p *probing) dialAndAsk(ctx context.Context, r *recorder) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan result, 1)
	go func() {
		conn, err := p.dial(r.trace(dialing), "tcp", route.AddressOf(p.server))
		ended <- result{conn, err}
	}()
	var (
		got   result
		other *otherProtocol
	)
	timer := time.NewTimer(askAfter)
	defer timer.Stop()
	select {
	case got = <-ended:
		if e := decidingError(got.err); e != nil && e.Status == 0 && ctx.Err() == nil {
			other = p.askProtocol(ctx, r)
		}
	case <-timer.C:
		if other = p.askProtocol(ctx, r); other != nil {
			cancel()
		}
		got = <-ended
	}
	if got.err != nil && other != nil {
		return nil, other
	}
	return got.conn, got.err
}

// askProtocol returns an error if the proxy that was reached speaks the other protocol,
// and does not speak its own. Some proxies speak both.
func (p *probing) askProtocol(ctx context.Context, r *recorder) *otherProtocol {
	scheme, addr, _ := strings.Cut(r.reachedProxy(), "://")
	if p.forward == nil || protocolNames[scheme] == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	http := make(chan bool, 1)
	go func() {
		http <- p.hasAnswer(ctx, addr, "OPTIONS * HTTP/1.1\r\nHost: "+addr+"\r\nConnection: close\r\n\r\n", "HTTP/")
	}()
	socks := p.hasAnswer(ctx, addr, "\x05\x02\x00\x02", "\x05")
	switch speaksHTTP := <-http; {
	case scheme == "socks5" && speaksHTTP && !socks:
		return &otherProtocol{addr, scheme, "http"}
	case scheme == "http" && socks && !speaksHTTP:
		return &otherProtocol{addr, scheme, "socks5"}
	}
	return nil
}

// hasAnswer reports whether the answer to hello begins with want.
func (p *probing) hasAnswer(ctx context.Context, addr, hello, want string) bool {
	conn, err := p.forward.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer abort.Close(conn)
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	answer := make([]byte, len(want))
	if _, err := io.WriteString(conn, hello); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, answer)
	return err == nil && string(answer) == want
}

package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/causewayproject/causeway/examples/internal/cli"
	"github.com/causewayproject/causeway/internal/relay"
)

// forward is a listener, and where its connections are led.
type forward struct{ listen, cluster, target string }

// parseForward reads LISTEN=CLUSTER/HOST:PORT. A cluster's name may hold
// slashes, a target none.
func parseForward(text string) (forward, error) {
	listen, to, ok := strings.Cut(text, "=")
	slash := strings.LastIndexByte(to, '/')
	if !ok || slash <= 0 {
		return forward{}, cli.UsageError{Text: fmt.Sprintf("tunnel-server: -forward %q is not LISTEN=CLUSTER/HOST:PORT", text)}
	}
	f := forward{listen, to[:slash], to[slash+1:]}
	for _, address := range []string{f.listen, f.target} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return forward{}, cli.UsageError{Text: fmt.Sprintf("tunnel-server: -forward %q: %v", text, err)}
		}
	}
	return f, nil
}

// forward serves l until it is closed, and its connections to their end.
func (p *program) forward(ctx context.Context, l net.Listener, to forward) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			conns.Go(func() { p.lead(conn, to) })
		case ctx.Err() != nil:
			return nil
		default: // out of descriptors, say: that passes
			p.log.Warn("accept", "address", l.Addr().String(), "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

func (p *program) lead(conn net.Conn, to forward) {
	target, err := p.server.Dialer(to.cluster).DialContext(p.late, "tcp", to.target)
	if err != nil {
		p.log.Warn("forward", "error", err)
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) // a reset: an end of file could be taken for an answer
		}
		conn.Close()
		return
	}
	relay.Relay(p.late, conn, target)
}

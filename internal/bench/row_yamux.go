package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/yamux"

	"github.com/causewayproject/causeway/internal/mux"
)

var (
	yamuxRow        = newYamuxRow("yamux", "hashicorp/yamux as it comes, over TLS 1.3", yamuxKind{secure: plainTLS, chunk: chunkSize})
	yamuxBatchedRow = newYamuxRow("yamux-batched", "hashicorp/yamux with its writes batched above TLS, 128 KiB buffers below",
		yamuxKind{secure: batchedTLS, chunk: chunkSize})
	yamuxFairRow = newYamuxRow("yamux-fair", "the same with windows of 1 MiB, and frames as long as ours",
		yamuxKind{secure: batchedTLS, window: 1 << 20, chunk: mux.MaxFirst})
)

// A yamuxKind is how a row uses hashicorp/yamux.
type yamuxKind struct {
	secure secure
	window uint32 // of a stream; zero: as it comes
	chunk  int    // bytes of a relay's buffer, which are the most that a frame carries
}

func newYamuxRow(name, about string, kind yamuxKind) row {
	return row{
		name:       name,
		about:      about,
		newAgent:   func(s *setup) (agent, error) { return newYamuxAgent(s, kind) },
		newServer:  func(s *setup) (server, error) { return newYamuxServer(s, kind) },
		idleAgents: 200,
	}
}

func (k yamuxKind) config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput = io.Discard
	if k.window > 0 {
		c.MaxStreamWindowSize = k.window
	}
	return c
}

func batchedTLS(conn net.Conn, wrap func(net.Conn) *tls.Conn) (net.Conn, error) {
	c, err := newCarrier(conn, wrap)
	if err != nil {
		return nil, err
	}
	return newBatcher(c), nil
}

type yamuxAgent struct {
	config *tls.Config
	target string
	kind   yamuxKind
	wg     sync.WaitGroup
	open   []*yamux.Session
}

func newYamuxAgent(s *setup, kind yamuxKind) (agent, error) {
	config, err := clientTLS(s.Dir)
	return &yamuxAgent{config: config, target: s.Target, kind: kind}, err
}

func (*yamuxAgent) addr() string { return "" }

func (a *yamuxAgent) connect(ctx context.Context, server string, n int) (string, error) {
	for range n {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", server)
		if err != nil {
			return "", err
		}
		carrier, err := a.kind.secure(conn, func(c net.Conn) *tls.Conn { return tls.Client(c, a.config) })
		if err != nil {
			return "", err
		}
		session, err := yamux.Client(carrier, a.kind.config())
		if err != nil {
			return "", fmt.Errorf("bench: yamux: %w", err)
		}
		a.open = append(a.open, session)
		a.wg.Go(func() { a.serve(session) })
	}
	return "", nil
}

func (a *yamuxAgent) serve(session *yamux.Session) {
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return
		}
		a.wg.Go(func() { serveStream(stream, a.target, a.kind.chunk) })
	}
}

func (a *yamuxAgent) Close() error {
	for _, session := range a.open {
		session.Close()
	}
	a.wg.Wait()
	return nil
}

type yamuxServer struct {
	*listener
	kind  yamuxKind
	first atomic.Pointer[yamux.Session]
	count atomic.Int64
}

func newYamuxServer(s *setup, kind yamuxKind) (server, error) {
	config, err := serverTLS(s.Dir)
	if err != nil {
		return nil, err
	}
	y := &yamuxServer{kind: kind}
	y.listener, err = listen(func(conn net.Conn) {
		carrier, err := kind.secure(conn, func(c net.Conn) *tls.Conn { return tls.Server(c, config) })
		if err != nil {
			return
		}
		session, err := yamux.Server(carrier, kind.config())
		if err != nil {
			return
		}
		y.first.CompareAndSwap(nil, session)
		y.count.Add(1)
		<-session.CloseChan()
	})
	return y, err
}

func (y *yamuxServer) sessions() int { return int(y.count.Load()) }

func (y *yamuxServer) dial(context.Context) (net.Conn, error) {
	session := y.first.Load()
	if session == nil {
		return nil, errors.New("bench: yamux: there is no session")
	}
	return session.OpenStream()
}

func (y *yamuxServer) relay(client, stream net.Conn) { relay(client, stream, y.kind.chunk) }

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
)

var (
	yamuxRow = row{
		name:       "yamux",
		about:      "hashicorp/yamux as it comes, over TLS 1.3",
		newAgent:   func(s *setup) (agent, error) { return newYamuxAgent(s, plainTLS) },
		newServer:  func(s *setup) (server, error) { return newYamuxServer(s, plainTLS) },
		idleAgents: 200,
	}
	yamuxBatchedRow = row{
		name:       "yamux-batched",
		about:      "hashicorp/yamux with its writes batched above TLS, 128 KiB buffers below",
		newAgent:   func(s *setup) (agent, error) { return newYamuxAgent(s, batchedTLS) },
		newServer:  func(s *setup) (server, error) { return newYamuxServer(s, batchedTLS) },
		idleAgents: 200,
	}
)

func batchedTLS(conn net.Conn, wrap func(net.Conn) *tls.Conn) (net.Conn, error) {
	c, err := newCarrier(conn, wrap)
	if err != nil {
		return nil, err
	}
	return newBatcher(c), nil
}

func yamuxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput = io.Discard
	return c
}

type yamuxAgent struct {
	config *tls.Config
	target string
	secure secure
	wg     sync.WaitGroup
	open   []*yamux.Session
}

func newYamuxAgent(s *setup, secure secure) (agent, error) {
	config, err := clientTLS(s.Dir)
	return &yamuxAgent{config: config, target: s.Target, secure: secure}, err
}

func (*yamuxAgent) addr() string { return "" }

func (a *yamuxAgent) connect(ctx context.Context, server string, n int) (string, error) {
	for range n {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", server)
		if err != nil {
			return "", err
		}
		carrier, err := a.secure(conn, func(c net.Conn) *tls.Conn { return tls.Client(c, a.config) })
		if err != nil {
			return "", err
		}
		session, err := yamux.Client(carrier, yamuxConfig())
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
		a.wg.Go(func() { serveStream(stream, a.target) })
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
	first atomic.Pointer[yamux.Session]
	count atomic.Int64
}

func newYamuxServer(s *setup, secure secure) (server, error) {
	config, err := serverTLS(s.Dir)
	if err != nil {
		return nil, err
	}
	y := &yamuxServer{}
	y.listener, err = listen(func(conn net.Conn) {
		carrier, err := secure(conn, func(c net.Conn) *tls.Conn { return tls.Server(c, config) })
		if err != nil {
			return
		}
		session, err := yamux.Server(carrier, yamuxConfig())
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

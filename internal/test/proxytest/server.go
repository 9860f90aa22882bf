// Package proxytest has small proxies for tests and examples: correct ones
// (HTTP, SOCKS5) that log what they saw, and a Server for scripted ones that
// misbehave. None is meant to face a network.
package proxytest

import (
	"context"
	"net"
	"sync"
	"time"
)

// Server runs a function for each connection of a listener.
type Server struct {
	listener net.Listener
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// Serve starts to accept connections on l. handle may return without closing
// its connection; ctx ends when the server is closed.
func Serve(l net.Listener, handle func(ctx context.Context, conn net.Conn)) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{listener: l, cancel: cancel}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				handle(ctx, conn)
			})
		}
	})
	return s
}

// Addr is the host:port of the listener.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops the listener, closes all connections and waits for their
// functions.
func (s *Server) Close() {
	s.cancel()
	s.listener.Close()
	s.wg.Wait()
}

// dialFunc is the type of net.Dialer.DialContext.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dialTarget dials with dial; if it is nil, with a net.Dialer.
func dialTarget(ctx context.Context, dial dialFunc, target string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return dial(ctx, "tcp", target)
}

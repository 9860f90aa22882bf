// Package proxytest has small proxies for tests and examples: correct ones
// (HTTP, SOCKS5) that log what they saw, and a Server for scripted ones that
// misbehave. None is meant to face a network.
package proxytest

import (
	"context"
	"net"
	"sync"
)

// Server runs a function for each connection of a listener.
type Server struct {
	listener net.Listener
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	conns  map[net.Conn]struct{}
	closed bool
}

// Serve starts to accept connections on l. handle may return without closing
// its connection; ctx ends when the server is closed.
func Serve(l net.Listener, handle func(ctx context.Context, conn net.Conn)) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{listener: l, cancel: cancel, conns: map[net.Conn]struct{}{}}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if !s.addConn(conn) {
				conn.Close()
				return
			}
			s.wg.Go(func() {
				defer s.removeConn(conn)
				handle(ctx, conn)
			})
		}
	})
	return s
}

func (s *Server) addConn(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

func (s *Server) removeConn(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// Addr is the host:port of the listener.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops the listener, closes all connections and waits for their
// functions.
func (s *Server) Close() {
	s.cancel()
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// dialFunc is the type of net.Dialer.DialContext.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func dialOrDefault(dial dialFunc) dialFunc {
	if dial == nil {
		return (&net.Dialer{}).DialContext
	}
	return dial
}

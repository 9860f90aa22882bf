package main

import (
	"fmt"
	"net"
	"sync"
)

// A listener runs a function per connection, on a port of 127.0.0.1 that the
// kernel chose. Close closes the connections and waits for the functions.
type listener struct {
	net.Listener
	wg sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	conns  map[net.Conn]bool
	closed bool
}

// listen starts one. The connection is closed when handle returns.
func listen(handle func(net.Conn)) (*listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	s := &listener{Listener: l, conns: map[net.Conn]bool{}}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if s.add(conn) {
				s.wg.Go(func() {
					defer s.remove(conn)
					handle(conn)
				})
			}
		}
	})
	return s, nil
}

func (s *listener) addr() string { return s.Addr().String() }

func (s *listener) Close() error {
	err := s.Listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

func (s *listener) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *listener) remove(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// relay copies both ways until one way ends, and closes both: the comparison's
// peers have no half-close, and its protocol wants none. At most chunk bytes are
// copied at a time.
func relay(a, b net.Conn, chunk int) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			copyChunks(way[0], way[1], chunk)
			a.Close()
			b.Close()
		})
	}
	wg.Wait()
}

// copyChunks is io.Copy without ReadFrom and WriteTo: the same loop for each row.
func copyChunks(dst, src net.Conn, chunk int) {
	buf := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(buf)
	for {
		n, err := src.Read(buf[:chunk])
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

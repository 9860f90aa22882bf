package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// gatherSize is that of the buffers below TLS.
const gatherSize = 128 << 10

var gatherBuffers = sync.Pool{New: func() any { return new([gatherSize]byte) }}

// gathered is what lies below TLS: it reads as much as there is, and gathers
// what is written until Flush, once gather was called. While nothing comes or
// goes it holds no buffer.
type gathered struct {
	net.Conn
	raw syscall.RawConn

	// Of the one reader.
	in     *[gatherSize]byte // nil: nothing is left of it
	unread []byte

	mu     sync.Mutex // guards the fields below: an alert is written by who reads
	gather bool
	out    *[gatherSize]byte // nil: it holds nothing
	n      int               // bytes in out
}

func newGathered(conn net.Conn) (*gathered, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.New("bench: carrier: not a socket")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("bench: carrier: %w", err)
	}
	return &gathered{Conn: conn, raw: raw}, nil
}

func (g *gathered) Read(b []byte) (int, error) {
	if len(g.unread) == 0 {
		if err := g.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(b, g.unread)
	g.unread = g.unread[n:]
	if len(g.unread) == 0 {
		gatherBuffers.Put(g.in)
		g.in = nil
	}
	return n, nil
}

// fill takes a buffer only when there is something to read.
func (g *gathered) fill() error {
	var n int
	var rerr error
	err := g.raw.Read(func(fd uintptr) bool {
		if g.in == nil {
			g.in = gatherBuffers.Get().(*[gatherSize]byte)
		}
		for {
			if n, rerr = syscall.Read(int(fd), g.in[:]); rerr != syscall.EINTR {
				break
			}
		}
		if rerr == syscall.EAGAIN {
			gatherBuffers.Put(g.in)
			g.in = nil
			return false
		}
		return true
	})
	if err == nil {
		err = rerr
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		if g.in != nil {
			gatherBuffers.Put(g.in)
			g.in = nil
		}
		return err
	}
	g.unread = g.in[:n]
	return nil
}

func (g *gathered) startGathering() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gather = true
}

func (g *gathered) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gather {
		return g.Conn.Write(b)
	}
	if g.n+len(b) > gatherSize {
		if err := g.flushLocked(); err != nil {
			return 0, err
		}
	}
	if len(b) > gatherSize {
		return g.Conn.Write(b)
	}
	if g.out == nil {
		g.out = gatherBuffers.Get().(*[gatherSize]byte)
	}
	g.n += copy(g.out[g.n:], b)
	return len(b), nil
}

// Flush sends what was gathered.
func (g *gathered) Flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flushLocked()
}

func (g *gathered) flushLocked() error {
	if g.out == nil {
		return nil
	}
	_, err := g.Conn.Write(g.out[:g.n])
	gatherBuffers.Put(g.out)
	g.out, g.n = nil, 0
	return err
}

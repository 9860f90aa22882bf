package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// A clientRole is the one that measures.
type clientRole struct {
	half client // nil: plain TCP

	mu   sync.Mutex // guards the field below
	held []net.Conn // open until Close
}

func (c *clientRole) handleRequest(ctx context.Context, q request) (reply, error) {
	switch q.Op {
	case "start":
		chosen, err := chooseRows(q.Row)
		if err == nil {
			c.half, err = chosen[0].newClient(&q.Setup)
		}
		return reply{}, err
	case "down", "up":
		took, err := c.transferBytes(ctx, q)
		return reply{Took: took}, err
	case "rate-down", "rate-up":
		n, err := c.measureRate(ctx, q)
		return reply{N: n}, err
	case "latency":
		return c.measureLatency(ctx, q)
	case "stall":
		return reply{}, c.stallStreams(ctx, q)
	case "idle":
		return reply{}, c.openIdle(ctx, q)
	}
	return reply{}, errOp
}

func (c *clientRole) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.held {
		conn.Close()
	}
	c.held = nil
	if c.half != nil {
		return c.half.Close()
	}
	return nil
}

func (c *clientRole) keepOpen(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = append(c.held, conn)
}

// dial opens a connection that ends when the request does.
func (c *clientRole) dial(ctx context.Context, addr string) (net.Conn, error) {
	through := dialTCP
	if c.half != nil {
		through = c.half.dial
	}
	conn, err := through(ctx, addr)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	return conn, nil
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// dialEcho opens a stream, and sends and gets a byte: the whole way is up.
func (c *clientRole) dialEcho(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(targetHeader(modeEcho, 0), 'x')); err != nil {
		conn.Close()
		return nil, err
	}
	if err := expectByte(conn, 'x'); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func expectByte(conn net.Conn, want byte) error {
	var b [1]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return fmt.Errorf("bench: client: %w", err)
	}
	if b[0] != want {
		return fmt.Errorf("bench: client: got byte %#x, want %#x", b[0], want)
	}
	return nil
}

// transferBytes moves Size bytes over each of N streams at once. The clock starts
// when the streams are open; the target's answer ends it.
func (c *clientRole) transferBytes(ctx context.Context, q request) (time.Duration, error) {
	conns := make([]net.Conn, q.N)
	for i := range conns {
		conn, err := c.dial(ctx, q.Addr)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		conns[i] = conn
	}
	errs := make([]error, q.N)
	var wg sync.WaitGroup
	began := time.Now()
	for i, conn := range conns {
		wg.Go(func() {
			if q.Op == "up" {
				errs[i] = upload(conn, q.Size)
			} else {
				errs[i] = download(conn, q.Size)
			}
		})
	}
	wg.Wait()
	return time.Since(began), errors.Join(errs...)
}

func download(conn net.Conn, size int64) error {
	if _, err := conn.Write(targetHeader(modeSource, size)); err != nil {
		return err
	}
	return receiveBytes(conn, size)
}

func upload(conn net.Conn, size int64) error {
	if _, err := conn.Write(targetHeader(modeSink, size)); err != nil {
		return err
	}
	buf := make([]byte, endBuffer)
	for sent := int64(0); sent < size; {
		n, err := conn.Write(buf[:min(size-sent, endBuffer)])
		if err != nil {
			return err
		}
		sent += int64(n)
	}
	return expectByte(conn, modeSink)
}

func (c *clientRole) measureLatency(ctx context.Context, q request) (reply, error) {
	var r reply
	for range q.Dials {
		began := time.Now()
		conn, err := c.dialEcho(ctx, q.Addr)
		if err != nil {
			return r, err
		}
		r.Dials = append(r.Dials, time.Since(began))
		conn.Close()
	}
	conn, err := c.dialEcho(ctx, q.Addr)
	if err != nil {
		return r, err
	}
	defer conn.Close()
	for i := range q.Trips {
		b := byte(i)
		began := time.Now()
		if _, err := conn.Write([]byte{b}); err != nil {
			return r, err
		}
		if err := expectByte(conn, b); err != nil {
			return r, err
		}
		r.Trips = append(r.Trips, time.Since(began))
	}
	return r, nil
}

// stallStreams opens N streams to a target that sends without end, and reads none.
func (c *clientRole) stallStreams(ctx context.Context, q request) error {
	for range q.N {
		conn, err := c.dial(ctx, q.Addr)
		if err != nil {
			return err
		}
		c.keepOpen(conn)
		if _, err := conn.Write(targetHeader(modeSource, math.MaxInt64)); err != nil {
			return err
		}
	}
	return nil
}

func (c *clientRole) openIdle(ctx context.Context, q request) error {
	for range q.N {
		conn, err := c.dialEcho(ctx, q.Addr)
		if err != nil {
			return err
		}
		c.keepOpen(conn)
	}
	return nil
}

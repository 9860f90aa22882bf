package bench

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// A clientRole is the one that measures.
type clientRole struct {
	rig.Process
	through dialFunc   // nil: plain TCP
	held    []net.Conn // open until Close
}

func (c *clientRole) Start(s Setup, _ *rig.None) error {
	r, err := chooseRow(s.Row)
	if err == nil {
		c.through, err = r.newClient(&s)
	}
	return err
}

func (c *clientRole) Close() error {
	for _, conn := range c.held {
		conn.Close()
	}
	return nil
}

func (c *clientRole) dial(addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	through := c.through
	if through == nil {
		through = dialTCP
	}
	conn, err := through(ctx, addr)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(measureTimeout))
	return conn, nil
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// dialEcho opens a stream, and sends and gets a byte: the whole way is up.
func (c *clientRole) dialEcho(addr string) (net.Conn, error) {
	conn, err := c.dial(addr)
	if err != nil {
		return nil, err
	}
	if _, err = conn.Write(append(targetHeader(modeEcho, 0), 'x')); err == nil {
		err = rig.Expect(conn, 'x')
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

type TransferArgs struct {
	Addr    string
	Streams int
	Up      bool
	Size    int64 // bytes of a stream
}

// Transfer moves bytes over several streams at once. The clock starts when the
// streams are open; the target's answer ends it.
func (c *clientRole) Transfer(args TransferArgs, took *time.Duration) error {
	conns := make([]net.Conn, args.Streams)
	for i := range conns {
		conn, err := c.dial(args.Addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		conns[i] = conn
	}
	move := download
	if args.Up {
		move = upload
	}
	errs := make([]error, args.Streams)
	var wg sync.WaitGroup
	began := time.Now()
	for i, conn := range conns {
		wg.Go(func() { errs[i] = move(conn, args.Size) })
	}
	wg.Wait()
	*took = time.Since(began)
	return errors.Join(errs...)
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
	if err := sendBytes(conn, size, nil); err != nil {
		return err
	}
	return rig.Expect(conn, modeSink)
}

type LatencyArgs struct {
	Addr         string
	Dials, Trips int
}

type Latencies struct{ Dials, Trips []time.Duration }

func (c *clientRole) Latency(args LatencyArgs, l *Latencies) error {
	for range args.Dials {
		began := time.Now()
		conn, err := c.dialEcho(args.Addr)
		if err != nil {
			return err
		}
		l.Dials = append(l.Dials, time.Since(began))
		conn.Close()
	}
	conn, err := c.dialEcho(args.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	for i := range args.Trips {
		began := time.Now()
		if err := rig.Echo(conn, byte(i)); err != nil {
			return err
		}
		l.Trips = append(l.Trips, time.Since(began))
	}
	return nil
}

// StreamsArgs are streams that stay open until Close.
type StreamsArgs struct {
	Addr string
	N    int
}

// Stall opens streams to a target that sends without end, and reads none.
func (c *clientRole) Stall(args StreamsArgs, _ *rig.None) error {
	for range args.N {
		conn, err := c.dial(args.Addr)
		if err != nil {
			return err
		}
		c.held = append(c.held, conn)
		if _, err := conn.Write(targetHeader(modeSource, math.MaxInt64)); err != nil {
			return err
		}
	}
	return nil
}

func (c *clientRole) Idle(args StreamsArgs, _ *rig.None) error {
	for range args.N {
		conn, err := c.dialEcho(args.Addr)
		if err != nil {
			return err
		}
		c.held = append(c.held, conn)
	}
	return nil
}

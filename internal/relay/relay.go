// Package relay joins two connections.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/ended"
)

// ResetCode is the code for the method Reset(code uint32) error of a connection, if it
// has one, when the other connection has failed.
const ResetCode = 10

// Result is what a relay did.
type Result struct {
	AToB, BToA int64 // bytes that were written to b and to a

	// Err is what ended the relay early: the first error of a read or a write, or
	// ctx's. It is nil if each side has received all that the other sent, and its
	// end.
	Err error
}

// Relay copies from a to b and from b to a until both directions have ended or one of
// them fails. It closes both connections and leaves no goroutine. Nobody else may write
// to them meanwhile.
//
//   - When one direction ends, its receiver gets CloseWrite, and the other
//     direction goes on. A connection without CloseWrite (or whose CloseWrite returns
//     [errors.ErrUnsupported]) is closed instead: what it still had to send is lost,
//     the other side sees a reset, and Err says so.
//   - An error of a read or a write, except io.EOF, resets both sides (see
//     [abort.Reset]), because data that was cut must not look complete. Data that was
//     written and not yet sent may be lost. The connection defines what its end is:
//     crypto/tls takes an end of TCP between two records for one, without a
//     close_notify.
//   - When ctx ends, both sides are reset, and Err is an error of ctx.
//   - If the process is killed, the system resets a side that is TCP.
//   - A side that has sent its end is not read any more: the next write notices that it was
//     reset, or for TCP a look each half minute. Until then it is no error: programs close so once
//     they have all.
//
// There is no timeout except ctx. Relay uses the DeliverTo, WriteTo or ReadFrom of a
// connection, or else a pooled buffer, which is small while little comes.
func Relay(ctx context.Context, a, b net.Conn) Result { return RelayEarly(ctx, nil, nil, a, b) }

// RelayEarly is Relay for the case that the first bytes from a were read already:
// it writes them, early, to b first, and then calls written, which may be nil. Result counts them.
func RelayEarly(ctx context.Context, early []byte, written func(), a, b net.Conn) Result {
	r := &relay{a: a, b: b, every: goneEvery}
	abort.Guard(a)
	abort.Guard(b)
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		r.abortBoth(fmt.Errorf("relay: %w", ended.Error(ctx, ctx.Err())))
	})
	var res Result
	var wg sync.WaitGroup
	wg.Go(func() { res.BToA = r.copyOneWay(a, b, nil, nil, "b to a") })
	res.AToB = r.copyOneWay(b, a, early, written, "a to b")
	wg.Wait()
	if !stop() {
		<-aborted
	}
	r.endWatch()
	if r.err.Load() == nil {
		abort.Unguard(a)
		abort.Unguard(b)
	}
	a.Close()
	b.Close()
	if err := r.err.Load(); err != nil {
		res.Err = *err
	}
	return res
}

// goneEvery is how often a relay looks whether a side that has sent its end is still there.
var goneEvery = 30 * time.Second

// relay is one call of Relay.
type relay struct {
	a, b        net.Conn
	err         atomic.Pointer[error] // the first
	noHalfClose atomic.Pointer[error] // why a side was closed to tell it of an end
	half        atomic.Bool           // one direction has ended
	every       time.Duration         // of watch

	mu    sync.Mutex  // guards timer
	timer *time.Timer // of watch; nil: none
}

// abortBoth resets both sides because of err, unless that was done before. Side by
// side: one that takes its time must not keep the news from the other.
func (r *relay) abortBoth(err error) {
	if !r.err.CompareAndSwap(nil, &err) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { abort.Reset(r.a, ResetCode) })
	abort.Reset(r.b, ResetCode)
	wg.Wait()
}

// copyOneWay is one direction, its end included.
func (r *relay) copyOneWay(dst, src net.Conn, early []byte, written func(), direction string) (n int64) {
	var err error
	if len(early) > 0 {
		var wrote int
		wrote, err = dst.Write(early)
		n = int64(wrote)
	}
	early = nil // not to be kept for as long as the relay lasts
	if written != nil {
		written()
	}
	if err == nil {
		var more int64
		more, err = copyConn(dst, src)
		n += more
	}
	if err == nil {
		err = CloseWrite(dst)
		switch {
		case errors.Is(err, syscall.ENOTCONN):
			err = nil // it was reset: reading it says so, unless it had sent its end
		case errors.Is(err, errors.ErrUnsupported):
			// The other direction fails by this, unless it has ended too.
			r.noHalfClose.Store(&err)
			abort.Unguard(dst)
			dst.Close()
			return n
		}
	} else if cause := r.noHalfClose.Load(); cause != nil {
		err = *cause
	}
	switch {
	case err != nil:
		r.abortBoth(fmt.Errorf("relay: %s: %w", direction, err))
	case !r.half.Swap(true):
		r.watch(src)
	}
	return n
}

// watch ends the relay once src, which has sent its end, is gone.
func (r *relay) watch(src net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(r.every, func() {
		if err := abort.Gone(src); err != nil {
			r.abortBoth(fmt.Errorf("relay: %w", err))
			return
		}
		r.watch(src)
	})
}

func (r *relay) endWatch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop() // if it fires just now, it finds a connection that is closed
	}
}

// CloseWrite calls conn's CloseWrite. Without one it returns errors.ErrUnsupported.
func CloseWrite(conn net.Conn) error {
	if cw, ok := conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return fmt.Errorf("half-close of %T: %w", conn, errors.ErrUnsupported)
}

// copyConn copies from src to dst until src returns io.EOF, which is no error. Most of an
// idle connection's memory is the stack of this function and of those it calls: keep
// them small.
func copyConn(dst, src net.Conn) (int64, error) {
	_, isTCP := dst.(*net.TCPConn)
	_, ofTCP := src.(*net.TCPConn)
	// A stream of the tunnel may write to dst directly, as nobody else does.
	if d, ok := src.(interface{ DeliverTo(net.Conn) (int64, error) }); ok {
		return d.DeliverTo(dst)
	}
	// Not the methods of package net, which fall back to a buffer that they allocate.
	if w, ok := src.(io.WriterTo); ok && !ofTCP {
		return w.WriteTo(dst)
	}
	if r, ok := dst.(io.ReaderFrom); ok && !isTCP {
		return r.ReadFrom(src)
	}
	return copyBuffered(dst, src)
}

// A large buffer of 64 KiB would cost a third more CPU on loopback, where it is split
// into a segment and 53 bytes. With the headers of two frames of HTTP/2, this one fills
// two TLS records.
const (
	smallSize = 4 << 10
	largeSize = 32<<10 - 2*9
)

var (
	smallBuffers = newPool(smallSize)
	largeBuffers = newPool(largeSize)
)

func newPool(size int) *sync.Pool {
	return &sync.Pool{New: func() any { return new(make([]byte, size)) }}
}

// copyBuffered waits with a small buffer, and uses a large one while reads fill the
// small one: most connections are idle most of the time.
func copyBuffered(dst, src net.Conn) (n int64, err error) {
	for big, end := false, false; !end; big = !big {
		var m int64
		m, end, err = copyWhile(dst, src, big)
		n += m
	}
	return n, err
}

// copyWhile copies with a small buffer until a read fills it, or with a big one until a
// read would fit the small one. end says that src has ended or that a call has failed.
func copyWhile(dst, src net.Conn, big bool) (n int64, end bool, err error) {
	buffers := smallBuffers
	if big {
		buffers = largeBuffers
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		got, rerr := src.Read(*buf)
		if got > 0 {
			put, werr := dst.Write((*buf)[:got])
			n += int64(put)
			if werr == nil && put != got {
				werr = io.ErrShortWrite
			}
			if werr != nil {
				return n, true, werr
			}
		}
		switch {
		case rerr == io.EOF:
			return n, true, nil
		case rerr != nil:
			return n, true, rerr
		case (got >= smallSize) != big:
			return n, false, nil
		}
	}
}

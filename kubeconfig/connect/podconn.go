package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream"
)

// PodConn is a connection to a port of a Pod, which [Client.PortForward] makes.
// It is a net.Conn in full, deadlines included, and safe for concurrent use.
//
// CloseWrite sends an end and lets the Pod go on. When the Pod sends its end,
// the connection is over for both: the kubelet's protocol has no half-close in
// that direction. If the kubelet says that the connection failed (nothing
// listens on the port), Read and Write return a [*PodError]. A connection to the
// API server that breaks is io.ErrUnexpectedEOF, and no end.
type PodConn struct {
	net.Conn // this side of a pipe: it has the deadlines
	far      net.Conn
	to       PodPort
	login    *login
	streams  httpstream.Connection
	data     httpstream.Stream
	errs     httpstream.Stream

	close   sync.Once
	closing chan struct{}         // closed by Close
	ended   atomic.Bool           // by CloseWrite
	cause   atomic.Pointer[error] // why the Pod's side is over
}

var _ net.Conn = (*PodConn)(nil)

// PodError is what the kubelet says of a connection to a Pod.
type PodError struct {
	Addr PodPort
	Text string // the kubelet's
}

// Error returns the port and the text.
func (e *PodError) Error() string {
	return "connect: port-forward to " + e.Addr.String() + ": " + e.Text
}

func newPodConn(p *login, to PodPort, streams httpstream.Connection) (*PodConn, error) {
	data, errs, err := openStreams(streams, to.Port)
	if err != nil {
		return nil, err
	}
	c := &PodConn{to: to, login: p, streams: streams, data: data, errs: errs, closing: make(chan struct{})}
	c.Conn, c.far = net.Pipe()
	return c, nil
}

// run owns the goroutines of the connection, and ends with it.
func (c *PodConn) run() {
	var wg sync.WaitGroup
	received := make(chan struct{})
	wg.Go(c.send)
	wg.Go(func() { c.receive(received) })
	select {
	case <-received:
	case <-c.closing:
		c.waitForPodEnd(received)
	}
	c.far.Close()
	c.streams.Close()
	c.login.drain()
	wg.Wait()
}

// waitForPodEnd waits for the Pod's end, after ours: closing the streams resets them,
// and a reset overtakes what was written before. A peer that takes its time is
// cut: the streams' goodbye would wait for it, too.
func (c *PodConn) waitForPodEnd(received <-chan struct{}) {
	ctx, cancel := context.WithTimeout(c.login.bridge.group.Context(), lingerTime)
	defer cancel()
	select {
	case <-received:
	case <-ctx.Done():
		c.login.close()
	}
}

// send ends with Close, with CloseWrite or with the streams.
func (c *PodConn) send() {
	io.Copy(c.data, c.far)
	c.data.Close()
}

// receive ends with the streams.
func (c *PodConn) receive(received chan<- struct{}) {
	defer close(received)
	_, err := io.Copy(c.far, c.data)
	if errors.Is(err, io.ErrClosedPipe) {
		io.Copy(io.Discard, c.data) // nobody reads any more: to the end, see waitForPodEnd
	}
	select {
	case <-c.streams.CloseChan(): // spdystream says EOF
		err = io.ErrUnexpectedEOF
	default:
	}
	text, _ := io.ReadAll(io.LimitReader(c.errs, 4<<10))
	switch {
	case len(text) > 0:
		err = &PodError{Addr: c.to, Text: strings.TrimSpace(string(text))}
	case err != nil:
		err = fmt.Errorf("connect: port-forward to %s: %w", c.to, err)
	default:
		err = io.EOF
	}
	c.cause.CompareAndSwap(nil, &err)
	c.far.Close()
}

// Read reads what the Pod sent.
func (c *PodConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.explainError("read", err)
}

// Write returns when what is in p is on its way.
func (c *PodConn) Write(p []byte) (int, error) {
	if c.ended.Load() {
		return 0, c.opError("write", syscall.EPIPE)
	}
	n, err := c.Conn.Write(p)
	if err != nil && c.ended.Load() {
		return n, c.opError("write", syscall.EPIPE)
	}
	return n, c.explainError("write", err)
}

// CloseWrite sends an end, behind all that was written. A Write that is under
// way is cut short.
func (c *PodConn) CloseWrite() error {
	select {
	case <-c.closing:
		return c.opError("close", net.ErrClosed)
	default:
	}
	c.ended.Store(true)
	// All written bytes have left the pipe: it has no buffer.
	past := time.Unix(1, 0)
	return errors.Join(c.far.SetReadDeadline(past), c.Conn.SetWriteDeadline(past))
}

// Close ends the connection. Written bytes are still sent, in the background:
// the Pod has 5 seconds to take it and to answer with its end.
func (c *PodConn) Close() error {
	err := error(c.opError("close", net.ErrClosed))
	c.close.Do(func() {
		close(c.closing)
		err = c.Conn.Close()
	})
	return err
}

// RemoteAddr is the Pod's port: namespace/pod:port.
func (c *PodConn) RemoteAddr() net.Addr { return podAddr{c.to} }

// explainError makes what the pipe says what the connection says.
func (c *PodConn) explainError(op string, err error) error {
	if err != io.EOF && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	select {
	case <-c.closing:
		return c.opError(op, net.ErrClosed)
	default:
	}
	cause := c.cause.Load()
	switch {
	case c.login.bridge.conns.isClosed():
		return errClosed
	case cause == nil:
		return c.opError(op, io.ErrUnexpectedEOF)
	case *cause == io.EOF && op == "write":
		return c.opError(op, syscall.EPIPE)
	}
	return *cause
}

func (c *PodConn) opError(op string, err error) *net.OpError {
	return &net.OpError{Op: op, Net: "pod", Addr: podAddr{c.to}, Err: err}
}

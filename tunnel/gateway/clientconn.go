package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/relay"
)

const (
	// lingerTime and lingerBytes bound what a refused client may still send: a
	// close with unread bytes is a reset, which can overtake the answer.
	lingerTime  = time.Second
	lingerBytes = 256 << 10

	// maxEarly is how much is kept of what a client sends before the answer.
	maxEarly = 16 << 10
)

var (
	pastDeadline = time.Unix(1, 0)

	errShutdown = errors.New("the gateway shuts down")
	errHungUp   = errors.New("the client hung up")
	errSilent   = errors.New("the client left without a request")
)

// protocol is what the clients of a door speak until they are relayed.
type protocol struct {
	door Door
	// negotiate reads what the client asks for and authorizes it. It returns
	// the bytes that it has read and that the target must get. errSilent means that
	// the client asked for nothing, and errHTTP2 that it goes on in HTTP/2.
	negotiate func(ctx context.Context, c *clientConn) (early []byte, err error)
	// connected tells the client that its target is connected. May be nil.
	connected func(target net.Conn) string
	// refusal tells the client about an error; empty if the client would not
	// understand it.
	refusal func(err error) string
}

// clientConn is a client's connection.
type clientConn struct {
	g        *Gateway
	group    *group.Group
	ctx      context.Context // of the dial and the relay
	cancel   context.CancelCauseFunc
	request  *clientRequest
	raw      net.Conn  // as it was accepted
	conn     net.Conn  // with TLS, if the door has it
	deadline time.Time // for the request
	tls      tls.ConnectionState
	early    []byte      // read, and not yet used
	held     *earlyBytes // of early; nil before the target is dialed

	mu             sync.Mutex       // guards the fields below
	pending        *admission.Place // nil once the client was let in
	authenticating int              // calls of Authenticate that are under way
	beforeReset    func()           // may be nil
}

// serveClient serves a connection until it ends. The caller closes it.
func (g *Gateway) serveClient(p *protocol, gr *group.Group, raw net.Conn) {
	setKeepAlive(raw)
	c := &clientConn{g: g, group: gr, raw: raw, conn: raw, deadline: time.Now().Add(g.handshakeTimeout())}
	stop := context.AfterFunc(gr.Context(), c.reset)
	defer stop()
	c.ctx, c.cancel = context.WithCancelCause(gr.Context())
	defer c.cancel(nil)
	c.request = g.beginRequest(p.door, raw.RemoteAddr())
	defer c.request.finish()
	defer c.releaseEarly()
	raw.SetDeadline(c.deadline)
	target := c.connectTarget(p)
	if target == nil {
		return
	}
	if !stop() { // the group has ended; from here on the relay would end them
		abort.Reset(target, 0)
		abort.Reset(raw, 0) // c.reset may not have run yet
		return
	}
	c.request.relay(c.ctx, c.takeEarly(), c.releaseEarly, c.conn, target)
}

// takeEarly returns the early bytes, and does not keep them.
func (c *clientConn) takeEarly() []byte {
	early := c.early
	c.early = nil
	return early
}

// releaseEarly is called when the target has the early bytes, or nobody will.
func (c *clientConn) releaseEarly() {
	if c.held != nil {
		c.held.leave()
	}
}

// reset resets the connection: a client that was told that it is connected must
// not take this for a regular end.
func (c *clientConn) reset() {
	c.mu.Lock()
	before := c.beforeReset
	c.mu.Unlock()
	if before != nil {
		before()
	}
	abort.Reset(c.raw, 0)
}

// connectTarget goes from the first byte to the answer. It returns the target's
// connection, or nil after a refusal.
func (c *clientConn) connectTarget(p *protocol) net.Conn {
	ctx, cancel := context.WithDeadline(c.group.Context(), c.deadline)
	defer cancel()
	place, err := c.g.pending.Enter(ctx, c.raw)
	if err != nil {
		if err = admission.ErrCrowded; c.group.Accepting().Err() != nil {
			err = errShutdown
		}
		told := c.request.recordFailure(PhaseHandshake, err)
		if c.g.TLS == nil || p.door == DoorSNI { // there is no time for a handshake
			io.WriteString(c.raw, p.refusal(told))
		}
		return nil
	}
	defer place.Leave()
	c.pending = place
	target, err := c.negotiateAndDial(p)
	switch {
	case err == errHTTP2:
		c.serveHTTP2()
	case err != nil && err != errSilent:
		if !errors.Is(err, errHungUp) {
			c.request.awaitRefusal(c.group.Context())
		}
		c.sendRefusal(p.refusal(err))
	}
	return target
}

// negotiateAndDial returns the target's connection once the client knows of it.
// Hooks have seen the error, unless it is errSilent or errHTTP2.
func (c *clientConn) negotiateAndDial(p *protocol) (net.Conn, error) {
	early, err := c.negotiate(p)
	if err != nil {
		return nil, err
	}
	c.leavePending()
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	c.conn.SetDeadline(time.Time{})
	asked := len(c.early) > 0
	early = append(early, c.takeEarly()...)
	c.held = c.g.holdEarly(c.request.request.Client, func() { c.cancel(errBudget) })
	c.held.add(len(early))
	stop := c.watchHangup(asked, func() { cancel(errHungUp) })
	target, early, err := c.request.dial(ctx, early)
	stop()
	if err != nil {
		return nil, err
	}
	if cause := context.Cause(ctx); cause == errHungUp || cause == errBudget { // Dial ignored its context
		abort.Reset(target, 0)
		return nil, c.request.recordFailure(PhaseDial, cause)
	}
	c.early = append(early, c.early...)
	c.conn.SetWriteDeadline(time.Now().Add(c.g.handshakeTimeout()))
	if p.connected != nil {
		_, err = io.WriteString(c.conn, p.connected(target))
	}
	if err != nil {
		abort.Reset(target, 0)
		return nil, c.request.recordFailure(PhaseRelay, err)
	}
	c.conn.SetWriteDeadline(time.Time{})
	return target, nil
}

// negotiate is p.negotiate, cut short when the group lets no more clients in:
// a client that has asked for nothing yet is not waited for.
func (c *clientConn) negotiate(p *protocol) ([]byte, error) {
	stop := context.AfterFunc(c.group.Accepting(), func() { c.raw.SetReadDeadline(pastDeadline) })
	defer stop()
	early, err := p.negotiate(c.pending.Context(), c)
	stopped := stop()
	var told *Error
	switch {
	case err == errHTTP2 && !stopped:
		return nil, errSilent
	case err == errHTTP2, err == errSilent && c.displacedError() == nil, errors.As(err, &told):
		return nil, err
	case err == nil && (!stopped || c.group.Accepting().Err() != nil):
		err = errShutdown
	case err == nil:
		return early, nil
	}
	if cause := c.displacedError(); cause != nil {
		err = cause
	} else if c.drained(err) {
		err = errShutdown
	}
	return nil, c.request.recordFailure(PhaseHandshake, err)
}

// watchHangup calls left when the client hangs up, until the function that it
// returns is called. It keeps in early the bytes that the client sends meanwhile. asked
// says that it has sent some for its target: then it may end, and wait for an answer.
func (c *clientConn) watchHangup(asked bool, left func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := headerBuffers.Get().(*[headerBufferSize]byte)
		defer headerBuffers.Put(buf)
		for len(c.early) < maxEarly {
			n, err := c.conn.Read(buf[:])
			c.held.add(n)
			c.early = append(c.early, buf[:n]...)
			switch {
			case err == nil:
				continue
			case errors.Is(err, os.ErrDeadlineExceeded):
			case err == io.EOF && (asked || len(c.early) > 0):
			default:
				left()
			}
			return
		}
	}()
	return func() {
		c.conn.SetReadDeadline(pastDeadline)
		<-done
		c.conn.SetReadDeadline(time.Time{})
	}
}

// sendRefusal tells a client that it is refused, and gives it time to read that.
func (c *clientConn) sendRefusal(text string) {
	if text == "" {
		return
	}
	c.raw.SetWriteDeadline(time.Now().Add(lingerTime)) // the time for the request may be over
	if _, err := io.WriteString(c.conn, text); err == nil {
		c.lingerClose()
	}
}

// lingerClose ends what the client gets, and reads on until the client has seen
// it: see lingerTime.
func (c *clientConn) lingerClose() {
	c.awaitClient(admission.Greeting)
	if relay.CloseWrite(c.conn) == nil {
		c.conn.SetReadDeadline(time.Now().Add(lingerTime))
		io.CopyN(io.Discard, c.conn, lingerBytes)
	}
}

// awaitClient says that the connection has come to a stage, and waits for the
// client now: another client may take its place.
func (c *clientConn) awaitClient(stage admission.Stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending != nil && c.authenticating == 0 {
		c.pending.Reach(stage)
		c.pending.Wait()
	}
}

// beginAuthenticate is called before Authenticate: a client that waits for it
// keeps its place. endAuthenticate is called after it.
func (c *clientConn) beginAuthenticate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authenticating++; c.pending != nil {
		c.pending.Compute()
	}
}

func (c *clientConn) endAuthenticate(stage admission.Stage) {
	c.mu.Lock()
	c.authenticating--
	c.mu.Unlock()
	c.awaitClient(stage)
}

// leavePending gives the place back: from now on the client counts for MaxConns.
func (c *clientConn) leavePending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending != nil {
		c.pending.Leave()
		c.pending = nil
	}
}

// displacedError returns why another client has the place now, or nil.
func (c *clientConn) displacedError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == nil {
		return nil
	}
	if cause := context.Cause(c.pending.Context()); errors.Is(cause, admission.ErrCrowded) {
		return cause
	}
	return nil
}

// drained reports whether err is the deadline that was set because the group
// lets no more clients in.
func (c *clientConn) drained(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && c.group.Accepting().Err() != nil
}

// setKeepAlive finds peers that are gone within a minute and a half: a watch may
// be silent for hours, and nothing else ends it.
func setKeepAlive(conn net.Conn) {
	if tc, ok := conn.(*net.TCPConn); ok {
		tc.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 4})
	}
}

// startTLS makes the connection a TLS one, if the door has TLS.
func (c *clientConn) startTLS() error {
	if c.g.TLS == nil {
		return nil
	}
	below := &cutDetector{admission.Conn{Conn: c.raw, Place: c.pending}}
	tc := tls.Server(below, c.g.connectTLS)
	c.pending.Begin()
	err := tc.HandshakeContext(c.pending.Context())
	c.pending.End(0)
	below.Place = nil
	if err != nil {
		return err
	}
	c.conn, c.tls = tc, tc.ConnectionState()
	if len(c.verifiedCertificates()) > 0 {
		c.pending.Prove()
		c.raw.SetReadDeadline(c.deadline) // a long handshake has another one
		if c.group.Accepting().Err() != nil {
			c.raw.SetReadDeadline(pastDeadline)
		}
	}
	return nil
}

// verifiedCertificates returns the client's certificates if crypto/tls or a
// function of the configuration has verified them.
func (c *clientConn) verifiedCertificates() []*x509.Certificate {
	if len(c.tls.VerifiedChains) > 0 {
		return c.tls.VerifiedChains[0]
	}
	if cfg := c.g.TLS; cfg != nil && (cfg.VerifyPeerCertificate != nil || cfg.VerifyConnection != nil) {
		return c.tls.PeerCertificates
	}
	return nil
}

// cutDetector turns an EOF of the connection below TLS into an error. crypto/tls
// takes an EOF between two records for the regular end, but an attacker, or
// a crash, can cause such an EOF at any time.
type cutDetector struct{ admission.Conn }

// errCut must not be io.ErrUnexpectedEOF itself: where a record ends, crypto/tls
// makes io.EOF of that.
var errCut = fmt.Errorf("the connection was cut, or its program ended: %w", io.ErrUnexpectedEOF)

func (d *cutDetector) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if err == io.EOF {
		err = errCut
	}
	return n, err
}

// Package abort calls NetConn.
func (d *cutDetector) NetConn() net.Conn { return d.Conn.Conn }

package dialer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// linger is how long a stream that was closed may take to send what was
	// written and to be ended by the other side, before it is reset.
	linger = 5 * time.Second
	// minSilence is how long a proxy that has taken all of it must have said
	// nothing for the stream to be reset before that: nghttpx does not tell the
	// target of an end, only of a reset.
	minSilence = 50 * time.Millisecond
)

// connectStream asks for a stream on cc, on which one is reserved.
func (p *HTTP2) connectStream(ctx context.Context, h *httpDial, cc *http2Conn, header http.Header) (*http2Stream, error) {
	var stream *http2Stream
	reserved, refused := true, false
	defer func() {
		if refused {
			p.addChallenged(cc, -1)
		}
	}()
	_, err := h.askProxy(ctx, func(ctx context.Context) (refusal *Refusal, kept bool, err error) {
		if !reserved {
			if err := cc.reserveAgain(ctx); err != nil {
				return nil, false, err
			}
			refused = false
			p.addChallenged(cc, -1)
		}
		reserved = false
		stream, refusal, err = p.sendRequest(ctx, h, cc, header.Clone(), func() {
			refused = true
			p.addChallenged(cc, 1)
		})
		return refusal, true, err
	})
	return stream, err
}

// addChallenged counts the dials that give up a stream of cc and need another one:
// no other dial takes it from them.
func (p *HTTP2) addChallenged(cc *http2Conn, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cc.challenged += n
}

// reserveAgain waits for the stream that was given up to be gone: it may be the
// only one that the proxy allows.
func (cc *http2Conn) reserveAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bodyWait, errHTTP2NoStreams) // as after a GOAWAY
	defer cancel()
	for {
		changed := cc.stateChange()
		if cc.Reserve() == nil {
			return nil
		}
		if cc.Err() != nil {
			return errHTTP2NoStreams
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// requestHeader is what h sends along. User-Agent is there, empty if need be, so
// that net/http's is not sent.
func (h *httpDial) requestHeader(ctx context.Context) (http.Header, error) {
	header := http.Header{"User-Agent": {""}}
	extra, err := h.extraHeader(ctx)
	if err != nil {
		return nil, err
	}
	for name, values := range extra {
		header[http.CanonicalHeaderKey(name)] = values
	}
	return header, nil
}

// sendRequest sends one CONNECT on cc and waits for the answer. refused is called before a stream is given up because of the answer.
func (p *HTTP2) sendRequest(ctx context.Context, h *httpDial, cc *http2Conn, header http.Header, refused func()) (*http2Stream, *Refusal, error) {
	if h.authorization != "" {
		header.Set("Proxy-Authorization", h.authorization)
	}
	// ctx bounds the dial, the stream outlives it.
	streamCtx, cancel := context.WithCancel(context.Background())
	s := newHTTP2Stream(p, cc, cancel)
	streamCtx = httptrace.WithClientTrace(streamCtx, &httptrace.ClientTrace{
		WroteHeaders: func() { s.frames.Store(cc.wire.newestStream()) }, // no other request is sent meanwhile
	})
	began := time.Now()
	stop := context.AfterFunc(ctx, cancel)
	req := (&http.Request{
		Method:        http.MethodConnect,
		URL:           &url.URL{Host: h.target.authority},
		Host:          h.target.authority,
		Header:        header,
		Body:          http2Body{s},
		ContentLength: -1,
	}).WithContext(streamCtx)
	res, err := cc.RoundTrip(req)
	if err != nil {
		stop()
		cancel()
		return nil, nil, contextError(ctx, cc.wire.failureCause(s.frames.Load(), err))
	}
	s.silence = min(max(2*time.Since(began), minSilence), linger)
	if res.StatusCode/100 != 2 {
		refused()
		refusal := readHTTP2Refusal(res, cancel)
		if !stop() {
			return nil, nil, contextError(ctx, ctx.Err())
		}
		return nil, refusal, nil
	}
	// A request that waits for the proxy to take more does not see the end of its
	// context; the closing of the body ends it.
	s.cancel = func() { cancel(); res.Body.Close() }
	switch {
	case !stop():
		err = contextError(ctx, ctx.Err())
	case res.Header["Content-Length"] != nil:
		err = errHTTP2Length
	default:
		err = p.addStream(s)
	}
	if err != nil {
		cancel()
		res.Body.Close()
		return nil, nil, err
	}
	go s.copyFromTarget(res.Body)
	return s, nil, nil
}

// readHTTP2Refusal takes the beginning of the body and gives the stream up.
func readHTTP2Refusal(res *http.Response, cancel func()) *Refusal {
	refusal := &Refusal{StatusCode: res.StatusCode, Header: res.Header}
	timer := time.AfterFunc(bodyWait, cancel)
	refusal.Body, _ = io.ReadAll(io.LimitReader(res.Body, maxBodyExcerpt))
	timer.Stop()
	cancel()
	res.Body.Close()
	return refusal
}

// http2Stream is a tunnel through a stream. Each direction is a net.Pipe
// between the caller, whose end has deadlines, and the HTTP/2 library, which
// has none.
type http2Stream struct {
	pool    *HTTP2
	wire    *http2Wire
	frames  atomic.Pointer[wireStream] // nil until the request was sent
	silence time.Duration              // how long is enough to reset it after Close

	in, out     net.Conn // the caller's ends: what the target sends, and what it gets
	inFar, body net.Conn // the library's: written by pump, read as the request's body
	cancel      func()   // resets the stream, unless it has ended

	partsLeft   atomic.Int32 // of pump and the request, how many are left
	requestDone sync.Once    // for the part of the request

	mu     sync.Mutex // guards the fields below
	closed bool
	err    error // why the stream broke off
}

var _ net.Conn = (*http2Stream)(nil)

func newHTTP2Stream(pool *HTTP2, cc *http2Conn, cancel func()) *http2Stream {
	s := &http2Stream{pool: pool, wire: cc.wire, cancel: cancel}
	s.in, s.inFar = net.Pipe()
	s.out, s.body = net.Pipe()
	s.partsLeft.Store(2)
	return s
}

// http2Body is what the request sends: what the caller writes.
type http2Body struct{ s *http2Stream }

func (b http2Body) Read(p []byte) (int, error) { return b.s.body.Read(p) }

// Close is called when the request has ended, for whatever reason.
func (b http2Body) Close() error {
	b.s.body.Close()
	b.s.requestDone.Do(b.s.partDone)
	return nil
}

func (s *http2Stream) partDone() {
	if s.partsLeft.Add(-1) == 0 {
		s.pool.removeStream(s)
	}
}

// copyFromTarget hands on what the target sends until it ends or the stream is closed.
// It is a goroutine of its own because a read of the library can't be
// interrupted by a deadline.
func (s *http2Stream) copyFromTarget(body io.ReadCloser) {
	defer s.partDone()
	buf := make([]byte, 16<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, werr := s.inFar.Write(buf[:n]); werr != nil {
				// Data for a stream that was closed: a TCP socket answers with a
				// reset as well.
				s.cancel()
				body.Close()
				return
			}
		}
		if err == io.EOF {
			s.inFar.Close() // and the other direction goes on
			return
		}
		if err != nil {
			s.abortStream(&brokenStreamError{s.wire.failureCause(s.frames.Load(), err)})
			body.Close()
			return
		}
	}
}

// abortStream breaks the stream off because of err.
func (s *http2Stream) abortStream(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.inFar.Close()
	s.cancel()
}

func (s *http2Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := s.in.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		s.mu.Lock()
		broken := s.err
		s.mu.Unlock()
		if broken == nil {
			return n, io.EOF
		}
		err = broken
	case errors.Is(err, io.ErrClosedPipe):
		err = net.ErrClosed
	}
	return n, s.opError("read", err)
}

// Write returns when the library has taken all of p, which it does as the
// proxy's flow control allows.
func (s *http2Stream) Write(p []byte) (int, error) {
	n := 0
	err := s.writeError()
	if err == nil && len(p) > 0 {
		n, err = s.out.Write(p)
		if errors.Is(err, io.ErrClosedPipe) {
			if err = s.writeError(); err == nil {
				err = syscall.EPIPE // after CloseWrite, or the request has ended
			}
		}
	}
	if err != nil {
		return n, s.opError("write", err)
	}
	return n, nil
}

// writeError is why nothing can be written, if that is known.
func (s *http2Stream) writeError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	return s.err
}

// CloseWrite ends what the target gets (END_STREAM). Reads go on.
func (s *http2Stream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.opError("close", net.ErrClosed)
	}
	return s.out.Close()
}

// Close ends the stream and returns at once. What was written is still sent,
// for at most linger.
func (s *http2Stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.opError("close", net.ErrClosed)
	}
	s.closed = true
	s.out.Close()
	s.in.Close()
	s.resetWhenSilent(time.Now().Add(linger))
	return nil
}

// resetWhenSilent resets the stream when the proxy has had all of it for long
// enough, at the deadline in any case, unless it ends by itself. No frame says
// that the target has got what was written: what tells is that the proxy has
// returned the window for it.
func (s *http2Stream) resetWhenSilent(deadline time.Time) {
	silent := time.Duration(0)
	if frames := s.frames.Load(); frames != nil {
		silent = s.wire.silentFor(frames)
	}
	rest := time.Until(deadline)
	switch {
	case silent < 0:
	case silent >= s.silence, rest <= 0:
		s.cancel()
	default:
		time.AfterFunc(min(s.silence-silent, rest), func() { s.resetWhenSilent(deadline) })
	}
}

// Reset ends the stream so that the proxy sees a reset, and not the end of what
// was written (RST_STREAM). There is no code to pass on.
func (s *http2Stream) Reset(uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.opError("close", net.ErrClosed)
	}
	s.closed = true
	s.body.Close() // before out: its end would read as the end of the request
	s.cancel()
	s.out.Close()
	s.in.Close()
	return nil
}

func (s *http2Stream) LocalAddr() net.Addr  { return s.wire.LocalAddr() }
func (s *http2Stream) RemoteAddr() net.Addr { return s.wire.RemoteAddr() }

func (s *http2Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

func (s *http2Stream) SetReadDeadline(t time.Time) error {
	return s.setDeadline(s.in.SetReadDeadline, t)
}

func (s *http2Stream) SetWriteDeadline(t time.Time) error {
	return s.setDeadline(s.out.SetWriteDeadline, t)
}

// setDeadline takes no offence at a direction that has ended.
func (s *http2Stream) setDeadline(set func(time.Time) error, t time.Time) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return s.opError("set", net.ErrClosed)
	}
	if err := set(t); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return s.opError("set", err)
	}
	return nil
}

func (s *http2Stream) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
}

// brokenStreamError is the end of a stream that the proxy reset, or whose
// connection was lost.
type brokenStreamError struct{ err error }

func (e *brokenStreamError) Error() string { return "the proxy broke the stream off: " + e.err.Error() }
func (e *brokenStreamError) Unwrap() error { return e.err }

// Is reports it as the reset that it would be on a connection of its own.
func (e *brokenStreamError) Is(target error) bool { return target == syscall.ECONNRESET }

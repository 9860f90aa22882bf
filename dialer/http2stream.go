package dialer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/mask"
)

const (
	// linger is how long a closed stream may take to send what was written and to be
	// ended by the target. Then it is reset.
	linger = 5 * time.Second
	// minSilence is the shortest silence after which a closed stream is reset before
	// that, if the proxy has taken all of it. nghttpx passes no END_STREAM on to the
	// target, only a reset.
	minSilence = 50 * time.Millisecond
)

// connectStream connects a stream on cc to the target. The first stream is reserved
// already. After a 407 the next request needs another one.
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

// addChallenged counts the dials on cc that got a 407 and need another stream.
// reserveStream leaves so many streams to them.
func (p *HTTP2) addChallenged(cc *http2Conn, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cc.challenged += n
}

// reserveAgain reserves another stream. It waits until the one with the 407 has ended,
// which may be the only one that the proxy allows.
func (cc *http2Conn) reserveAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bodyWait, errHTTP2NoStreams) // as after a GOAWAY
	defer cancel()
	for {
		cc.mu.Lock()
		changed := cc.changed // when another stream may be possible
		cc.mu.Unlock()
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

// requestHeader returns the header of h's requests. It has a User-Agent, maybe an empty
// one, so that net/http does not add its own.
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

// sendRequest sends one CONNECT on cc and waits for the answer. It calls refused before
// it ends a stream because of the answer.
func (p *HTTP2) sendRequest(ctx context.Context, h *httpDial, cc *http2Conn, header http.Header, refused func()) (*http2Stream, *Refusal, error) {
	if h.authorization != "" {
		header.Set("Proxy-Authorization", h.authorization)
	}
	// ctx bounds only the dial, not the stream.
	streamCtx, cancel := context.WithCancel(context.Background())
	s := newHTTP2Stream(p, cc, cancel)
	streamCtx = httptrace.WithClientTrace(streamCtx, &httptrace.ClientTrace{
		// net/http sends one request at a time, so the newest stream is this one.
		WroteHeaders: func() { s.frames.Store(cc.wire.newestStream()) },
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
		return nil, nil, ended.Error(ctx, h.maskStreamError(cc.wire.failureCause(s.frames.Load(), err)))
	}
	s.silence = min(max(2*time.Since(began), minSilence), linger)
	// A request that waits for window, or for its own body, does not notice the end of
	// its context. Closing the body ends it.
	s.cancel = func() { cancel(); res.Body.Close() }
	var refusal *Refusal
	malformed := res.StatusCode < 200 || strings.IndexByte(res.Status, ' ') != 3
	if !malformed && res.StatusCode/100 != 2 {
		refused()
		refusal = readHTTP2Refusal(ctx, res, s.cancel)
	}
	stopped := stop()
	switch {
	case refusal != nil:
		return nil, refusal, nil
	case !stopped:
		err = ended.Error(ctx, ctx.Err())
	case malformed:
		err = errHTTP2Status
	case res.Header["Content-Length"] != nil:
		err = errHTTP2Length
	default:
		err = p.addStream(s)
	}
	if err != nil {
		s.cancel()
		return nil, nil, err
	}
	go s.copyFromTarget(res.Body)
	return s, nil, nil
}

// maskStreamError masks the cause of net/http's error for a stream, which quotes a
// header that is not valid.
func (h *httpDial) maskStreamError(err error) error {
	var stream http2.StreamError
	var reset *resetError
	if !errors.As(err, &stream) || stream.Cause == nil || errors.As(err, &reset) {
		return err
	}
	stream.Cause = mask.Error(stream.Cause, h.sentSecrets())
	return stream
}

// readHTTP2Refusal reads the beginning of the body and ends the stream by end, at the
// end of ctx or after bodyWait at the latest.
func readHTTP2Refusal(ctx context.Context, res *http.Response, end func()) *Refusal {
	refusal := &Refusal{StatusCode: res.StatusCode, Header: res.Header}
	ctx, cancel := context.WithTimeout(ctx, bodyWait)
	defer cancel()
	defer context.AfterFunc(ctx, end)()
	refusal.Body, _ = io.ReadAll(io.LimitReader(res.Body, maxBodyExcerpt))
	end()
	return refusal
}

// http2Stream is the net.Conn of a stream. Each direction is a net.Pipe between the
// caller and net/http's HTTP/2, because that has no deadlines and net.Pipe has.
type http2Stream struct {
	pool    *HTTP2
	wire    *http2Wire
	frames  atomic.Pointer[wireStream] // nil until the request was sent
	silence time.Duration              // the silence after which a closed stream is reset

	in, out     net.Conn // the caller's ends: from the target, and to it
	inFar, body net.Conn // net/http's ends: of in and of out
	cancel      func()   // resets the stream, unless it has ended

	partsLeft   atomic.Int32 // copyFromTarget and the request, until they have ended
	requestDone sync.Once    // the request has ended

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

// http2Body is the body of the request: what the caller writes.
type http2Body struct{ s *http2Stream }

func (b http2Body) Read(p []byte) (int, error) { return b.s.body.Read(p) }

// Close is called by net/http when the request has ended, for any reason.
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

// copyFromTarget copies what the target sends to the caller's pipe, until the target
// ends or the stream is closed. It has a goroutine of its own because no deadline ends
// a Read of net/http's body.
func (s *http2Stream) copyFromTarget(body io.ReadCloser) {
	defer s.partDone()
	buf := make([]byte, 16<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, werr := s.inFar.Write(buf[:n]); werr != nil {
				// Data for a closed stream: a TCP socket answers with a reset, too.
				s.cancel()
				body.Close()
				return
			}
		}
		if err == io.EOF {
			s.inFar.Close() // the other direction stays open
			return
		}
		if err != nil {
			s.abortStream(&brokenStreamError{s.wire.failureCause(s.frames.Load(), err)})
			body.Close()
			return
		}
	}
}

// abortStream ends the stream with err.
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
		if err = s.endError(); err == nil {
			return n, io.EOF
		}
	case errors.Is(err, io.ErrClosedPipe):
		err = net.ErrClosed
	}
	return n, s.opError("read", err)
}

// Write returns when net/http has taken all of p. The proxy's flow control decides when
// that is.
func (s *http2Stream) Write(p []byte) (int, error) {
	n := 0
	err := s.endError()
	if err == nil && len(p) > 0 {
		n, err = s.out.Write(p)
		if errors.Is(err, io.ErrClosedPipe) {
			if err = s.endError(); err == nil {
				err = syscall.EPIPE // after CloseWrite, or the request has ended
			}
		}
	}
	if err != nil {
		return n, s.opError("write", err)
	}
	return n, nil
}

// endError returns why the stream has ended on this side, or nil if that is not known.
func (s *http2Stream) endError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	return s.err
}

// CloseWrite ends what the target receives (END_STREAM). Reads still work.
func (s *http2Stream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.opError("close", net.ErrClosed)
	}
	return s.out.Close()
}

// Close ends the stream and returns at once. Bytes that Write took are still sent,
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

// resetWhenSilent resets the stream when the proxy has had all of it for s.silence, or
// at the deadline, unless it ends before. No frame says that the target has received
// what was written. The proxy has passed it on when it has returned the window for it.
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

// Reset ends the stream by RST_STREAM, so that the proxy does not take it for the end
// of the data. The code is not sent.
func (s *http2Stream) Reset(uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.opError("close", net.ErrClosed)
	}
	s.closed = true
	s.body.Close() // before out, whose end would be the request's end
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

// setDeadline ignores the error of a direction that has ended.
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

// brokenStreamError is the error of a stream that the proxy has reset, or whose
// connection has failed.
type brokenStreamError struct{ err error }

func (e *brokenStreamError) Error() string { return "the proxy ended the stream: " + e.err.Error() }
func (e *brokenStreamError) Unwrap() error { return e.err }

// Is makes errors.Is find ECONNRESET, the error of a TCP connection in this case.
func (e *brokenStreamError) Is(target error) bool { return target == syscall.ECONNRESET }

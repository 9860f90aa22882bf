package dialer_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
)

// rawProxy is an https proxy that chooses proto and plays play.
func rawProxy(t *testing.T, proto string, play func(*rawHTTP2)) *dialer.HTTPConnect {
	ca := pki.NewCA("proxy")
	l := tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}, NextProtos: []string{proto}})
	addr := serve(t, l, func(_ context.Context, conn net.Conn) {
		play(&rawHTTP2{Framer: http2.NewFramer(conn, conn), conn: conn.(*tls.Conn)})
	})
	shared := &dialer.HTTP2{}
	t.Cleanup(func() { shared.Close() })
	return &dialer.HTTPConnect{Addr: addr, TLSConfig: &tls.Config{RootCAs: ca.Pool()}, HTTP2: shared}
}

// rawHTTP2 is the proxy's side of a connection: nothing is answered by itself.
type rawHTTP2 struct {
	*http2.Framer
	conn *tls.Conn
}

// hangUp ends what the client reads.
func (p *rawHTTP2) hangUp() { p.conn.NetConn().(*net.TCPConn).CloseWrite() }

// start reads the client's preface and sends SETTINGS.
func (p *rawHTTP2) start() {
	io.ReadFull(p.conn, make([]byte, len(http2.ClientPreface)))
	p.WriteSettings()
}

// request reads until a request comes, and returns its stream.
func (p *rawHTTP2) request() uint32 {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return 0
		}
		if f.Header().Type == http2.FrameHeaders {
			return f.Header().StreamID
		}
	}
}

// status sends HEADERS with one of the indexed fields of HPACK.
func (p *rawHTTP2) status(stream uint32, field byte, endHeaders bool) {
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{field}, EndHeaders: endHeaders})
}

const (
	field200 = 0x88
	field500 = 0x8e
)

// fault is what a proxy does in place of an answer.
type fault struct {
	name  string
	http2 func(p *rawHTTP2, stream uint32)
	// http1 is the same over HTTP/1.1. nil if it has none.
	http1 string // the answer, after which the connection is closed
	hang  bool   // it is not closed

	failed bool          // ProxyFailed
	status int           // Error.Status
	is     error         // errors.Is, over HTTP/2
	code   http2.ErrCode // of the http2.StreamError or http2.ConnectionError, over HTTP/2
}

var http2Faults = []fault{
	{name: "reset: no error", http2: resetWith(http2.ErrCodeNo), failed: true, is: syscall.ECONNRESET},
	{name: "reset: internal", http2: resetWith(http2.ErrCodeInternal), failed: true, is: syscall.ECONNRESET, code: http2.ErrCodeInternal},
	{name: "reset: refused", http2: resetWith(http2.ErrCodeRefusedStream), failed: true, is: syscall.ECONNRESET, code: http2.ErrCodeRefusedStream},
	{name: "reset: cancel", http2: resetWith(http2.ErrCodeCancel), failed: true, is: syscall.ECONNRESET, code: http2.ErrCodeCancel},
	{name: "reset: protocol", http2: resetWith(http2.ErrCodeProtocol), failed: true, is: syscall.ECONNRESET, code: http2.ErrCodeProtocol},
	{name: "reset: calm", http2: resetWith(http2.ErrCodeEnhanceYourCalm), failed: true, is: syscall.ECONNRESET, code: http2.ErrCodeEnhanceYourCalm},
	{name: "reset: connect", http2: resetWith(http2.ErrCodeConnect), code: http2.ErrCodeConnect},
	{name: "GOAWAY, not served", http2: func(p *rawHTTP2, _ uint32) { p.WriteGoAway(0, http2.ErrCodeNo, nil) }, failed: true, is: io.ErrUnexpectedEOF},
	{name: "GOAWAY, an error", http2: func(p *rawHTTP2, _ uint32) { p.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil) },
		failed: true, is: io.ErrUnexpectedEOF, code: http2.ErrCodeEnhanceYourCalm},
	{name: "GOAWAY, served, closed", http2: func(p *rawHTTP2, s uint32) { p.WriteGoAway(s, http2.ErrCodeInternal, nil); p.hangUp() },
		failed: true, is: io.ErrUnexpectedEOF, code: http2.ErrCodeInternal},
	{name: "closed", http2: func(p *rawHTTP2, _ uint32) { p.hangUp() }, failed: true, is: io.ErrUnexpectedEOF},
	{name: "unfinished header", http2: func(p *rawHTTP2, s uint32) { p.status(s, field200, false); p.hangUp() },
		http1: "HTTP/1.1 200 OK\r\nX", failed: true, is: io.ErrUnexpectedEOF},
	{name: "unfinished frame", http2: func(p *rawHTTP2, s uint32) {
		p.conn.Write([]byte{0, 0, 9, 1, 4, 0, 0, 0, byte(s), field200})
		p.hangUp()
	},
		http1: "HTTP/1", failed: true, is: io.ErrUnexpectedEOF},
	{name: "no answer, no PING", http2: func(*rawHTTP2, uint32) {}, hang: true, failed: true, is: syscall.ETIMEDOUT},
	{name: "no answer in time", http2: func(*rawHTTP2, uint32) {}, hang: true, failed: true, is: context.DeadlineExceeded},
	{name: "another protocol", http2: func(p *rawHTTP2, s uint32) {
		p.WriteRawFrame(http2.FrameHeaders, 4, s, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	},
		http1: "SSH-2.0-OpenSSH_9\r\n"},
	{name: "DATA first", http2: func(p *rawHTTP2, s uint32) { p.WriteData(s, false, []byte("x")) }, http1: "x\r\n", code: http2.ErrCodeProtocol},
	{name: "500", http2: func(p *rawHTTP2, s uint32) { p.status(s, field500, true) }, http1: "HTTP/1.1 500 No\r\n\r\n", status: 500},
}

func resetWith(code http2.ErrCode) func(*rawHTTP2, uint32) {
	return func(p *rawHTTP2, stream uint32) { p.WriteRSTStream(stream, code) }
}

// What a proxy does in place of an answer over HTTP/2 counts as the same over
// HTTP/1.1, and so a Failover goes on to the next, or not.
func TestHTTP2ProxyFailed(t *testing.T) {
	t.Parallel()
	for _, tt := range http2Faults {
		t.Run(tt.name, func(t *testing.T) {
			d := rawProxy(t, "h2", func(p *rawHTTP2) {
				p.start()
				for stream := p.request(); stream != 0; stream = p.request() {
					tt.http2(p, stream)
				}
			})
			switch {
			case tt.is == context.DeadlineExceeded:
				d.Timeout = 100 * time.Millisecond
			case tt.hang:
				d.HTTP2.PingInterval, d.HTTP2.PingTimeout = 50*time.Millisecond, 50*time.Millisecond
			}
			e := tt.check(t, d)
			if tt.is != nil && !errors.Is(e, tt.is) {
				t.Errorf("got %v, want %v", e, tt.is)
			}
			var stream http2.StreamError
			var goAway http2.ConnectionError
			errors.As(e, &stream)
			errors.As(e, &goAway)
			if stream.Code != tt.code && http2.ErrCode(goAway) != tt.code {
				t.Errorf("got %v, want a StreamError or ConnectionError of %v", e, tt.code)
			}
		})
		if tt.code == http2.ErrCodeConnect {
			continue // over HTTP/1.1 it is a 502
		}
		t.Run(tt.name+" over HTTP/1.1", func(t *testing.T) {
			d := rawProxy(t, "http/1.1", func(p *rawHTTP2) {
				br := bufio.NewReader(p.conn)
				if _, err := http.ReadRequest(br); err != nil {
					return
				}
				io.WriteString(p.conn, tt.http1)
				if tt.hang {
					io.Copy(io.Discard, br)
				}
			})
			if tt.hang {
				d.Timeout = 100 * time.Millisecond
			}
			tt.check(t, d)
		})
	}
}

// What a proxy has answered is in the error, whatever ends the wait for the rest of it.
func TestAnswerBeforeTheEnd(t *testing.T) {
	basic := dialer.Basic(dialer.Password("u", "p"))
	for _, tt := range []struct {
		name   string
		status int
		http1  string
		auth   dialer.Authenticator
		phase  dialer.Phase
	}{
		{"a body is withheld", 404, "404 No\r\nContent-Length: 9\r\n\r\n", nil, dialer.PhaseConnect},
		{"half a body", 500, "500 No\r\nContent-Length: 9\r\n\r\nhalf", nil, dialer.PhaseConnect},
		{"half a chunk", 403, "403 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha", nil, dialer.PhaseConnect},
		{"half a header", 403, "403 No\r\nX-", nil, dialer.PhaseConnect},
		{"a login without one", 407, "407 No\r\nContent-Length: 9\r\n\r\n", nil, dialer.PhaseAuth},
		{"a login", 407, "407 No\r\nProxy-Authenticate: Basic\r\nContent-Length: 9\r\n\r\n", basic, dialer.PhaseAuth},
	} {
		for _, proto := range []string{"h2", "http/1.1"} {
			for _, ends := range []string{"the caller's deadline", "the caller", "Timeout"} {
				t.Run(tt.name+" over "+proto+", "+ends, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						const limit = time.Second / 2 // less than the wait for a body
						d, _ := framed(t, nil, func(_ context.Context, f *h2Frames) {
							for got := range f.Received {
								if got.Type == http2.FrameHeaders {
									f.Answer(got.Stream, false, strconv.Itoa(tt.status))
								}
							}
						})
						if proto == "http/1.1" {
							d = &dialer.HTTPConnect{Addr: "proxy:80", Forward: dialer.Func(func(context.Context, string, string) (net.Conn, error) {
								near, far := net.Pipe()
								go func() {
									http.ReadRequest(bufio.NewReader(far))
									io.WriteString(far, "HTTP/1.1 "+tt.http1)
								}()
								return near, nil
							})}
						}
						d.Auth = tt.auth
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						want := context.DeadlineExceeded
						switch ends {
						case "Timeout":
							d.Timeout = limit
						case "the caller":
							time.AfterFunc(limit, cancel)
							want = context.Canceled
						default:
							ctx, cancel = context.WithTimeout(ctx, limit)
							defer cancel()
						}
						_, err := d.DialContext(ctx, "tcp", target)
						var e *dialer.Error
						if !errors.As(err, &e) || e.Status != tt.status || e.Phase != tt.phase || dialer.ProxyFailed(err) || !errors.Is(err, want) {
							t.Errorf("got %v, want status %d in phase %s, that is no failure of the proxy, and %v", err, tt.status, tt.phase, want)
						}
						if refusal, ok := errors.AsType[*dialer.Refusal](err); !ok || refusal.StatusCode != tt.status {
							t.Errorf("got %v, want a Refusal", err)
						}
					})
				})
			}
		}
	}
}

// check dials through d, and returns its error.
func (tt *fault) check(t *testing.T, d *dialer.HTTPConnect) *dialer.Error {
	t.Helper()
	_, err := d.DialContext(t.Context(), "tcp", target)
	var e *dialer.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	if e.Op != "http connect" || e.Phase != dialer.PhaseConnect || e.Status != tt.status || e.Timeout() != tt.hang || errors.Is(err, context.Canceled) {
		t.Errorf("got op %q, phase %q, status %d, timeout %t (%v); want the connect phase, %d, %t, not cancelled", e.Op, e.Phase, e.Status, e.Timeout(), err, tt.status, tt.hang)
	}
	if got := dialer.ProxyFailed(err); got != tt.failed {
		t.Errorf("ProxyFailed(%v): got %t, want %t", err, got, tt.failed)
	}
	var second asked
	(&dialer.Failover{Dialers: []dialer.Dialer{d, &second}}).DialContext(t.Context(), "tcp", target)
	if (len(second.list) == 1) != tt.failed {
		t.Errorf("Failover took the next %d times, want it: %t", len(second.list), tt.failed)
	}
	return e
}

// CONNECT_ERROR of a hop before the proxy says that the hop could not reach the
// proxy, as a 502 does: the proxy failed.
func TestHTTP2ConnectErrorOfAHop(t *testing.T) {
	hop := rawProxy(t, "h2", func(p *rawHTTP2) {
		p.start()
		p.WriteRSTStream(p.request(), http2.ErrCodeConnect)
		p.request()
	})
	_, err := (&dialer.HTTPConnect{Addr: "far:3128", Forward: hop}).DialContext(testContext(t), "tcp", target)
	if !dialer.ProxyFailed(err) {
		t.Errorf("ProxyFailed(%v): got false, want true", err)
	}
}

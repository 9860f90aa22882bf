package dialer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
)

// script is the proxy's side of a connection.
type script = func(context.Context, *h2Frames)

// framed returns a dialer to a proxy that speaks HTTP/2 by script, over
// net.Pipe. It is for a synctest bubble. script n runs on connection n, the
// last one on all that follow.
func framed(t *testing.T, settings []http2.Setting, scripts ...script) (d *dialer.HTTPConnect, connections *atomic.Int32) {
	ca := pki.NewCA("proxy")
	serverConfig := &tls.Config{Certificates: []tls.Certificate{ca.Server("proxy")}}
	connections = new(atomic.Int32)
	shared := &dialer.HTTP2{}
	t.Cleanup(func() { shared.Close() })
	return &dialer.HTTPConnect{
		Addr:      "proxy:443",
		TLSConfig: &tls.Config{RootCAs: ca.Pool()},
		HTTP2:     shared,
		Forward: dialer.Func(func(context.Context, string, string) (net.Conn, error) {
			n := int(connections.Add(1))
			near, far := net.Pipe()
			go serveFrames(serverConfig, settings, scripts[min(n, len(scripts))-1])(t.Context(), far)
			return near, nil
		}),
	}, connections
}

// accept answers each request with a 200, and passes what comes next to
// handle, which may be nil.
func accept(handle func(f *h2Frames, got h2Frame)) script {
	return func(_ context.Context, f *h2Frames) {
		for got := range f.Received {
			if got.Type == http2.FrameHeaders {
				f.Answer(got.Stream, false, "200")
			}
			if handle != nil {
				handle(f, got)
			}
		}
	}
}

func mustDial(t *testing.T, d dialer.Dialer) net.Conn {
	t.Helper()
	conn, err := d.DialContext(t.Context(), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func mustRead(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

func TestHTTP2Request(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := make(chan map[string]string, 1)
		d, _ := framed(t, nil, accept(func(f *h2Frames, got h2Frame) {
			if got.Type == http2.FrameHeaders {
				requests <- got.Header
			}
		}))
		d.Header = func(_ context.Context, target string) (http.Header, error) {
			return http.Header{"X-Target": {target}}, nil
		}
		conn, err := d.DialContext(t.Context(), "tcp", "b\u00fccher.example:443")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		authority := "xn--bcher-kva.example:443"
		got := <-requests
		for name, want := range map[string]string{":method": "CONNECT", ":authority": authority, "x-target": authority} {
			if got[name] != want {
				t.Errorf("%s: got %q, want %q", name, got[name], want)
			}
		}
		if len(got) != 3 {
			t.Errorf("got %v, want no other field", got)
		}
	})
}

// What a proxy may answer, and what becomes of it.
func TestHTTP2Answers(t *testing.T) {
	large := strings.Repeat("x", 8<<10)
	for _, tt := range []struct {
		name   string
		answer func(f *h2Frames, stream uint32)
		early  string
		status int
		want   string // in the error
	}{
		{"204", func(f *h2Frames, s uint32) { f.Answer(s, false, "204"); f.Data(s, false, "SSH-2.0") }, "SSH-2.0", 0, ""},
		{"1xx first", func(f *h2Frames, s uint32) {
			f.Answer(s, false, "103", "link", "</x>")
			f.Answer(s, false, "100")
			f.Answer(s, false, "200")
		}, "", 0, ""},
		{"endless 1xx", func(f *h2Frames, s uint32) {
			for range 100 {
				f.Answer(s, false, "103", "link", large)
			}
		}, "", 0, "header list too large"},
		{"huge header", func(f *h2Frames, s uint32) {
			f.Answer(s, false, "200", "a", large, "b", large, "c", large, "d", large, "e", large, "f", large, "g", large, "h", large, "i", large)
		}, "", 0, "header list"},
		{"NUL in a header", func(f *h2Frames, s uint32) { f.Answer(s, false, "200", "a", "b\x00c") }, "", 0, "PROTOCOL_ERROR"},
		{"Content-Length", func(f *h2Frames, s uint32) { f.Answer(s, false, "200", "content-length", "5") }, "", 0, "Content-Length"},
		{"refused with a body", func(f *h2Frames, s uint32) {
			f.Answer(s, false, "403", "x-squid-error", "ERR_ACCESS_DENIED 0")
			f.Data(s, true, "denied")
		}, "denied", 403, "403 Forbidden (X-Squid-Error: ERR_ACCESS_DENIED 0)"},
		{"refused with a body that does not end", func(f *h2Frames, s uint32) {
			f.Answer(s, false, "502")
			f.Data(s, false, "no way")
		}, "no way", 502, "502 Bad Gateway"},
		{"refused with a large body", func(f *h2Frames, s uint32) {
			f.Answer(s, false, "502")
			f.Data(s, true, large)
		}, large[:4<<10], 502, "502"},
		{"refused without a body", func(f *h2Frames, s uint32) { f.Answer(s, true, "407") }, "", 407, "407"},
		{"status of two digits", func(f *h2Frames, s uint32) { f.Answer(s, false, "20") }, "", 0, "three digits"},
		{"status of four digits", func(f *h2Frames, s uint32) { f.Answer(s, false, "2000") }, "", 0, "three digits"},
		{"negative status", func(f *h2Frames, s uint32) { f.Answer(s, false, "-1") }, "", 0, "three digits"},
		{"signed status", func(f *h2Frames, s uint32) { f.Answer(s, false, "+20") }, "", 0, "three digits"},
		{"reset", func(f *h2Frames, s uint32) { f.Reset(s, http2.ErrCodeConnect) }, "", 0, "CONNECT_ERROR"},
		{"refused stream", func(f *h2Frames, s uint32) { f.Reset(s, http2.ErrCodeRefusedStream) }, "", 0, "REFUSED_STREAM"},
		{"data first", func(f *h2Frames, s uint32) { f.Data(s, false, "x") }, "", 0, "PROTOCOL_ERROR"},
		{"closed", func(f *h2Frames, s uint32) { f.GoAway(s, http2.ErrCodeInternal) }, "", 0, "GOAWAY"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := framed(t, nil, func(_ context.Context, f *h2Frames) {
					for got := range f.Received {
						if got.Type == http2.FrameHeaders {
							tt.answer(f, got.Stream)
						}
						if tt.name == "closed" {
							return
						}
					}
				})
				conn, err := d.DialContext(t.Context(), "tcp", target)
				if tt.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					mustRead(t, conn, tt.early)
					return
				}
				var e *dialer.Error
				if !errors.As(err, &e) || e.Status != tt.status || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want an *Error with %q", err, tt.want)
				}
				var refusal *dialer.Refusal
				if errors.As(err, &refusal) != (tt.status != 0) {
					t.Fatalf("got %v, want a Refusal: %t", err, tt.status != 0)
				}
				if refusal != nil && string(refusal.Body) != tt.early {
					t.Errorf("got body %q, want %q", refusal.Body, tt.early)
				}
			})
		})
	}
}

// A 407 is answered on a new stream of the same connection.
func TestHTTP2Authenticator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var streams []uint32
		d, connections := framed(t, nil, func(_ context.Context, f *h2Frames) {
			for got := range f.Received {
				if got.Type != http2.FrameHeaders {
					continue
				}
				streams = append(streams, got.Stream)
				if got.Header["proxy-authorization"] == "Rounds 2" {
					f.Answer(got.Stream, false, "200")
					continue
				}
				f.Answer(got.Stream, false, "407", "proxy-authenticate", "Rounds")
				f.Data(got.Stream, true, "body")
			}
		})
		auth := &rounds{}
		d.Auth = auth
		conn := mustDial(t, d)
		conn.Close()
		synctest.Wait()
		if connections.Load() != 1 || len(streams) != 3 || len(auth.challenges) != 3 || auth.challenges[2] != "Rounds" {
			t.Errorf("got %d connections, streams %v, challenges %q", connections.Load(), streams, auth.challenges)
		}
	})
}

// Either side may end its direction first, and the other one goes on.
func TestHTTP2HalfClose(t *testing.T) {
	t.Run("target first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			frames := make(chan h2Frame, 100)
			d, _ := framed(t, nil, accept(func(f *h2Frames, got h2Frame) {
				if got.Type == http2.FrameHeaders {
					f.Data(got.Stream, true, "bye")
				} else {
					frames <- got
				}
			}))
			conn := mustDial(t, d)
			defer conn.Close()
			if got, err := io.ReadAll(conn); string(got) != "bye" || err != nil {
				t.Fatalf("got %q, %v", got, err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Errorf("a deadline after the end: %v", err)
			}
			for range 3 {
				if _, err := io.WriteString(conn, "more"); err != nil {
					t.Fatal(err)
				}
				if got := <-frames; string(got.Data) != "more" || got.End {
					t.Fatalf("got %v", got)
				}
			}
			conn.(interface{ CloseWrite() error }).CloseWrite()
			if got := <-frames; got.Type != http2.FrameData || !got.End || len(got.Data) > 0 {
				t.Errorf("got %v, want END_STREAM", got)
			}
		})
	})
	t.Run("we first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, _ := framed(t, nil, accept(func(f *h2Frames, got h2Frame) {
				if got.End {
					f.Data(got.Stream, false, "late ")
					f.Data(got.Stream, true, "answer")
				}
			}))
			conn := mustDial(t, d)
			defer conn.Close()
			conn.(interface{ CloseWrite() error }).CloseWrite()
			if _, err := conn.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
				t.Errorf("write after CloseWrite: got %v, want EPIPE", err)
			}
			if got, err := io.ReadAll(conn); string(got) != "late answer" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	})
}

// A reset is an error, after what came before it, of this stream alone.
func TestHTTP2Reset(t *testing.T) {
	for _, code := range []http2.ErrCode{http2.ErrCodeNo, http2.ErrCodeCancel, http2.ErrCodeConnect} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := framed(t, nil, accept(func(f *h2Frames, got h2Frame) {
					switch string(got.Data) {
					case "break":
						f.Data(got.Stream, false, "last words")
						f.Reset(got.Stream, code)
					case "hello":
						f.Data(got.Stream, false, "hello")
					}
				}))
				broken, other := mustDial(t, d), mustDial(t, d)
				defer broken.Close()
				defer other.Close()
				io.WriteString(broken, "break")
				mustRead(t, broken, "last words")
				for range 2 {
					n, err := broken.Read(make([]byte, 10))
					var op *net.OpError
					if n != 0 || !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) || !errors.As(err, &op) {
						t.Errorf("got %d, %v; want ECONNRESET", n, err)
					}
				}
				if _, err := io.WriteString(broken, "x"); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("write: got %v, want ECONNRESET", err)
				}
				io.WriteString(other, "hello")
				mustRead(t, other, "hello")
			})
		})
	}
}

// Without a window a write waits, to its deadline and no longer; with one, it
// goes on where it was.
func TestHTTP2WindowStarvation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got strings.Builder
		d, _ := framed(t, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 100}}, accept(func(f *h2Frames, frame h2Frame) {
			if frame.Stream == 1 {
				got.Write(frame.Data)
			} else if len(frame.Data) > 0 {
				f.Window(1, 1<<20)
			}
		}))
		starved := mustDial(t, d)
		defer starved.Close()
		synctest.Wait() // for the settings
		sent := 0
		text := strings.Repeat("0123456789", 10_000)
		for range 2 {
			starved.SetWriteDeadline(time.Now().Add(time.Second))
			n, err := io.WriteString(starved, text[sent:])
			var timeout net.Error
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Fatalf("got %d, %v; want a timeout", n, err)
			}
			sent += n
		}
		synctest.Wait()
		if got.Len() != 100 {
			t.Errorf("the proxy got %d bytes, its window was 100", got.Len())
		}
		other := mustDial(t, d)
		defer other.Close()
		if _, err := io.WriteString(other, "open the window"); err != nil {
			t.Fatal(err)
		}
		starved.SetWriteDeadline(time.Time{})
		text = text[:50_000] // the connection's own window is 64 KiB
		if _, err := io.WriteString(starved, text[sent:]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got.String() != text {
			t.Errorf("the proxy got %d bytes, want %d", got.Len(), len(text))
		}
	})
}

// A proxy that is silent and does not answer a PING is dead.
func TestHTTP2DeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mute := func(f *h2Frames, got h2Frame) { f.Mute.Store(string(got.Data) == "hush") }
		d, connections := framed(t, nil, accept(mute))
		d.HTTP2.PingInterval, d.HTTP2.PingTimeout = 10*time.Second, 5*time.Second
		conn := mustDial(t, d)
		defer conn.Close()
		conn.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("idle for an hour: got %v, want the deadline", err)
		}
		conn.SetReadDeadline(time.Time{})
		io.WriteString(conn, "hush")
		began := time.Now()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v, want ECONNRESET", err)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("took %v, want at most 15s", took)
		}
		mustDial(t, d).Close()
		if got := connections.Load(); got != 2 {
			t.Errorf("got %d connections, want 2", got)
		}
	})
}

// Close sends what was written, ends the stream, and resets it only if the
// target has more to say or does not end in time.
func TestHTTP2StreamClose(t *testing.T) {
	for _, tt := range []struct {
		name  string
		then  func(f *h2Frames, stream uint32)
		reset bool
		after time.Duration
	}{
		{"the target ends", func(f *h2Frames, stream uint32) { f.Data(stream, true, "") }, false, 0},
		{"the target talks", func(f *h2Frames, stream uint32) { f.Data(stream, false, "more") }, true, 0},
		{"the target is silent", func(*h2Frames, uint32) {}, true, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []h2Frame
				d, _ := framed(t, nil, accept(func(f *h2Frames, frame h2Frame) {
					got = append(got, frame)
					if frame.End {
						tt.then(f, frame.Stream)
					}
				}))
				conn := mustDial(t, d)
				text := strings.Repeat("x", 40_000)
				began := time.Now()
				io.WriteString(conn, text)
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
				for name, err := range map[string]error{
					"Close":       conn.Close(),
					"Read":        second(conn.Read(make([]byte, 1))),
					"Write":       second(conn.Write([]byte("x"))),
					"CloseWrite":  conn.(interface{ CloseWrite() error }).CloseWrite(),
					"SetDeadline": conn.SetDeadline(time.Now()),
				} {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("%s of a closed stream: got %v, want net.ErrClosed", name, err)
					}
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("Close took %v", took)
				}
				time.Sleep(tt.after) // of the bubble's clock
				synctest.Wait()
				n := 0
				for _, frame := range got {
					n += len(frame.Data)
				}
				if last := got[len(got)-1]; n != len(text) || (last.Type == http2.FrameRSTStream) != tt.reset {
					t.Errorf("the proxy got %d bytes and last %v; want %d and a reset: %t", n, last, len(text), tt.reset)
				}
			})
		})
	}
}

func second(_ int, err error) error { return err }

// A stream whose other side broke off must not look whole to the proxy.
func TestHTTP2StreamReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []h2Frame
		d, _ := framed(t, nil, accept(func(_ *h2Frames, frame h2Frame) { got = append(got, frame) }))
		conn := mustDial(t, d)
		io.WriteString(conn, "half of it")
		resetter := conn.(interface{ Reset(uint32) error })
		if err := resetter.Reset(0); err != nil {
			t.Error(err)
		}
		if err := resetter.Reset(0); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the second time: got %v, want net.ErrClosed", err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read: got %v, want net.ErrClosed", err)
		}
		synctest.Wait()
		if last := got[len(got)-1]; last.Type != http2.FrameRSTStream {
			t.Errorf("got %v at last, want a reset", last)
		}
		for _, frame := range got {
			if frame.End {
				t.Errorf("got an end: %v", frame)
			}
		}
	})
}

// Close of the pool closes everything, also what nobody reads.
func TestHTTP2Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := framed(t, nil, accept(func(f *h2Frames, got h2Frame) {
			f.Data(got.Stream, false, "unread")
		}))
		conn, closed := mustDial(t, d), mustDial(t, d)
		closed.Close()
		synctest.Wait()
		d.HTTP2.Close()
		if _, err := io.Copy(io.Discard, conn); !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: got %v, want net.ErrClosed", err)
		}
		if _, err := conn.Write([]byte("x")); err == nil {
			t.Error("write: got no error")
		}
		if _, err := d.DialContext(t.Context(), "tcp", target); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial: got %v, want net.ErrClosed", err)
		}
		conn.Close()
		d.HTTP2.Close()
	})
}

// A connection without streams goes after a while.
func TestHTTP2Idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan time.Time, 1)
		d, _ := framed(t, nil, func(ctx context.Context, f *h2Frames) {
			accept(func(f *h2Frames, got h2Frame) {
				if got.End {
					f.Data(got.Stream, true, "")
				}
			})(ctx, f)
			gone <- time.Now()
		})
		mustDial(t, d).Close()
		began := time.Now()
		if took := (<-gone).Sub(began); took != 90*time.Second {
			t.Errorf("the connection was closed after %v, want 90s", took)
		}
	})
}

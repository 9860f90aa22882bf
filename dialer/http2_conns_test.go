package dialer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
)

// A connection that is lost resets its streams, and the next dial has a new
// one.
func TestHTTP2ConnectionLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, connections := framed(t, nil, func(_ context.Context, f *h2Frames) {
			f.Answer(f.Next().Stream, false, "200")
			f.Next()
		}, accept(nil))
		conn := mustDial(t, d)
		defer conn.Close()
		io.WriteString(conn, "close")
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v, want ECONNRESET", err)
		}
		mustDial(t, d).Close()
		if got := connections.Load(); got != 2 {
			t.Errorf("got %d connections, want 2", got)
		}
	})
}

// After a GOAWAY new dials have a new connection, and streams live on.
func TestHTTP2GoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, connections := framed(t, nil, accept(func(f *h2Frames, got h2Frame) {
			switch string(got.Data) {
			case "go away":
				f.GoAway(got.Stream, http2.ErrCodeNo)
			case "hello":
				f.Data(got.Stream, false, "hello")
			}
		}))
		first := mustDial(t, d)
		defer first.Close()
		io.WriteString(first, "go away")
		synctest.Wait()
		second := mustDial(t, d)
		defer second.Close()
		if got := connections.Load(); got != 2 {
			t.Errorf("got %d connections, want 2", got)
		}
		for _, conn := range []net.Conn{first, second} {
			io.WriteString(conn, "hello")
			mustRead(t, conn, "hello")
		}
	})
}

// A GOAWAY or a refused stream that crosses a request is no failure of the
// dial: the proxy has not looked at it.
func TestHTTP2Retry(t *testing.T) {
	for name, refuse := range map[string]func(f *h2Frames, stream uint32){
		"GOAWAY":         func(f *h2Frames, stream uint32) { f.GoAway(stream-2, http2.ErrCodeNo) },
		"closed":         func(f *h2Frames, stream uint32) {},
		"REFUSED_STREAM": func(f *h2Frames, stream uint32) { f.Reset(stream, http2.ErrCodeRefusedStream) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := 0
				d, _ := framed(t, nil, func(_ context.Context, f *h2Frames) {
					for got := range f.Received {
						if got.Type != http2.FrameHeaders {
							continue
						}
						if got.Stream == 3 {
							refused++
							refuse(f, got.Stream)
							if name == "closed" {
								return
							}
							continue
						}
						f.Answer(got.Stream, false, "200")
					}
				})
				first := mustDial(t, d)
				defer first.Close()
				mustDial(t, d).Close()
				if refused != 1 {
					t.Errorf("got %d refused requests, want 1", refused)
				}
			})
		})
	}
}

// A second connection is made only while the first has no stream left.
func TestHTTP2MaxConcurrentStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, connections := framed(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 2}}, accept(nil))
		for i, want := range []int32{1, 1, 2, 2, 3} {
			conn := mustDial(t, d)
			defer conn.Close()
			synctest.Wait()
			if got := connections.Load(); got != want {
				t.Errorf("dial %d: got %d connections, want %d", i, got, want)
			}
		}
	})
}

// So it is with dials at the same time, also those that come before the
// proxy has said how many streams it allows.
func TestHTTP2MaxConcurrentStreamsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var streams atomic.Int32
		d, connections := framed(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 2}}, accept(func(_ *h2Frames, got h2Frame) {
			if got.Type == http2.FrameHeaders {
				streams.Add(1)
			}
		}))
		dialAtOnce(t, d, 20)
		synctest.Wait()
		if connections.Load() != 10 || streams.Load() != 20 {
			t.Errorf("got %d connections with %d streams, want 10 with 20", connections.Load(), streams.Load())
		}
	})
}

// Dials that wait for the proxy's SETTINGS wait for all of them, and no longer
// than there is a connection.
func TestHTTP2Settings(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  string // what the proxy sends on the first connection
		failed int32
	}{
		{"in pieces", "\x00\x00\x06\x04\x00\x00\x00\x00\x00" + "\x00\x03\x00\x00\x00\x01", 0},
		{"not HTTP/2", "HTTP/1.1 400 Bad Request\r\n\r\n", 1},
		{"closed", "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := framed(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 2}}, accept(nil))
				through, ca := d.Forward, pki.NewCA("proxy")
				d.TLSConfig.InsecureSkipVerify = true
				serverConfig := &tls.Config{Certificates: []tls.Certificate{ca.Server("proxy")}, NextProtos: []string{"h2"}}
				var made atomic.Int32
				d.Forward = dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
					if made.Add(1) > 1 {
						return through.DialContext(ctx, network, address)
					}
					near, far := net.Pipe()
					go slowSettings(tls.Server(far, serverConfig), tt.first)
					return near, nil
				})
				began := time.Now()
				var failed atomic.Int32
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						conn, err := d.DialContext(t.Context(), "tcp", target)
						if err != nil {
							failed.Add(1)
							return
						}
						t.Cleanup(func() { conn.Close() })
					})
				}
				wg.Wait()
				if took := time.Since(began); took > time.Second {
					t.Errorf("took %v", took)
				}
				time.Sleep(time.Second) // for the first connection's proxy to notice
				if failed.Load() != tt.failed || made.Load() != 3 {
					t.Errorf("got %d failed dials and %d connections, want %d and 3", failed.Load(), made.Load(), tt.failed)
				}
			})
		})
	}
}

// slowSettings is a proxy that takes its time to say first, and then answers
// each request with a 200. It is for a synctest bubble, whose clock it sleeps
// by.
func slowSettings(tc *tls.Conn, first string) {
	defer tc.NetConn().Close()
	if _, err := io.ReadFull(tc, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	time.Sleep(time.Millisecond) // the dials are under way
	if first == "" {
		return
	}
	for i := range first {
		time.Sleep(time.Millisecond)
		if _, err := tc.Write([]byte{first[i]}); err != nil {
			return
		}
	}
	fr := http2.NewFramer(tc, tc)
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return
		}
		if frame.Header().Type == http2.FrameHeaders {
			go fr.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.Header().StreamID, BlockFragment: []byte{0x88}, EndHeaders: true}) // 200
		}
	}
}

// A proxy that hangs is bounded by the context, which harms no other stream.
func TestHTTP2Context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resets := make(chan h2Frame, 10)
		d, connections := framed(t, nil, func(_ context.Context, f *h2Frames) {
			for got := range f.Received {
				switch {
				case got.Type == http2.FrameHeaders && got.Stream == 1:
					f.Answer(got.Stream, false, "200")
				case got.Type == http2.FrameRSTStream:
					resets <- got
				case got.Type == http2.FrameData:
					f.Data(got.Stream, false, string(got.Data))
				}
			}
		})
		first := mustDial(t, d)
		defer first.Close()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := d.DialContext(ctx, "tcp", target); !errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if got := <-resets; got.Stream != 3 || got.Code != http2.ErrCodeCancel {
			t.Errorf("got %v, want a reset of stream 3", got)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		checkTimeout(t, d, ctx)
		io.WriteString(first, "still here")
		mustRead(t, first, "still here")
		if got := connections.Load(); got != 1 {
			t.Errorf("got %d connections, want 1", got)
		}
	})
}

// Who gives up waits for nobody, and spoils nobody's dial.
func TestHTTP2LeaderGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, connections := framed(t, nil, accept(nil))
		through := d.Forward
		block := make(chan struct{})
		d.Forward = dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
			select {
			case <-block:
				return through.DialContext(ctx, network, address)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		dial := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() {
				conn, err := d.DialContext(ctx, "tcp", target)
				if err == nil {
					conn.Close()
				}
				done <- err
			}()
			synctest.Wait()
			return done
		}
		ctx, cancel := context.WithCancel(t.Context())
		leader, waiting := dial(ctx), dial(ctx)
		follower := dial(t.Context())
		cancel()
		for _, done := range []<-chan error{leader, waiting} {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
		}
		synctest.Wait()
		close(block)
		if err := <-follower; err != nil {
			t.Error(err)
		}
		if got := connections.Load(); got != 1 {
			t.Errorf("got %d connections, want 1", got)
		}
	})
}

// Dials that wait for the same connection share its failure.
func TestHTTP2SharedFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := make(chan struct{})
		made := 0
		d := &dialer.HTTPConnect{Addr: "proxy:443", TLSConfig: &tls.Config{}, HTTP2: &dialer.HTTP2{}}
		d.Forward = dialer.Func(func(context.Context, string, string) (net.Conn, error) {
			made++
			<-fail
			return nil, syscall.ECONNREFUSED
		})
		errs := make(chan error, 2)
		for _, address := range []string{"a:1", "b:2"} {
			go func() {
				_, err := d.DialContext(t.Context(), "tcp", address)
				var e *dialer.Error
				if !errors.As(err, &e) || e.Addr != address || e.Phase != dialer.PhaseTCP || !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("got %v, want the tcp phase of %s", err, address)
				}
				errs <- err
			}()
		}
		synctest.Wait()
		close(fail)
		<-errs
		<-errs
		if made != 1 {
			t.Errorf("got %d dials of the proxy, want 1", made)
		}
	})
}

// dialAtOnce has n connections, until the test ends.
func dialAtOnce(t *testing.T, d dialer.Dialer, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			conn, err := d.DialContext(t.Context(), "tcp", target)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { conn.Close() })
		})
	}
	wg.Wait()
}

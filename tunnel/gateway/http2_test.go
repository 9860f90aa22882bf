package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// h2wire speaks HTTP/2 by the frame.
type h2wire struct {
	*http2.Framer
	t    testing.TB
	conn net.Conn
}

func newH2Wire(b *bed) *h2wire {
	w := &h2wire{t: b.t, conn: b.wire()}
	write(b.t, w.conn, []byte(http2.ClientPreface))
	w.Framer = http2.NewFramer(w.conn, w.conn)
	w.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.WriteSettings()
	return w
}

func (w *h2wire) headers(id uint32, fields ...string) {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.Bytes(), EndHeaders: true})
}

// next returns the next frame of a kind.
func next[T http2.Frame](w *h2wire) T {
	w.t.Helper()
	for {
		f, err := w.ReadFrame()
		if err != nil {
			w.t.Fatal(err)
		}
		if f, ok := f.(T); ok {
			return f
		}
	}
}

func newH2Bed(t *testing.T, change func(*gateway.Gateway)) *bed {
	return newBed(t, door{serve: (*gateway.Gateway).ServeConnect}, func(g *gateway.Gateway) {
		g.Authenticate, g.Route = gateway.Anyone, nil
		if change != nil {
			change(g)
		}
	})
}

func TestHTTP2Refuses(t *testing.T) {
	w := newH2Wire(newH2Bed(t, nil))
	for i, tt := range []struct {
		want   string
		fields []string
	}{
		{"405", []string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a"}},
		{"501", []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/", ":authority", "a:1"}},
		{"400", []string{":method", "CONNECT", ":authority", "a"}},
		{"400", []string{":method", "CONNECT", ":authority", "a:1", "proxy-authorization", "basic !"}},
	} {
		id := uint32(2*i + 1)
		w.headers(id, tt.fields...)
		f := next[*http2.MetaHeadersFrame](w)
		if got := f.PseudoValue("status"); f.StreamID != id || got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.fields[1], got, tt.want)
		}
		if data := next[*http2.DataFrame](w); !data.StreamEnded() || len(data.Data()) == 0 {
			t.Errorf("%q: got %v, want a text and the end", tt.fields[1], data)
		}
		if rst := next[*http2.RSTStreamFrame](w); rst.ErrCode != http2.ErrCodeNo {
			t.Errorf("%q: got %v", tt.fields[1], rst)
		}
	}
}

// A header that is too large in sum, in pieces that are not.
func TestHTTP2MaxHeader(t *testing.T) {
	w := newH2Wire(newH2Bed(t, func(g *gateway.Gateway) { g.MaxHeader = 1000 }))
	w.headers(1, ":method", "CONNECT", ":authority", "a:1", "x", strings.Repeat("x", 600), "y", strings.Repeat("y", 600))
	if got := next[*http2.MetaHeadersFrame](w).PseudoValue("status"); got != "431" {
		t.Errorf("got %s, want 431", got)
	}
}

// What breaks the rules ends the stream, or the connection.
func TestHTTP2Faults(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*h2wire)
		code http2.ErrCode // of the stream
		all  http2.ErrCode // of the connection, if not zero
	}{
		{"trailers", func(w *h2wire) { w.headers(1, "a", "b") }, http2.ErrCodeProtocol, 0},
		{"data after the end", func(w *h2wire) { w.WriteData(1, true, nil); w.WriteData(1, false, []byte("x")) }, http2.ErrCodeStreamClosed, 0},
		{"window", func(w *h2wire) { w.WriteWindowUpdate(1, 1<<31-1) }, http2.ErrCodeFlowControl, 0},
		{"connection's window", func(w *h2wire) { w.WriteWindowUpdate(0, 1<<31-1) }, 0, http2.ErrCodeFlowControl},
		{"even", func(w *h2wire) { w.headers(2, ":method", "CONNECT") }, 0, http2.ErrCodeProtocol},
		{"idle", func(w *h2wire) { w.WriteData(7, false, nil) }, 0, http2.ErrCodeProtocol},
		{"windows that a setting makes too large", func(w *h2wire) {
			w.WriteWindowUpdate(1, 1<<30)
			w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<30 - 1})
			w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		}, 0, http2.ErrCodeFlowControl},
		{"settings without end", func(w *h2wire) {
			for range 101 {
				w.WriteSettings()
			}
		}, 0, http2.ErrCodeEnhanceYourCalm},
		{"push", func(w *h2wire) {
			w.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}, 0, http2.ErrCodeProtocol},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newH2Bed(t, nil)
			w := newH2Wire(b)
			w.headers(1, ":method", "CONNECT", ":authority", "a:1")
			if got := next[*http2.MetaHeadersFrame](w).PseudoValue("status"); got != "200" {
				t.Fatalf("got %s", got)
			}
			target := <-b.targets
			defer target.Close()
			target.SetDeadline(time.Now().Add(10 * time.Second))
			tt.do(w)
			if tt.all != 0 {
				if f := next[*http2.GoAwayFrame](w); f.ErrCode != tt.all {
					t.Errorf("got %v, want %v", f, tt.all)
				}
			} else if f := next[*http2.RSTStreamFrame](w); f.ErrCode != tt.code {
				t.Errorf("got %v, want %v", f, tt.code)
			}
			if _, err := io.Copy(io.Discard, target); !errors.Is(err, syscall.ECONNRESET) && tt.name != "data after the end" {
				t.Errorf("the target sees %v, want a reset", err)
			}
		})
	}
}

// A client may send so much and no more before it is let in, and more than
// that to no target that doesn't read.
func TestHTTP2Window(t *testing.T) {
	release := make(chan struct{})
	b := newH2Bed(t, func(g *gateway.Gateway) {
		g.Dial = func(ctx context.Context, _ gateway.Request) (net.Conn, error) {
			<-ctx.Done()
			close(release)
			return nil, ctx.Err()
		}
	})
	w := newH2Wire(b)
	w.WriteSettingsAck()
	w.headers(1, ":method", "CONNECT", ":authority", "a:1")
	w.WriteData(1, false, make([]byte, 16<<10))
	w.WritePing(false, [8]byte{1})
	if f := next[*http2.PingFrame](w); !f.IsAck() {
		t.Errorf("got %v", f)
	}
	w.WriteData(1, false, []byte{1})
	if f := next[*http2.RSTStreamFrame](w); f.ErrCode != http2.ErrCodeFlowControl {
		t.Errorf("got %v", f)
	}
	<-release // the stream's end has ended Dial
}

// TestHTTP2SharedWindow: streams that wait for the connection's window, and for their own, get
// it in turn, however little it opens at a time.
func TestHTTP2SharedWindow(t *testing.T) {
	const streams, each = 20, 10_000 // more than the window of 64 KiB
	b := newH2Bed(t, nil)
	w := newH2Wire(b)
	initial := func(n uint32) { w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n}) }
	initial(100)
	left := map[uint32]int{}
	for i := range uint32(streams) {
		w.headers(2*i+1, ":method", "CONNECT", ":authority", "a:1")
		left[2*i+1] = each
		target := <-b.targets
		go func() {
			target.Write(make([]byte, each))
			target.Close()
		}()
	}
	initial(0)
	initial(each)
	for len(left) > 0 {
		f := next[*http2.DataFrame](w)
		if left[f.StreamID] -= len(f.Data()); left[f.StreamID] == 0 {
			delete(left, f.StreamID)
		}
		w.WriteWindowUpdate(0, uint32(max(1, len(f.Data())/2)))
		w.WriteWindowUpdate(0, uint32(max(1, len(f.Data())/2)))
	}
}

// TestHTTP2RefusedByLimit: a connection all of whose streams limits refuse keeps no place.
func TestHTTP2RefusedByLimit(t *testing.T) {
	for name, ask := range map[string]func(w *h2wire) (streams int){
		"one": func(w *h2wire) int { return connectOne(w, 1, "a:1") },
		"several, one after the other": func(w *h2wire) (n int) {
			for n < 20 {
				n += connectOne(w, uint32(2*n+1), "a:1")
				next[*http2.MetaHeadersFrame](w)
			}
			return 0
		},
		"several at once": func(w *h2wire) (n int) {
			for n < 20 {
				n += connectOne(w, uint32(2*n+1), "a:1")
			}
			return n
		},
		"one with data": func(w *h2wire) int {
			defer w.WriteData(1, true, []byte("x"))
			return connectOne(w, 1, "a:1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newH2Bed(t, func(g *gateway.Gateway) {
				g.HandshakeTimeout = time.Second
				g.Dial = func(context.Context, gateway.Request) (net.Conn, error) { return nil, limited{errors.New("too many")} }
			})
			w := newH2Wire(b)
			w.conn.SetReadDeadline(time.Now().Add(time.Minute))
			for range ask(w) {
				if got := next[*http2.MetaHeadersFrame](w).PseudoValue("status"); got != "429" {
					t.Fatalf("got %s, want 429", got)
				}
			}
			if f := next[*http2.GoAwayFrame](w); f.ErrCode != http2.ErrCodeNo {
				t.Errorf("got %v, want GOAWAY", f)
			}
			if _, err := io.Copy(io.Discard, w.conn); err != nil {
				t.Errorf("got %v, want the end of the connection", err)
			}
		})
	}
}

// connectOne asks for one stream.
func connectOne(w *h2wire, id uint32, address string) int {
	w.headers(id, ":method", "CONNECT", ":authority", address)
	return 1
}

// BenchmarkHTTP2Settings: one operation is a frame of 2,700 settings, beside streams whose
// windows are closed. A client may send a hundred: run it with -benchtime=90x.
func BenchmarkHTTP2Settings(b *testing.B) {
	for _, streams := range []int{1, 990} {
		b.Run(fmt.Sprint(streams), func(b *testing.B) {
			bed := newBed(b, door{serve: (*gateway.Gateway).ServeConnect}, func(g *gateway.Gateway) {
				g.Authenticate, g.Route = gateway.Anyone, nil
			})
			w := newH2Wire(bed)
			for i := range uint32(streams) {
				w.headers(2*i+1, ":method", "CONNECT", ":authority", "a:1")
				<-bed.targets
				<-bed.dialed
			}
			var list []http2.Setting
			for i := range uint32(2700) {
				list = append(list, http2.Setting{ID: http2.SettingInitialWindowSize, Val: i})
			}
			for b.Loop() {
				w.WriteSettings(list...)
				for f := next[*http2.SettingsFrame](w); !f.IsAck(); f = next[*http2.SettingsFrame](w) {
				}
			}
		})
	}
}

// Shutdown announces itself, looks at no more streams and waits for those that
// are open.
func TestHTTP2Drain(t *testing.T) {
	b := newH2Bed(t, nil)
	w := newH2Wire(b)
	w.headers(1, ":method", "CONNECT", ":authority", "a:1")
	next[*http2.MetaHeadersFrame](w)
	b.cancel()
	if f := next[*http2.GoAwayFrame](w); f.LastStreamID != 1 || f.ErrCode != http2.ErrCodeNo {
		t.Errorf("got %v", f)
	}
	w.headers(3, ":method", "CONNECT", ":authority", "a:1")
	if f := next[*http2.RSTStreamFrame](w); f.StreamID != 3 || f.ErrCode != http2.ErrCodeRefusedStream {
		t.Errorf("got %v", f)
	}
	target := <-b.targets
	write(t, target, []byte("rest"))
	target.Close()
	if f := next[*http2.DataFrame](w); string(f.Data()) != "rest" {
		t.Errorf("got %v", f)
	}
	if f := next[*http2.DataFrame](w); !f.StreamEnded() {
		t.Errorf("got %v", f)
	}
	w.WriteData(1, true, nil)
	next[*http2.GoAwayFrame](w)
	expectEnd(t, w.conn)
	w.conn.Close()
	b.wait()
}

// What is cut looks so, also to a client that was told of the end by GOAWAY.
func TestHTTP2Cut(t *testing.T) {
	for name, cut := range map[string]func(*bed){
		"Close":           func(b *bed) { b.g.Close() },
		"the grace's end": func(b *bed) { b.cancel(); b.wait() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newH2Bed(t, func(g *gateway.Gateway) { g.Grace = 50 * time.Millisecond })
			w := newH2Wire(b)
			for id := uint32(1); id <= 5; id += 2 {
				w.headers(id, ":method", "CONNECT", ":authority", "a:1")
				next[*http2.MetaHeadersFrame](w)
				target := <-b.targets
				defer target.Close()
			}
			cut(b)
			for range 3 {
				if f := next[*http2.RSTStreamFrame](w); f.ErrCode != http2.ErrCodeConnect {
					t.Errorf("got %v", f)
				}
			}
		})
	}
}

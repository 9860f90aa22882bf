package dialer_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"go/version"
	"io"
	"log"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
)

// An idle tunnel holds little, whatever frames the proxy allows.
func TestHTTP2IdleMemory(t *testing.T) {
	const tunnels, most = 200, 64 << 10
	ca := pki.NewCA("proxy")
	settings := []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: 1<<24 - 1}, {ID: http2.SettingMaxConcurrentStreams, Val: 1000}}
	addr := serve(t, listen(t), serveFrames(&tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}}, settings,
		accept(func(f *h2Frames, got h2Frame) {
			if len(got.Data) > 0 {
				f.Data(got.Stream, false, string(got.Data))
			}
		})))
	shared := &dialer.HTTP2{}
	defer shared.Close()
	d := &dialer.HTTPConnect{Addr: addr, TLSConfig: &tls.Config{RootCAs: ca.Pool()}, HTTP2: shared}
	use := func() {
		conn := mustDial(t, d)
		t.Cleanup(func() { conn.Close() })
		io.WriteString(conn, "hello") // after which it is idle
		mustRead(t, conn, "hello")
	}
	use()
	before := inUse()
	for range tunnels {
		use()
	}
	if got := (inUse() - before) / tunnels; got > most {
		t.Errorf("got %d bytes in use for an idle tunnel, want at most %d", got, most)
	} else {
		t.Logf("%d bytes for an idle tunnel, both sides of it", got)
	}
}

// inUse is what the heap and the stacks hold.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// captureLog takes what is written to the standard logger.
func captureLog(t *testing.T) *lockedBuffer {
	logged, before := &lockedBuffer{}, log.Writer()
	log.SetOutput(logged)
	t.Cleanup(func() { log.SetOutput(before) })
	return logged
}

func (b *lockedBuffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(strings.Lines(b.buf.String()))
}

// A proxy that floods its client with what nobody asked for makes it log
// nothing, and does not harm other streams.
func TestHTTP2Flood(t *testing.T) {
	const frames = 5000
	flood := func(one func(p *rawHTTP2, stream uint32)) func(*rawHTTP2, uint32) {
		return func(p *rawHTTP2, stream uint32) {
			for range frames {
				one(p, stream)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		play   func(p *rawHTTP2, stream uint32) // after the answer to stream 1
		broken bool                             // the connection ends
	}{
		{"unknown", flood(func(p *rawHTTP2, s uint32) { p.WriteRawFrame(0xfa, 0xff, s, []byte("unknown")) }), false},
		{"PRIORITY", flood(func(p *rawHTTP2, s uint32) { p.WritePriority(s, http2.PriorityParam{Weight: 1}) }), false},
		{"DATA of no stream", flood(func(p *rawHTTP2, s uint32) { p.WriteData(s+100, false, nil) }), true},
		{"DATA of an even stream", flood(func(p *rawHTTP2, s uint32) { p.WriteData(s+1, false, nil) }), true},
		{"DATA after an answer of no stream", func(p *rawHTTP2, s uint32) {
			p.status(s+100, field200, true)
			flood(func(p *rawHTTP2, s uint32) { p.WriteData(s+100, false, nil) })(p, s)
		}, true},
		{"DATA before an answer", func(p *rawHTTP2, s uint32) {
			flood(func(p *rawHTTP2, s uint32) { p.WriteData(s+2, false, nil) })(p, s)
		}, false},
		{"DATA after a 100", func(p *rawHTTP2, s uint32) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: s + 2, BlockFragment: []byte{0x08, 3, '1', '0', '0'}, EndHeaders: true})
			flood(func(p *rawHTTP2, s uint32) { p.WriteData(s+2, false, nil) })(p, s)
		}, false},
		{"DATA after a +103", func(p *rawHTTP2, s uint32) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: s + 2, BlockFragment: []byte{0x08, 4, '+', '1', '0', '3'}, EndHeaders: true})
			flood(func(p *rawHTTP2, s uint32) { p.WriteData(s+2, false, nil) })(p, s)
		}, false},
		{"DATA after the end", func(p *rawHTTP2, s uint32) {
			p.status(s+2, field200, true)
			p.WriteData(s+2, true, nil)
			flood(func(p *rawHTTP2, s uint32) { p.WriteData(s+2, false, nil) })(p, s)
		}, false},
		{"DATA after a reset", func(p *rawHTTP2, s uint32) {
			p.WriteRSTStream(s+2, http2.ErrCodeInternal)
			flood(func(p *rawHTTP2, s uint32) { p.WriteData(s+2, false, nil) })(p, s)
		}, false},
		{"unknown in a header block", func(p *rawHTTP2, s uint32) {
			p.status(s+2, field200, false)
			flood(func(p *rawHTTP2, s uint32) { p.WriteRawFrame(0xfa, 0, s, nil) })(p, s)
		}, true},
		{"no frames at all", flood(func(p *rawHTTP2, _ uint32) { io.WriteString(p.conn, "HTTP/1.1 400 Bad Request\r\n\r\n") }), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			logged := captureLog(t)
			d := rawProxy(t, "h2", func(p *rawHTTP2) { playFlood(p, tt.play) })
			conn := mustDial(t, d)
			defer conn.Close()
			if second, err := d.DialContext(testContext(t), "tcp", target); err == nil {
				defer second.Close()
			}
			if !tt.broken {
				io.WriteString(conn, "still here")
				mustRead(t, conn, "still here")
			}
			if got := logged.lines(); len(got) > 0 {
				t.Errorf("got %d lines, want none; the last: %s", len(got), got[len(got)-1])
			}
		})
	}
}

// playFlood answers the first request, plays what comes then when a second one
// has come, and echoes what is written to the first stream.
func playFlood(p *rawHTTP2, play func(p *rawHTTP2, stream uint32)) {
	p.start()
	first := p.request()
	p.status(first, field200, true)
	requests := make(chan uint32, 10)
	echoed := make(chan []byte, 10)
	go func() {
		defer close(echoed)
		defer close(requests)
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.HeadersFrame:
				requests <- f.StreamID
			case *http2.DataFrame:
				if f.StreamID == first && len(f.Data()) > 0 {
					echoed <- bytes.Clone(f.Data())
				}
			}
		}
	}()
	second := <-requests
	play(p, first)
	p.status(second, field200, true)
	for data := range echoed {
		p.WriteData(first, false, data)
	}
}

// So it is with a proxy that does not begin with SETTINGS, to which dials fail.
func TestHTTP2NoSettings(t *testing.T) {
	for name, play := range map[string]func(p *rawHTTP2){
		"HEADERS": func(p *rawHTTP2) { p.status(1, field200, true) },
		"DATA":    func(p *rawHTTP2) { p.WriteData(1, false, nil) },
		"PING":    func(p *rawHTTP2) { p.WritePing(false, [8]byte{}) },
	} {
		t.Run(name, func(t *testing.T) {
			logged := captureLog(t)
			d := rawProxy(t, "h2", func(p *rawHTTP2) {
				play(p)
				io.Copy(io.Discard, p.conn)
			})
			_, err := d.DialContext(testContext(t), "tcp", target)
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != dialer.PhaseConnect || e.Timeout() {
				t.Errorf("got %v, want an *Error of the connect phase", err)
			}
			if got := logged.lines(); len(got) > 0 {
				t.Errorf("got %q, want no line", got)
			}
		})
	}
}

// The only stream that a proxy allows is the one that carried its challenge.
func TestHTTP2ChallengeOneStream(t *testing.T) {
	for _, end := range []bool{false, true} {
		t.Run(fmt.Sprintf("the answer ends: %t", end), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				settings := []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}
				d, connections := framed(t, settings, func(_ context.Context, f *h2Frames) {
					open := uint32(0)
					for got := range f.Received {
						switch {
						case got.Type == http2.FrameRSTStream && got.Stream == open:
							open = 0
						case got.Type != http2.FrameHeaders:
						case open != 0:
							f.Reset(got.Stream, http2.ErrCodeProtocol) // one too many
						case got.Header["proxy-authorization"] == "":
							open = got.Stream
							f.Answer(got.Stream, end, "407", "proxy-authenticate", "Basic realm=\"x\"")
						default:
							open = got.Stream
							f.Answer(got.Stream, false, "200")
						}
					}
				})
				d.Auth = &onDemand{}
				dialAtOnce(t, d, 10)
				if got := connections.Load(); got != 10 {
					t.Errorf("got %d connections, want 10", got)
				}
			})
		})
	}
}

// onDemand sends its credentials when it was asked for them.
type onDemand struct{}

func (*onDemand) Authenticate(_ context.Context, c *dialer.Challenge) (string, error) {
	if c.Header == nil {
		return "", nil
	}
	return "Basic dTpw", nil
}

// Close resets the stream soon if the proxy has all of it and says nothing, as
// nghttpx does, and takes its time otherwise.
func TestHTTP2CloseSoon(t *testing.T) {
	for _, tt := range []struct {
		name    string
		written int
		credit  uint32
		mute    bool
		slow    time.Duration // the dial
		want    time.Duration
		blocked bool // the proxy gives no window at all
	}{
		{"the proxy has it", 1000, 0, false, 0, 50 * time.Millisecond, false},
		{"the target is far", 1000, 0, false, time.Second, 2 * time.Second, false},
		{"no answer to PING", 1000, 0, true, 0, 5 * time.Second, false},
		{"the target does not read", 40_000, 0, false, 0, 5 * time.Second, false},
		{"the target has read", 40_000, 20_000, false, 0, 50 * time.Millisecond, false},
		{"the proxy takes nothing", 1000, 0, false, 0, 5 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var began time.Time
				reset := make(chan time.Duration, 1)
				got, want := 0, tt.written
				var settings []http2.Setting
				if tt.blocked {
					want, settings = 0, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}
				}
				d, _ := framed(t, settings, func(_ context.Context, f *h2Frames) {
					for frame := range f.Received {
						got += len(frame.Data)
						switch {
						case frame.Type == http2.FrameHeaders:
							f.Mute.Store(tt.mute)
							time.Sleep(tt.slow) // of the bubble's clock
							f.Answer(frame.Stream, false, "200")
						case frame.End && tt.credit > 0:
							f.Window(frame.Stream, tt.credit)
						case frame.Type == http2.FrameRSTStream:
							reset <- time.Since(began)
						}
					}
				})
				conn := mustDial(t, d)
				if _, err := conn.Write(make([]byte, tt.written)); err != nil {
					t.Fatal(err)
				}
				began = time.Now()
				conn.Close()
				if took := <-reset; took != tt.want || got != want {
					t.Errorf("the reset came after %v and %d bytes, want %v and %d", took, got, tt.want, want)
				}
			})
		})
	}
}

// A window beyond 2^31-1 ends the connection: dials, and Close, go on.
func TestHTTP2WindowOverflow(t *testing.T) {
	if version.Compare(runtime.Version(), "go1.26.9") < 0 {
		t.Skipf("net/http of %s hangs there; the doc of HTTP2 says so", runtime.Version())
	}
	const most = 1<<31 - 1
	overflows := map[string]func(*h2Frames, uint32){
		"by WINDOW_UPDATE": func(f *h2Frames, stream uint32) { f.Window(stream, most) },
		"by WINDOW_UPDATE after its end": func(f *h2Frames, stream uint32) {
			f.Data(stream, true, "")
			f.Window(stream, most)
		},
	}
	for name, overflow := range overflows {
		t.Run(name, func(t *testing.T) {
			d, _ := framed(t, nil, accept(func(f *h2Frames, got h2Frame) {
				if got.Type == http2.FrameHeaders {
					overflow(f, got.Stream)
				}
			}))
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 3 {
					if conn, err := d.DialContext(t.Context(), "tcp", target); err == nil {
						conn.Read(make([]byte, 1))
						conn.Close()
					}
				}
				d.HTTP2.Close()
			}()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Fatal("a dial, a Read or Close hangs")
			}
		})
	}
}

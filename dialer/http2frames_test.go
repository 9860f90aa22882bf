package dialer_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2Frame is what a client of [h2Frames] sent: HEADERS, DATA or RST_STREAM.
type h2Frame struct {
	Type   http2.FrameType
	Stream uint32
	End    bool // END_STREAM
	Header map[string]string
	Data   []byte
	Code   http2.ErrCode
}

func (f h2Frame) String() string {
	return fmt.Sprintf("%v %d end=%t %q %v", f.Type, f.Stream, f.End, f.Data, f.Code)
}

// h2Frames is the proxy's side of an HTTP/2 connection, for a script: it sends
// what it is told to. SETTINGS and PING are answered by themselves.
type h2Frames struct {
	// Mute stops the answers to PING.
	Mute atomic.Bool
	// Received has the client's frames. It is closed when the connection is.
	Received chan h2Frame

	fr *http2.Framer

	mu    sync.Mutex  // guards the fields below
	queue chan func() // what is to be written, by one goroutine
	done  bool

	// Of that goroutine.
	buf bytes.Buffer
	enc *hpack.Encoder
}

// serveFrames returns a function for [Serve] that runs script on each connection
// that speaks HTTP/2 over TLS. settings are the proxy's. When script returns,
// the connection is closed.
func serveFrames(cfg *tls.Config, settings []http2.Setting, script func(ctx context.Context, f *h2Frames)) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		cfg := cfg.Clone()
		cfg.NextProtos = []string{http2.NextProtoTLS}
		tc := tls.Server(conn, cfg)
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(tc, preface); err != nil || string(preface) != http2.ClientPreface {
			conn.Close()
			return
		}
		f := &h2Frames{Received: make(chan h2Frame, 10_000), queue: make(chan func(), 10_000), fr: http2.NewFramer(tc, tc)}
		f.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		f.enc = hpack.NewEncoder(&f.buf)
		f.write(func() { f.fr.WriteSettings(settings...) })
		var reading, writing sync.WaitGroup
		reading.Go(f.read)
		writing.Go(func() {
			for write := range f.queue {
				write()
			}
		})
		script(ctx, f)
		f.mu.Lock()
		f.done = true
		close(f.queue)
		f.mu.Unlock()
		writing.Wait()
		conn.Close()
		reading.Wait()
	}
}

// read takes the client's frames as fast as they come: a script that only
// writes must not stop it.
func (f *h2Frames) read() {
	defer close(f.Received)
	for {
		frame, err := f.fr.ReadFrame()
		if err != nil {
			return
		}
		got := h2Frame{Type: frame.Header().Type, Stream: frame.Header().StreamID}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.write(func() { f.fr.WriteSettingsAck() })
			}
			continue
		case *http2.PingFrame:
			if !frame.IsAck() && !f.Mute.Load() {
				data := frame.Data
				f.write(func() { f.fr.WritePing(true, data) })
			}
			continue
		case *http2.MetaHeadersFrame:
			got.Header, got.End = map[string]string{}, frame.StreamEnded()
			for _, field := range frame.Fields {
				got.Header[field.Name] = field.Value
			}
		case *http2.DataFrame:
			got.Data, got.End = bytes.Clone(frame.Data()), frame.StreamEnded()
		case *http2.RSTStreamFrame:
			got.Code = frame.ErrCode
		default:
			continue
		}
		f.Received <- got
	}
}

// Next is the next frame, and the zero h2Frame once the connection is closed.
func (f *h2Frames) Next() h2Frame { return <-f.Received }

// write has one of the Framer's methods run, after those before it: to wait
// for it could stop the reader. Errors are dropped, a script learns from what
// it receives that its client is gone.
func (f *h2Frames) write(frame func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.done {
		f.queue <- frame
	}
}

// Answer sends HEADERS: a status and pairs of names and values.
func (f *h2Frames) Answer(stream uint32, end bool, status string, header ...string) {
	f.write(func() {
		f.buf.Reset()
		f.enc.WriteField(hpack.HeaderField{Name: ":status", Value: status})
		for i := 0; i+1 < len(header); i += 2 {
			f.enc.WriteField(hpack.HeaderField{Name: header[i], Value: header[i+1]})
		}
		const most = 16 << 10
		block := f.buf.Next(most)
		f.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: end, EndHeaders: f.buf.Len() == 0})
		for f.buf.Len() > 0 {
			block = f.buf.Next(most)
			f.fr.WriteContinuation(stream, f.buf.Len() == 0, block)
		}
	})
}

// Data sends DATA.
func (f *h2Frames) Data(stream uint32, end bool, data string) {
	f.write(func() { f.fr.WriteData(stream, end, []byte(data)) })
}

// Reset sends RST_STREAM.
func (f *h2Frames) Reset(stream uint32, code http2.ErrCode) {
	f.write(func() { f.fr.WriteRSTStream(stream, code) })
}

// GoAway sends GOAWAY: streams up to last are still served.
func (f *h2Frames) GoAway(last uint32, code http2.ErrCode) {
	f.write(func() { f.fr.WriteGoAway(last, code, nil) })
}

// Window sends WINDOW_UPDATE, for the connection if stream is zero.
func (f *h2Frames) Window(stream, n uint32) {
	f.write(func() { f.fr.WriteWindowUpdate(stream, n) })
}

package relay_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/causewayproject/causeway/internal/relay"
)

// scripted is a source whose reads bring so many bytes each, and which notes
// the sizes of the buffers that it was given.
type scripted struct {
	net.Conn
	reads  []int
	given  []int
	asked  int
	finish error
}

func (s *scripted) Read(p []byte) (int, error) {
	s.given = append(s.given, len(p))
	if len(s.reads) == 0 {
		return 0, s.finish
	}
	n := s.reads[0]
	s.reads = s.reads[1:]
	for i := range p[:n] {
		p[i] = byte(s.asked)
		s.asked++
	}
	return n, nil
}

// sink takes what is written, at most limit bytes.
type sink struct {
	net.Conn
	got   bytes.Buffer
	first int // bytes of the first write
	limit int
	err   error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.got.Len() == 0 {
		s.first = len(p)
	}
	n, _ := s.got.Write(p[:min(len(p), s.limit-s.got.Len())])
	if n < len(p) {
		return n, s.err
	}
	return n, nil
}

func TestCopyBuffered(t *testing.T) {
	const k, large = 1 << 10, 32<<10 - 18
	broken := errors.New("broken")
	tests := []struct {
		name  string
		reads []int
		end   error // of the source
		limit int
		werr  error
		given []int
		n     int64
		want  error
	}{
		{"empty", nil, io.EOF, 1000 * k, nil, []int{4 * k}, 0, nil},
		{"small ones", []int{1, 100, 4*k - 1}, io.EOF, 1000 * k, nil, []int{4 * k, 4 * k, 4 * k, 4 * k}, 100 + 4*k, nil},
		{"burst", []int{4 * k, large, 4 * k, 10, 20}, io.EOF, 1000 * k, nil,
			[]int{4 * k, large, large, large, 4 * k, 4 * k}, large + 8*k + 30, nil},
		{"read error", []int{4 * k, large}, broken, 1000 * k, nil, []int{4 * k, large, large}, large + 4*k, broken},
		{"write error", []int{4 * k, large}, io.EOF, 5 * k, broken, []int{4 * k, large}, 5 * k, broken},
		{"short write", []int{1, 2}, io.EOF, 2, nil, []int{4 * k, 4 * k}, 2, io.ErrShortWrite},
		{"a write's EOF is an error", []int{1, 2}, io.EOF, 2, io.EOF, []int{4 * k, 4 * k}, 2, io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := &scripted{reads: tt.reads, finish: tt.end}
			dst := &sink{limit: tt.limit, err: tt.werr}
			n, err := relay.CopyConn(dst, src)
			if n != tt.n || err != tt.want {
				t.Errorf("got %d, %v; want %d, %v", n, err, tt.n, tt.want)
			}
			if !slices.Equal(src.given, tt.given) {
				t.Errorf("got buffers of %d bytes, want %d", src.given, tt.given)
			}
			for i, b := range dst.got.Bytes() {
				if b != byte(i) {
					t.Fatalf("got %d as byte %d", b, i)
				}
			}
			if int64(dst.got.Len()) != tt.n {
				t.Errorf("got %d bytes, want %d", dst.got.Len(), tt.n)
			}
		})
	}
}

// TestPooledBesideTCP: a TCPConn itself would allocate a buffer, of 32 KiB.
func TestPooledBesideTCP(t *testing.T) {
	far, near := tcp(t)
	go func() {
		far.Write(make([]byte, 64<<10))
		far.Close()
	}()
	dst := &sink{limit: 1 << 20}
	if n, err := relay.CopyConn(dst, near); n != 64<<10 || err != nil || dst.first > 4<<10 {
		t.Errorf("got %d bytes, %v, the first %d at once; want 64 KiB, the first 4 at most", n, err, dst.first)
	}
	_, near = tcp(t)
	src := &scripted{reads: []int{10}, finish: io.EOF}
	if n, err := relay.CopyConn(near, src); n != 10 || err != nil || src.given[0] != 4<<10 {
		t.Errorf("got %d bytes, %v, a buffer of %d; want 10, 4 KiB", n, err, src.given[0])
	}
}

// TestStreamsCopyThemselves: the tunnel's streams do so without a buffer of
// ours.
func TestStreamsCopyThemselves(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			farA, nearA := kind.make(t)
			farB, nearB := stream(t)
			done := start(t.Context(), nearA, nearB)
			send(t, farA, "question")
			closeWrite(t, farA)
			expect(t, farB, "question")
			send(t, farB, "answer")
			closeWrite(t, farB)
			expect(t, farA, "answer")
			result(t, done)
			b := nearB.(*fakeStream)
			if a, ok := nearA.(*fakeStream); ok {
				if a.to != 1 || b.to != 1 {
					t.Errorf("got %d and %d calls of DeliverTo, want 1 and 1", a.to, b.to)
				}
			} else if b.to != 1 || b.from != 1 {
				t.Errorf("got %d calls of DeliverTo and %d of ReadFrom, want 1 and 1", b.to, b.from)
			}
		})
	}
}

package wire_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

func hello() *wire.Message { return wire.New(wire.MsgHello).AddUint(wire.TagVersion, wire.Version) }

// readAgain reads a message, and encodes it again.
func readAgain(r io.Reader) ([]byte, error) {
	m, err := wire.Read(r, wire.MaxBody)
	if err != nil {
		return nil, err
	}
	for b := range m.All(wire.TagVersion) {
		_ = b[:len(b):len(b)]
	}
	return m.Encode(), nil
}

// A message that arrives in pieces of any size is the same message, and one that
// is cut gives the same error.
func TestMessagesOfManySizes(t *testing.T) {
	for _, size := range []int{0, 1, 4089, 4090, 4091, 8192, 100_000, wire.MaxBody - 6} {
		value := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		encoded := wire.New(wire.MsgPayload).AddBytes(wire.TagData, value).Encode()
		for name, r := range map[string]io.Reader{
			"at once":   bytes.NewReader(encoded),
			"in pieces": iotest.HalfReader(iotest.DataErrReader(bytes.NewReader(encoded))),
		} {
			if got, err := readAgain(r); err != nil || !bytes.Equal(got, encoded) {
				t.Errorf("%d bytes %s: got %d bytes, %v", size, name, len(got), err)
			}
		}
		for _, cut := range []int{1, 5, 6, 4096, 4102, len(encoded) / 2, len(encoded) - 1} {
			if cut >= len(encoded) {
				continue
			}
			_, err := readAgain(bytes.NewReader(encoded[:cut]))
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d bytes of %d: got %v, want an unexpected EOF", cut, len(encoded), err)
			}
		}
	}
}

// A small message, as nearly all are, has its body read into one allocation.
func TestSmallMessageAllocations(t *testing.T) {
	encoded := wire.New(wire.MsgDial).AddString(wire.TagAddress, "kubernetes.default.svc:443").Encode()
	r := bytes.NewReader(nil)
	got := testing.AllocsPerRun(100, func() {
		r.Reset(encoded)
		wire.Read(r, wire.MaxBody)
	})
	if got > 3 { // the message, its header and its body
		t.Errorf("got %v allocations, want 3 at most", got)
	}
}

// A message that Read takes is encoded to the same bytes.
func FuzzMessage(f *testing.F) {
	f.Add(hello().Encode())
	f.Add(wire.New(wire.MsgDialed).AddUint(wire.TagCode, 3).AddString(wire.TagText, "text").Encode())
	f.Add([]byte{0, 1, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, p []byte) {
		r := bytes.NewReader(p)
		got, err := readAgain(r)
		if err == nil && !bytes.Equal(got, p[:len(p)-r.Len()]) {
			t.Errorf("got %x of %x", got, p)
		}
	})
}

// keptReader is half a message, and notes what Keep was told.
type keptReader struct {
	io.Reader
	most, last int
}

func (r *keptReader) Keep(n int) { r.most, r.last = max(r.most, n), n }

// TestReadKeeps: the memory for a message is counted as it grows, and until it is read. One that a
// buffer of a connection holds, and one that only claims to be long, are not.
func TestReadKeeps(t *testing.T) {
	for _, tt := range []struct{ claims, come, most int }{
		{claims: 1 << 20, come: 4<<10 - 1, most: 0},
		{claims: 1 << 20, come: 4 << 10, most: 8 << 10},
		{claims: 1 << 20, come: 600 << 10, most: 1 << 20},
		{claims: 5 << 10, come: 5 << 10, most: 5 << 10},
		{claims: 4 << 10, come: 4 << 10, most: 0},
	} {
		b := wire.New(1).AddBytes(wire.TagData, make([]byte, tt.claims-6)).Encode()
		r := &keptReader{Reader: bytes.NewReader(b[:6+tt.come])}
		_, err := wire.Read(r, wire.MaxBody)
		if (err == nil) != (tt.come == tt.claims) || r.most != tt.most || r.last != 0 {
			t.Errorf("%d of %d bytes: kept %d, in the end %d, %v; want %d, in the end none", tt.come, tt.claims, r.most, r.last, err, tt.most)
		}
	}
}

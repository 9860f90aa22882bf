package tunnel_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/causewayproject/causeway/tunnel"
)

// dataFrame is a Data frame of yamux for stream 1, made by hand.
func dataFrame(flags uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0, 0}, flags)
	b = binary.BigEndian.AppendUint32(b, 1)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(payload))), payload...)
}

// Agents that claim a message of 1 MiB and send none of it hold next to nothing:
// memory follows what was sent, not what was said.
func TestClaimedMessageHoldsNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const peers, most = 60, 12 << 10
		b := newBed(t, &tunnel.Server{})
		c := b.enrolled()
		claim := dataFrame(0, []byte{0, 9, 0, 16, 0, 0})
		var carriers []io.Writer
		for range peers {
			carrier := rawCarrier(t, b, c)
			go io.Copy(io.Discard, carrier)
			say(t, carrier, dataFrame(1, tunnel.RawHello()))
			b.await()
			carriers = append(carriers, carrier)
		}
		synctest.Wait()
		before := liveHeap()
		for _, carrier := range carriers {
			carrier.Write(claim)
			carrier.(interface{ Flush() error }).Flush()
		}
		synctest.Wait()
		if got := (liveHeap() - before) / peers; got > most {
			t.Errorf("got %d bytes of heap for a claim of 18 bytes, want %d at most", got, most)
		}
		if got := len(b.sessions()); got != peers {
			t.Errorf("got %d sessions, want %d", got, peers)
		}
	})
}

// liveHeap is what a collection leaves.
func liveHeap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// What arrives in pieces of any size is the same message, and ends in its middle
// the same way.
func TestMessagesOfManySizes(t *testing.T) {
	for _, size := range []int{0, 1, 4089, 4090, 4091, 8192, 100_000, tunnel.MaxRawMessage - 6} {
		value := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		wire := tunnel.RawMessage(8, uint16(13), value)
		for name, r := range map[string]io.Reader{
			"at once":   bytes.NewReader(wire),
			"in pieces": iotest.HalfReader(iotest.DataErrReader(bytes.NewReader(wire))),
		} {
			if got, err := tunnel.DecodeEncode(r, tunnel.MaxRawMessage); err != nil || !bytes.Equal(got, wire) {
				t.Errorf("%d bytes %s: got %d bytes, %v", size, name, len(got), err)
			}
		}
		for _, cut := range []int{1, 5, 6, 4096, 4102, len(wire) / 2, len(wire) - 1} {
			if cut >= len(wire) {
				continue
			}
			_, err := tunnel.DecodeEncode(bytes.NewReader(wire[:cut]), tunnel.MaxRawMessage)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d bytes of %d: got %v, want an unexpected EOF", cut, len(wire), err)
			}
		}
	}
}

// Small messages, which are nearly all, are read into one allocation.
func TestSmallMessageAllocations(t *testing.T) {
	wire := tunnel.RawMessage(16, uint16(5), []byte("kubernetes.default.svc:443"))
	r := bytes.NewReader(nil)
	got := testing.AllocsPerRun(100, func() {
		r.Reset(wire)
		tunnel.ReadRaw(r)
	})
	if got > 3 { // the message, its header and its body
		t.Errorf("got %v allocations, want 3 at most", got)
	}
}

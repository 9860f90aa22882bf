package tunnel_test

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// dataFrame is a Data frame of yamux for stream 1, made by hand.
func dataFrame(flags uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0, 0}, flags)
	b = binary.BigEndian.AppendUint32(b, 1)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(payload))), payload...)
}

// Agents that claim the longest message and send none of it hold next to nothing:
// memory follows what was sent, not what was said.
func TestClaimedMessageHoldsNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const peers, most = 60, 12 << 10
		b := newBed(t, &tunnel.Server{})
		c := b.enrolled()
		claim := dataFrame(0, []byte{0, 9, 0, 0, 64, 0})
		var carriers []net.Conn
		for range peers {
			carrier := rawCarrier(t, b, c)
			go io.Copy(io.Discard, carrier)
			say(t, carrier, dataFrame(1, rawHello()))
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
		for _, carrier := range carriers {
			say(t, carrier, dataFrame(0, rawMessage(9, uint16(13), make([]byte, 16<<10-6))[6:])) // the body
			say(t, carrier, dataFrame(0, []byte{0, 9, 0, 0, 64, 1}))
		}
		synctest.Wait()
		if got := len(b.sessions()); got != 0 {
			t.Errorf("after a longer claim: got %d sessions, want none", got)
		}
	})
}

// TestUnreadAnswers: an agent that asks and reads no answer holds no memory by them.
func TestUnreadAnswers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		id, asks int // bytes, and how many
		sessions int // that are left
	}{
		{"long ids", 16_000, 200, 0},
		{"one byte too long", 65, 1, 0},
		{"as long as may be", 64, 200, 1},
		{"without end", 64, 10_000, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				carrier := rawCarrier(t, b, b.enrolled())
				go io.Copy(io.Discard, carrier) // and gives no credit
				say(t, carrier, dataFrame(1, rawHello()))
				b.await()
				synctest.Wait()
				before := liveHeap()
				ask := dataFrame(0, rawMessage(5, uint16(4), make([]byte, tt.id)))
				for range tt.asks {
					carrier.Write(ask)
					if carrier.(interface{ Flush() error }).Flush() != nil {
						break
					}
					time.Sleep(10 * time.Millisecond) // the server has read it, and gives credit
				}
				if got := liveHeap() - before; got > 512<<10 {
					t.Errorf("got %d bytes of heap, want 512 KiB at most", got)
				}
				if got := len(b.sessions()); got != tt.sessions {
					t.Errorf("got %d sessions, want %d", got, tt.sessions)
				}
			})
		})
	}
}

// liveHeap is what a collection leaves.
func liveHeap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

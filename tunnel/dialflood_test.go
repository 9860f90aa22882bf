package tunnel_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// What a server may cost an agent that has it dial a target which does not answer,
// and takes each dial back at once: never more dials than MaxStreams, little
// memory, and others' dials go on meanwhile.
func TestDialFlood(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  uint16        // flags of the frame that ends a stream
		lag  int           // how many others are opened before
		slow time.Duration // how long a dial goes on after its context has ended
	}{
		{"reset at once", frameRST, 0, 0},
		{"end and reset at once", frameFIN | frameRST, 0, 0},
		{"reset", frameRST, 50, 0},
		{"end and reset", frameFIN | frameRST, 50, 0},
		{"reset, and the dials take their time to end", frameRST, 50, 5 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) { dialFlood(t, tt.end, tt.lag, tt.slow) })
	}
}

const (
	floodStreams = 100
	floodDials   = 20000
)

func dialFlood(t *testing.T, end uint16, lag int, slow time.Duration) {
	var now, most atomic.Int64
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if _, port, _ := net.SplitHostPort(address); port == "7" {
			return dialTest(ctx, network, address)
		}
		longest(&most, time.Duration(now.Add(1)))
		defer now.Add(-1)
		<-ctx.Done()
		if slow > 0 {
			<-time.After(slow)
		}
		return nil, ctx.Err()
	}
	n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1"}, Dial: dial}
	s := newFrameServer(t, &tunnel.Agent{MaxStreams: floodStreams, Targets: *targetsThrough(n, tunnel.Targets{Allow: []string{"*:1-100"}})})

	grown := growth(t)
	var took []time.Duration
	var dials []uint32
	for i := range floodDials {
		dials = append(dials, s.open(dialMessage("x:3")))
		if len(dials) > lag {
			s.frame(kindWindow, end, dials[0], nil)
			dials = dials[1:]
		}
		if i%2000 == 0 {
			began := time.Now()
			for !s.dialed(t, dialMessage("echo:7")) { // there are too many at the moment
			}
			took = append(took, time.Since(began))
		}
	}
	for _, id := range dials {
		s.frame(kindWindow, end, id, nil)
	}
	s.flush(t)
	for !s.dialed(t, dialMessage("echo:7")) { // then all else has come
	}
	awaitNoStream(t)
	kib := grown() >> 10
	slices.Sort(took)
	t.Logf("%d dials taken back: at most %d at once, heap +%.1f MiB at most, a right dial took %v, %v at worst",
		floodDials, most.Load(), float64(kib)/1024, took[len(took)/2], took[len(took)-1])
	if most.Load() > floodStreams {
		t.Errorf("got %d dials at once, want %d at most", most.Load(), floodStreams)
	}
	if kib > 16<<10 {
		t.Errorf("the heap grew by %d KiB, want 16 MiB at most", kib)
	}
}

// growth measures, until the function that it returns is called, by how many bytes
// the heap and the stacks grow at most.
func growth(t *testing.T) (stop func() int64) {
	before, peak := heap(), uint64(0)
	ended, measured := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(measured)
		for {
			peak = max(peak, heap())
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	stop = sync.OnceValue(func() int64 {
		close(ended)
		<-measured
		return int64(peak) - int64(before)
	})
	t.Cleanup(func() { stop() })
	return stop
}

// heap is what is in use once the garbage is gone.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

const (
	kindData, kindWindow = 0, 1

	frameSYN, frameACK, frameFIN, frameRST = 1, 2, 4, 8
)

func dialMessage(address string) []byte {
	return rawMessage(16, uint16(6), []byte("tcp"), uint16(5), []byte(address))
}

// frameServer is a server that an agent has connected to over TCP, frame by
// frame.
type frameServer struct {
	w       *bufio.Writer
	carrier *tunnel.Carrier
	next    uint32

	mu      sync.Mutex // guards the fields below
	answers map[uint32][]byte
	resets  map[uint32]bool
	came    *sync.Cond
	err     error
}

func newFrameServer(t *testing.T, a *tunnel.Agent) *frameServer {
	t.Helper()
	b := newBed(t, &tunnel.Server{})
	a.Credentials = &tunnel.MemoryCredentials{}
	b.agent(&tunnel.Agent{Credentials: a.Credentials}).stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a.Servers = []string{l.Addr().String()}
	b.start(a)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, err := tunnel.RawServerCarrier(testContext(t), conn, b.s.Authority)
	if err != nil {
		t.Fatal(err)
	}
	s := &frameServer{w: bufio.NewWriterSize(c, 16<<10), carrier: c, next: 2, answers: map[uint32][]byte{}, resets: map[uint32]bool{}}
	s.came = sync.NewCond(&s.mu)
	read := make(chan struct{})
	go func() {
		defer close(read)
		s.read()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-read
	})
	if kind, _, err := readRaw(bytes.NewReader(s.answer(t, 1))); kind != 1 || err != nil {
		t.Fatalf("got %d, %v, want HELLO", kind, err)
	}
	s.frame(kindData, frameACK, 1, tunnel.RawWelcome(b.s.Authority))
	s.flush(t)
	return s
}

// frame writes one; the length of a window frame is zero.
func (s *frameServer) frame(kind byte, flags uint16, id uint32, payload []byte) {
	h := binary.BigEndian.AppendUint16([]byte{0, kind}, flags)
	h = binary.BigEndian.AppendUint32(h, id)
	s.w.Write(binary.BigEndian.AppendUint32(h, uint32(len(payload))))
	s.w.Write(payload)
}

func (s *frameServer) flush(t *testing.T) {
	t.Helper()
	if err := s.w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.carrier.Flush(); err != nil {
		t.Fatal(err)
	}
}

// open opens a stream.
func (s *frameServer) open(first []byte) (id uint32) {
	id = s.next
	s.next += 2
	s.frame(kindData, frameSYN, id, first)
	return id
}

// read takes what the agent sends, until the carrier ends.
func (s *frameServer) read() {
	r := bufio.NewReader(s.carrier)
	for {
		var h [12]byte
		_, err := io.ReadFull(r, h[:])
		id := binary.BigEndian.Uint32(h[4:])
		var payload []byte
		if err == nil && h[1] == kindData {
			payload = make([]byte, binary.BigEndian.Uint32(h[8:]))
			_, err = io.ReadFull(r, payload)
		}
		s.mu.Lock()
		switch {
		case len(payload) > 0:
			s.answers[id] = append(s.answers[id], payload...)
		case err == nil && h[3]&frameRST != 0:
			s.resets[id] = true
		}
		s.err = err
		s.came.Broadcast()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// answer waits for a message on a stream; it is nil if the agent resets it.
func (s *frameServer) answer(t *testing.T, id uint32) []byte {
	t.Helper()
	s.flush(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.answers[id]) == 0 && !s.resets[id] {
		if s.err != nil {
			t.Fatal(s.err)
		}
		s.came.Wait()
	}
	return s.answers[id]
}

// dialed opens a stream with a DIAL, ends it once that is answered, and reports
// whether it was not reset.
func (s *frameServer) dialed(t *testing.T, dial []byte) bool {
	t.Helper()
	id := s.open(dial)
	m := s.answer(t, id)
	if m == nil {
		return false
	}
	s.frame(kindWindow, frameFIN|frameRST, id, nil)
	s.flush(t)
	if kind, code, err := readRaw(bytes.NewReader(m)); kind != 17 || code != 0 || err != nil {
		t.Fatalf("got %d with code %d, %v, want DIALED", kind, code, err)
	}
	return true
}

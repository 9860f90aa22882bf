package mux_test

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
	"github.com/causewayproject/causeway/internal/mux"
)

// What is between the two sides may cut a connection that is silent for longer
// than ProbeAfter: it never is, however long DeadAfter.
func TestProbesOfIdleSession(t *testing.T) {
	for _, test := range []struct {
		name   string
		config mux.Config
		want   time.Duration
	}{
		{"defaults", mux.Config{}, 12 * time.Second},
		{"the end is far", mux.Config{ProbeAfter: 2 * time.Second, DeadAfter: time.Hour}, 2 * time.Second},
		{"probe later than the end", mux.Config{ProbeAfter: time.Hour, DeadAfter: 6 * time.Second}, 3 * time.Second},
		{"the end is near", mux.Config{DeadAfter: 5 * time.Second}, 2500 * time.Millisecond},
		{"no end", mux.Config{ProbeAfter: 3 * time.Second, DeadAfter: -1}, 3 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := rawPeer(t, &test.config)
				var gaps []time.Duration
				read := make(chan struct{})
				go func() {
					defer close(read)
					for last := time.Now(); ; last = time.Now() {
						f, err := readFrame(p)
						if err != nil {
							return
						}
						gaps = append(gaps, time.Since(last))
						p.Write(header(ping, ack, 0, f.length))
					}
				}()
				time.Sleep(10 * time.Minute)
				s.Close()
				<-read
				for i, gap := range gaps {
					if gap > test.want {
						t.Fatalf("ping %d came %v after the one before, want %v at most", i, gap, test.want)
					}
				}
				if got, want := len(gaps), int(10*time.Minute/test.want); got < want {
					t.Errorf("got %d pings in 10 minutes, want %d", got, want)
				}
			})
		})
	}
}

// The two ends of an idle session do not probe each other at once: each writes a ping or the answer
// to one in ten seconds.
func TestProbesDoNotCross(t *testing.T) {
	for _, roundTrip := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			link := linktest.New(lineConfig(roundTrip, gbit))
			defer link.Close()
			a, b := linkedPair(link)
			near, far := &writeCounter{Conn: a}, &writeCounter{Conn: b}
			client, server := mux.Client(near, nil), mux.Server(far, nil)
			time.Sleep(10 * time.Minute)
			if near, far := near.writes.Load(), far.writes.Load(); near+far > 2*61+4 {
				t.Errorf("round trip %v: got %d and %d writes in 10 minutes, want one in 10 seconds", roundTrip, near, far)
			}
			client.Close()
			server.Close()
		})
	}
}

// Sessions that began at any time are probed together, so that a process with many wakes for all of
// them at once.
func TestProbesComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sessions, probeAfter = 40, 8 * time.Second
		var pings sync.Map // of instants
		for range sessions {
			time.Sleep(137 * time.Millisecond)
			s, p := rawPeer(t, &mux.Config{ProbeAfter: probeAfter})
			defer s.Close()
			go func() {
				for n := 0; ; n++ {
					f, err := readFrame(p)
					if err != nil {
						return
					}
					if n > 0 { // the first measures the round trip
						pings.Store(time.Now(), nil)
					}
					p.Write(header(ping, ack, 0, f.length))
				}
			}()
		}
		const long = 10 * time.Minute
		time.Sleep(long)
		instants := 0
		pings.Range(func(any, any) bool { instants++; return true })
		if instants > 8*int(long/probeAfter)+8 {
			t.Errorf("%d sessions were probed at %d instants in %v, want 8 in %v", sessions, instants, long, probeAfter)
		}
	})
}

type writeCounter struct {
	net.Conn
	writes atomic.Int64
}

func (c *writeCounter) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// What is compared with LastRead is right although somebody sets the clock.
func TestLastReadIsMonotonic(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	s := mux.Client(a, nil)
	defer s.Close()
	if got := s.Stats().LastRead.String(); !strings.Contains(got, " m=") {
		t.Errorf("got %s, want a time with a monotonic reading", got)
	}
}

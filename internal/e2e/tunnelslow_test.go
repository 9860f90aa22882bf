package e2e

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/tunnel"
)

// Rates in bytes a second, and the queues of a wire: in the long one a session
// finds room for all that it sends, in the short one TCP loses packets.
const (
	tenMbit = 10_000_000 / 8
	oneMbit = 1_000_000 / 8

	longQueue  = tenMbit / 4
	shortQueue = tenMbit / 10
)

// wireHub is a hub at the near end of a wire, with an agent at the far one.
func wireHub(t *testing.T, delay time.Duration, rate int64, queue int) (*bed.Wire, *hub) {
	t.Helper()
	w, err := sharedBed(t).NewWire(t.Context(), delay, rate, queue)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	startTargets(t, w.Far)
	h := newHub(t, &tunnel.Server{}, listen(t, w.Near, pathAddress))
	startAgent(t, w.Far, agentInput{Invitation: h.invite(pathAddress), Allow: targets})
	h.session(20 * time.Second)
	return w, h
}

// bulk is one stream that carries as much as it can, until stop is called,
// which returns the rate.
func (h *hub) bulk(up bool) (stop func() (bytesPerSecond float64)) {
	h.t.Helper()
	target := sourceTarget
	if up {
		target = sinkTarget
	}
	conn, err := h.dial(h.t.Context(), target)
	if err != nil {
		h.t.Fatal(err)
	}
	began, ended := time.Now(), make(chan int64, 1)
	go func() {
		var n int64
		if up {
			n, _ = io.Copy(conn, zeros{})
		} else {
			n, _ = io.Copy(io.Discard, conn)
		}
		ended <- n
	}()
	stop = sync.OnceValue(func() float64 {
		took := time.Since(began)
		conn.Close()
		return float64(<-ended) / took.Seconds()
	})
	h.t.Cleanup(func() { stop() })
	return stop
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// interactive has each of count streams echo a byte, and again, until ctx ends,
// and returns how long each took.
func (h *hub) interactive(ctx context.Context, count int) []time.Duration {
	h.t.Helper()
	var (
		mu    sync.Mutex // guards took
		took  []time.Duration
		users sync.WaitGroup
	)
	for range count {
		conn, err := h.dial(h.t.Context(), echoTarget)
		if err != nil {
			h.t.Fatal(err)
		}
		users.Go(func() {
			defer conn.Close()
			keystrokes(ctx, conn, func(d time.Duration, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					h.t.Errorf("an interactive stream: %v after %v", err, d)
				}
				took = append(took, d)
			})
		})
	}
	users.Wait()
	return took
}

// keystrokes sends a byte when the one before has come back, until ctx ends or
// it does not come.
func keystrokes(ctx context.Context, conn net.Conn, done func(time.Duration, error)) {
	for ctx.Err() == nil {
		began := time.Now()
		err := echo(conn, began.Add(patience))
		done(time.Since(began), err)
		if err != nil {
			return
		}
	}
}

// On a link of 10 Mbit/s with a round trip of 100 ms fifty people type while a
// file is copied, and none of them waits.
func TestTunnelSlowLink(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		up    bool
		queue int
	}{
		{"down", false, longQueue},
		{"up", true, longQueue},
		{"down, with loss", false, shortQueue},
		{"up, with loss", true, shortQueue},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, h := wireHub(t, 50*time.Millisecond, tenMbit, tt.queue)
			alone, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			t.Logf("without bulk: %s", spread(h.interactive(alone, 50)))
			stop := h.bulk(tt.up)
			wait(t, 3*time.Second) // TCP's slow start
			ctx, cancel := context.WithTimeout(t.Context(), duration(t, "CAUSEWAY_E2E_BULK", 10*time.Second))
			defer cancel()
			took := h.interactive(ctx, 50)
			rate := stop()
			t.Logf("with bulk: %s; bulk %.2f Mbit/s; %d packets dropped", spread(took), rate*8/1e6, w.Dropped())
			// The goal is a p99 of 500 ms, which the line above tells. A machine
			// under load adds seconds to it, and so does a lost packet, which what
			// is behind it waits for: what waited for bulk would do so each time.
			if p50 := took[len(took)/2]; p50 > 2*time.Second {
				t.Errorf("half of the bytes were there and back after %v, want 2 s at most", p50)
			}
			if rate < tenMbit/4 {
				t.Errorf("bulk has %.2f Mbit/s of 10", rate*8/1e6)
			}
			wantOneSession(t, h, 101)
		})
	}
}

// Nobody is taken for dead because the link is slow: at 1 Mbit/s bulk goes on
// for longer than a silent peer would live.
func TestTunnelVerySlowLink(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		up   bool
	}{{"down", false}, {"up", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, h := wireHub(t, 50*time.Millisecond, oneMbit, shortQueue)
			stop := h.bulk(tt.up)
			ctx, cancel := context.WithTimeout(t.Context(), duration(t, "CAUSEWAY_E2E_BULK", 35*time.Second))
			defer cancel()
			took := h.interactive(ctx, 1)
			t.Logf("with bulk: %s; bulk %.2f Mbit/s; %d packets dropped", spread(took), stop()*8/1e6, w.Dropped())
			wantOneSession(t, h, 2)
		})
	}
}

package turns_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/internal/turns"
)

// A source that has many in line keeps nobody else waiting, whoever gives up
// leaves the line, and a line has an end.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const a, b = "a", "b"
		queue := turns.New[string](1, 12)
		queue.Enter(t.Context(), a)
		ctx, cancel := context.WithCancel(t.Context())
		order := make(chan string, 100)
		enter := func(ctx context.Context, source string) {
			go func() {
				if queue.Enter(ctx, source) == nil {
					order <- source
				}
			}()
			synctest.Wait()
		}
		for range 10 {
			enter(ctx, a)
		}
		enter(t.Context(), a)
		enter(t.Context(), a)
		enter(t.Context(), b)
		if err := queue.Enter(t.Context(), a); err != turns.ErrFull {
			t.Errorf("one more than may wait: got %v, want %v", err, turns.ErrFull)
		}
		cancel()
		synctest.Wait()
		var got []string
		for range 3 {
			queue.Leave()
			got = append(got, <-order)
		}
		if want := []string{a, b, a}; !slices.Equal(got, want) {
			t.Errorf("got the turns %v, want %v", got, want)
		}
		if queue.Waits(a) || queue.Waits(b) {
			t.Error("somebody waits")
		}
		queue.Leave()
		enter(t.Context(), b)
		if len(order) != 1 {
			t.Error("the turn is not free")
		}
	})
}

// TestNewestFirst: within a source, whoever came last is next.
func TestNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := turns.New[string](1, 0)
		queue.NewestFirst = true
		queue.Enter(t.Context(), "a")
		order := make(chan string, 10)
		for _, who := range []string{"a1", "a2", "b1", "a3", "b2"} {
			go func() {
				queue.Enter(t.Context(), who[:1])
				order <- who
			}()
			synctest.Wait()
		}
		var got []string
		for range 5 {
			queue.Leave()
			got = append(got, <-order)
		}
		if want := []string{"a3", "b2", "a2", "b1", "a1"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// Who makes room for one more when as many wait as may.
func TestMaxAll(t *testing.T) {
	for _, tt := range []struct {
		name, waiting, next string
		want                []string // who gets turns, then
	}{
		{"the newest of the source with most", "aaabb", "c", []string{"a0", "b0", "c0", "a1", "b1"}},
		{"for one of a source with fewer", "aaabb", "b", []string{"a0", "b0", "a1", "b1", "b2"}},
		{"not for its own source", "aabb", "a", []string{"a0", "b0", "a1", "b1"}},
		{"a source of one is gone with it", "a", "b", []string{"b0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queue := turns.New[string](1, 0)
				queue.MaxAll = len(tt.waiting)
				queue.Enter(t.Context(), "x")
				order, full, came := make(chan string, 10), 0, map[string]int{}
				for _, r := range tt.waiting + tt.next {
					source, who := string(r), fmt.Sprint(string(r), came[string(r)])
					came[source]++
					go func() {
						switch err := queue.Enter(t.Context(), source); err {
						case nil:
							order <- who
						case turns.ErrFull:
							full++
						default:
							t.Error(err)
						}
					}()
					synctest.Wait()
				}
				if full != 1 {
					t.Errorf("%d were sent away, want one", full)
				}
				var got []string
				for range tt.waiting {
					queue.Leave()
					got = append(got, <-order)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("got the turns %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// Whoever gives up as it is sent away leaves no turn too many.
func TestGiveUpWhileSentAway(t *testing.T) {
	for range 200 {
		queue := turns.New[string](1, 0)
		queue.MaxAll = 1
		queue.Enter(t.Context(), "x")
		ctx, cancel := context.WithCancel(t.Context())
		var waiter sync.WaitGroup
		waiter.Go(func() { queue.Enter(ctx, "a") })
		for !queue.Waits("a") {
			runtime.Gosched()
		}
		cancel()
		queue.Enter(ctx, "b")
		waiter.Wait()
		if queue.Enter(ctx, "c") == nil {
			t.Fatal("got a turn while another one has it")
		}
	}
}

func TestSource(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:1":           "192.0.2.1/32",
		"[::ffff:192.0.2.1]:2":  "192.0.2.1/32",
		"[2001:db8::1]:1":       "2001:db8::/64",
		"[2001:db8::2%eth0]:1":  "2001:db8::/64",
		"[2001:db8:0:1::1]:443": "2001:db8:0:1::/64",
	} {
		if got := turns.Source(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got.String() != want {
			t.Errorf("%s: got %v, want %s", addr, got, want)
		}
	}
	if got := turns.Source(&net.UnixAddr{Net: "unix"}); got.IsValid() {
		t.Errorf("a unix socket: got %v, want none", got)
	}
}

package turns_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
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

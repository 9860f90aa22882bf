package budget_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/mux"
)

// asked is a Member that counts how often it is asked for bytes, and gives none back.
type asked struct{ times, reclaimed, bytes int }

func (a *asked) AppendHoldings(all []budget.Holding) []budget.Holding {
	a.times++
	return append(all, budget.Holding{Holder: budget.Holder{By: a}, Bytes: a.bytes, Reclaim: func() { a.reclaimed++ }})
}

// TestKeep: all are looked at when that helps, and otherwise once in a while, however often
// something comes.
func TestKeep(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		held, bytes            int // in hundredths of the bound
		times, reclaimed, more int // more: times in the next second, of 1000 calls
	}{
		{"far from the bound", 93, 93, 0, 0, 0},
		{"close to it, in vain", 95, 80, 1, 0, 20},
		{"beyond it, in vain", 200, 80, 1, 0, 20},
		{"beyond it", 200, 200, 1, 1, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, m := &budget.Budget{Bytes: 100 << 10}, &asked{bytes: tt.bytes << 10}
				budget.Enter(b, m)
				budget.Add(b, tt.held<<10)
				budget.Keep(b)
				synctest.Wait()
				for range 1000 {
					budget.Keep(b)
					synctest.Wait()
				}
				if m.times != tt.times || m.reclaimed != tt.reclaimed {
					t.Errorf("asked %d times, reclaimed %d; want %d, %d", m.times, m.reclaimed, tt.times, tt.reclaimed)
				}
				for range 1000 {
					time.Sleep(time.Millisecond)
					budget.Keep(b)
					synctest.Wait()
				}
				if more := m.times - tt.times; more != tt.more {
					t.Errorf("asked %d times in a second, want %d", more, tt.more)
				}
			})
		})
	}
}

// TestReclaimByCluster: however many callers of one cluster let something wait, those of another
// lose nothing of their cluster's part.
func TestReclaimByCluster(t *testing.T) {
	const callers = 1500
	b, evil, good := &budget.Budget{}, make(holdings, callers), make(holdings, 1)
	for _, hs := range []struct {
		holdings
		cluster string
		bytes   int
	}{{evil, "evil", 180 << 10}, {good, "good", 256 << 10}} {
		for i := range hs.holdings {
			hs.holdings[i] = budget.Holding{Holder: budget.Holder{In: hs.cluster, By: uint64(i)}, Bytes: hs.bytes, Waits: time.Minute, Reclaim: func() {
				hs.holdings[i].Bytes = 0
				budget.Add(b, -hs.bytes)
			}}
			budget.Add(b, hs.bytes)
		}
		budget.Enter(b, &hs.holdings)
	}
	budget.Keep(b)
	if held := budget.Held(b); held > 256<<20 || good[0].Bytes == 0 {
		t.Errorf("%d bytes are held, and %d of the other cluster", held, good[0].Bytes)
	}
}

type holdings []budget.Holding

func (hs *holdings) AppendHoldings(all []budget.Holding) []budget.Holding { return append(all, *hs...) }

// TestLeave: a session that has ended is a member until what it has received is read, or
// nobody will.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budget.Budget
		near, far := net.Pipe()
		client, server := mux.Client(near, &mux.Config{Budget: &b}), mux.Server(far, &mux.Config{Budget: &b})
		if _, err := client.Open(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
		st, err := server.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			do   func() error
			want int
		}{{client.Close, 1}, {server.Close, 0}, {st.Close, 0}} {
			step.do()
			synctest.Wait()
			if got := b.Members(); got != step.want {
				t.Errorf("got %d members, want %d", got, step.want)
			}
		}
		if held := budget.Held(&b); held != 0 {
			t.Errorf("%d bytes are held", held)
		}
	})
}

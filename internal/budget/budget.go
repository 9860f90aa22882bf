// Package budget bounds the memory in which bytes wait for somebody: see [Budget].
package budget

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Budget is what tunnel.Budget says. Streams are reset with CodeBudget of package tunnel, or with
// ENHANCE_YOUR_CALM of HTTP/2.
type Budget struct {
	// Bytes is how many that may be. Zero means 256 MiB.
	Bytes int64

	held atomic.Int64

	members sync.Map // of Member

	inVain     atomic.Bool // the last reclaim has found too little
	reclaiming sync.Mutex  // guards the field below
	triedAt    time.Time   // when that was
}

// Process is the Budget of all that have none.
var Process Budget

// Member is what holds bytes. Its locks may be held while Enter, Leave and Add are called, and
// not while Keep or Reclaim is.
type Member interface {
	// AppendHoldings appends what can be reclaimed, and is not about to be put back anyway.
	AppendHoldings(all []Holding) []Holding
}

// Holder is who lets bytes wait.
type Holder struct {
	In any // the cluster whose clients, agents and targets do, or who else
	By any // who of these: a number is a caller's, the same in all of the process; another replica is one for all its callers
}

// Holding is bytes that one stream holds, or one connection.
type Holding struct {
	Holder
	Bytes   int           // how many
	Waits   time.Duration // since some were taken
	Reclaim func()        // resets it
}

// stalledAfter is how long bytes wait before nobody counts as reading them.
const stalledAfter = 2 * time.Second

// pause is the time after a reclaim that has found too little: the next one would, too.
const pause = 50 * time.Millisecond

// BlockedAfter is how long a connection takes or sends nothing before it may be ended for what
// it holds by itself.
const BlockedAfter = 5 * time.Second

func (b *Budget) limit() int64 { return cmp.Or(max(b.Bytes, 0), 256<<20) }

func (b *Budget) isNearBound() bool { return b.held.Load() > b.limit()/16*15 }

// Size returns how many bytes may be held.
func Size(b *Budget) int { return int(b.limit()) }

// Held returns how many bytes are held.
func Held(b *Budget) int { return int(b.held.Load()) }

// IsHalfUsed reports whether half of the bound is held.
func IsHalfUsed(b *Budget) bool { return b.held.Load() > b.limit()/2 }

// Add counts n bytes, which may be negative.
func Add(b *Budget, n int) { b.held.Add(int64(n)) }

// Enter adds a member.
func Enter(b *Budget, m Member) { b.members.Store(m, nil) }

// Leave removes a member.
func Leave(b *Budget, m Member) { b.members.Delete(m) }

// Keep is called before more is held. Close to the bound it begins to reclaim, and only beyond
// it the caller waits, if that helps: a flood must not stop what others receive.
func Keep(b *Budget) {
	if !b.isNearBound() {
		return
	}
	if b.reclaiming.TryLock() {
		go b.reclaim()
	}
	if b.held.Load() > b.limit() && !b.inVain.Load() {
		b.reclaiming.Lock()
		b.reclaim()
	}
}

// reclaim resets streams until no more than seven eighths of the bound are held: close to it
// all would have to be looked at again soon. All clusters have equal parts, and in each all holders:
// only those with more lose streams. Streams that nobody reads go first, then the others. Of both, the
// streams of the holder with most go first: the largest, and of equals the oldest. It unlocks reclaiming.
func (b *Budget) reclaim() {
	defer b.reclaiming.Unlock()
	if !b.isNearBound() || b.inVain.Load() && time.Since(b.triedAt) < pause {
		return
	}
	var all []Holding
	for m := range b.members.Range {
		all = m.(Member).AppendHoldings(all)
	}
	held, in, of, holders := 0, map[any]int{}, map[Holder]int{}, map[any]int{}
	for _, h := range all {
		if _, ok := of[h.Holder]; !ok {
			holders[h.In]++
		}
		held += h.Bytes
		in[h.In] += h.Bytes
		of[h.Holder] += h.Bytes
	}
	enough := int(b.limit() / 8 * 7)
	part := enough / max(len(in), 1)
	hasMore := func(h Holding) bool { return in[h.In] > part && of[h.Holder] > part/holders[h.In] }
	all = slices.DeleteFunc(all, func(h Holding) bool { return !hasMore(h) })
	slices.SortFunc(all, func(x, y Holding) int {
		if stalled := x.Waits >= stalledAfter; stalled == (y.Waits < stalledAfter) {
			return cmp.Compare(y.Waits, x.Waits)
		}
		return cmp.Or(cmp.Compare(of[y.Holder], of[x.Holder]), cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(y.Waits, x.Waits))
	})
	for _, h := range all {
		if held > enough && hasMore(h) {
			of[h.Holder] -= h.Bytes
			in[h.In] -= h.Bytes
			held -= h.Bytes
			h.Reclaim()
		}
	}
	b.triedAt = time.Now()
	b.inVain.Store(b.isNearBound())
}

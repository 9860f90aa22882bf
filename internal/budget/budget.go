// Package budget bounds the memory in which bytes wait for somebody: see [Budget].
package budget

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Budget bounds the bytes that wait in the Servers, Agents and Gateways that share it: nobody has
// read them yet, or the other end of a connection has not taken them. If there are more, streams are
// reset: with CodeBudget of package tunnel, or ENHANCE_YOUR_CALM of HTTP/2. Only a client, an agent
// or a replica with more than an equal part loses streams: first those that nobody reads, and of these
// first those of who has most. A session or a connection ends if it holds much by itself and its
// other end has taken or sent nothing for 5 seconds. Share a Budget before its first use, and do not copy it.
type Budget struct {
	// Bytes is how many that may be. Zero means 256 MiB.
	Bytes int64

	held atomic.Int64

	mu      sync.Mutex // guards members; it may be taken with a Member's lock held
	members map[Member]bool

	reclaiming sync.Mutex // guards the field below
	inVain     time.Time  // when reclaim last found too little
}

// Process is the Budget of all that have none.
var Process Budget

// Member is what holds bytes. Its locks are not held while Add, Keep or Reclaim is called, except where
// these say so.
type Member interface {
	// AppendHoldings appends what can be reclaimed, and is not about to be put back anyway.
	AppendHoldings(all []Holding) []Holding
}

// Holding is bytes that one stream holds, or one connection.
type Holding struct {
	Item interface{ Reclaim() } // resets it
	By   Holder
	// Bytes is how many it holds, and Waits the time since some were taken.
	Bytes int
	Waits time.Duration

	most int // what By holds in all
}

// Holder is who lets bytes wait: Of, or a share, whose number is the same in all of the process.
type Holder struct {
	Share uint64
	Of    any
}

// stalledAfter is how long bytes wait before nobody counts as reading them.
const stalledAfter = 250 * time.Millisecond

// pause is the time after a reclaim that has found too little: the next one would, too.
const pause = 50 * time.Millisecond

// BlockedAfter is how long a connection takes or sends nothing before it may be ended for what
// it holds by itself.
const BlockedAfter = 5 * time.Second

func (b *Budget) limit() int64 { return cmp.Or(max(b.Bytes, 0), 256<<20) }

// Held returns how many bytes are held, and by how many members, for tests.
func Held(b *Budget) (bytes, members int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int(b.held.Load()), len(b.members)
}

// Add counts n bytes, which may be negative. A nil Budget bounds nothing.
func Add(b *Budget, n int) {
	if b != nil {
		b.held.Add(int64(n))
	}
}

// Enter adds a member.
func Enter(b *Budget, m Member) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.members == nil {
		b.members = map[Member]bool{}
	}
	b.members[m] = true
}

// Leave removes a member.
func Leave(b *Budget, m Member) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.members, m)
}

// Keep is called without a lock before more is held. Close to the bound it begins to reclaim, and
// only beyond it the caller waits: a flood must not stop what others receive.
func Keep(b *Budget) {
	if b == nil || !b.isNearBound() {
		return
	}
	if b.reclaiming.TryLock() {
		go func() {
			defer b.reclaiming.Unlock()
			b.reclaim()
		}()
	}
	if b.held.Load() > b.limit() {
		b.reclaiming.Lock()
		defer b.reclaiming.Unlock()
		b.reclaim()
	}
}

func (b *Budget) isNearBound() bool { return b.held.Load() > b.limit()/16*15 }

// reclaim resets streams until no more than seven eighths of the bound are held: close to it
// all would have to be looked at again soon. Only holders with more than their part lose
// streams. Streams that nobody reads go first, then the others. Of both, the streams of the holder
// with most go first: the largest, and of equals the oldest.
func (b *Budget) reclaim() {
	if !b.isNearBound() || time.Since(b.inVain) < pause {
		return
	}
	defer func() {
		if b.isNearBound() {
			b.inVain = time.Now()
		}
	}()
	b.mu.Lock()
	members := slices.Collect(maps.Keys(b.members))
	b.mu.Unlock()
	var all []Holding
	for _, m := range members {
		all = m.AppendHoldings(all)
	}
	held, of := int64(0), map[Holder]int{}
	for _, h := range all {
		held += int64(h.Bytes)
		of[h.By] += h.Bytes
	}
	enough := b.limit() / 8 * 7
	part := int(enough) / max(len(of), 1)
	all = slices.DeleteFunc(all, func(h Holding) bool { return of[h.By] <= part })
	for i := range all {
		all[i].most = of[all[i].By]
	}
	slices.SortFunc(all, compareHoldings)
	for _, h := range all {
		if held <= enough {
			return
		}
		if of[h.By] > part {
			of[h.By] -= h.Bytes
			held -= int64(h.Bytes)
			h.Item.Reclaim()
		}
	}
}

func compareHoldings(x, y Holding) int {
	switch stalled := x.Waits >= stalledAfter; {
	case stalled == (y.Waits >= stalledAfter):
		return cmp.Or(cmp.Compare(y.most, x.most), cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(y.Waits, x.Waits))
	case stalled:
		return -1
	}
	return 1
}

package limits

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Client is who connects to what.
type Client struct {
	Name    string // empty: it has none
	Cluster string
	Remote  net.Addr
}

// Error is why a connection is refused, or was ended.
type Error struct {
	Kind  string // "client", "cluster", "source" or "total"
	Name  string // the client's, cluster's or source's
	Limit string // the field, such as "dialsPerSecond"
	Most  string // its value
	// Wait is when to try again; zero: nobody knows.
	Wait time.Duration
}

// Error returns a text like `limit: client "ann": connections: at most 10`.
func (e *Error) Error() string {
	who := e.Kind
	switch e.Kind {
	case kindTotal:
		who = "all clients together"
	case kindCluster, kindClient:
		who += fmt.Sprintf(" %q", e.Name)
	case kindSource:
		who += " " + e.Name
	}
	return fmt.Sprintf("limit: %s: %s: at most %s", who, e.Limit, e.Most)
}

// RetryAfter makes a gateway answer 429.
func (e *Error) RetryAfter() time.Duration { return e.Wait }

// Unavailable makes it answer 503 if others have used up what there is.
func (e *Error) Unavailable() bool { return e.Kind == kindTotal }

const (
	kindClient  = "client"
	kindCluster = "cluster"
	kindSource  = "source"
	kindTotal   = "total"
)

var kinds = []string{kindClient, kindCluster, kindSource, kindTotal}

// Limiter applies a Config, which may change. The zero Limiter has no limits. Its methods
// are safe for concurrent use.
type Limiter struct {
	mu      sync.Mutex // guards the fields below
	config  *Config    // nil: no limits
	holders map[holderKey]*holder
	swept   int // how many holders the last sweep has left
	counts  map[string]*Count
}

type holderKey struct{ kind, name string }

// holder is a client, a cluster or a source, and what it takes.
type holder struct {
	holderKey
	limit  Limit
	open   int
	dials  meter
	day    day
	bytes  *bucket
	counts *Count
}

// Count is what limits of a kind have done.
type Count struct {
	// Refused dials and connections that were ended, by the limit's name.
	Refused map[string]uint64
	// Waited is how long connections had to wait for bytes, all together.
	Waited time.Duration
}

// Set replaces the Config. Connections that are open count, and get the new rates.
func (l *Limiter) Set(c *Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config = c
	for _, h := range l.holders {
		h.set(c.limitFor(h.holderKey))
	}
}

// limitFor returns the Limit of a holder.
func (c *Config) limitFor(k holderKey) Limit {
	of, some := c.Client, c.Clients
	switch k.kind {
	case kindTotal:
		return c.Total
	case kindCluster:
		of, some = c.Cluster, c.Clusters
	case kindSource:
		return c.sourceLimit(k.name)
	}
	if l, ok := some[k.name]; ok {
		return l
	}
	return of
}

func (c *Config) sourceLimit(name string) Limit {
	ip, bits, limit := netip.Addr{}, -1, c.Source
	if network, err := netip.ParsePrefix(name); err == nil {
		ip = network.Addr()
	} else if ip, err = netip.ParseAddr(name); err != nil {
		return limit
	}
	for network, l := range c.Sources {
		if network.Contains(ip) && network.Bits() > bits {
			bits, limit = network.Bits(), l
		}
	}
	return limit
}

// set gives the holder a Limit. What it has used counts on.
func (h *holder) set(l Limit) {
	h.limit = l
	h.dials.set(l.DialsPerSecond, max(1, int(l.DialsPerSecond*10)))
	h.day.set(time.Now(), l.BytesPerDay)
	h.bytes.setRate(l.BytesPerSecond)
}

// meter is a rate.Limiter that may be missing.
type meter struct{ limiter atomic.Pointer[rate.Limiter] }

func (m *meter) set(perSecond float64, burst int) {
	switch r := m.limiter.Load(); {
	case perSecond == 0:
		m.limiter.Store(nil)
	case r == nil:
		m.limiter.Store(rate.NewLimiter(rate.Limit(perSecond), burst))
	case r.Burst() != burst || r.Limit() != rate.Limit(perSecond):
		now := time.Now()
		used := max(0, float64(r.Burst())-r.TokensAt(now))
		r = rate.NewLimiter(rate.Limit(perSecond), burst)
		r.AllowN(now, int(min(used, float64(burst))))
		m.limiter.Store(r)
	}
}

func (m *meter) allow(now time.Time, n int) bool {
	r := m.limiter.Load()
	return r == nil || r.AllowN(now, n)
}

// wait returns when there will be n tokens; zero if there are.
func (m *meter) wait(now time.Time, n float64) time.Duration {
	r := m.limiter.Load()
	if r == nil {
		return 0
	}
	missing := min(n, float64(r.Burst())) - r.TokensAt(now)
	return max(0, time.Duration(math.Ceil(missing/float64(r.Limit())*1000))*time.Millisecond)
}

func (m *meter) isFull(now time.Time) bool {
	return m.wait(now, math.Inf(1)) == 0
}

// Admit returns the connection that dial makes, within the limits; or an *[Error]. The
// connection counts until it is closed. metered tells dial that its bytes are limited.
func (l *Limiter) Admit(ctx context.Context, c Client, dial func(ctx context.Context, metered bool) (net.Conn, error)) (net.Conn, error) {
	l.mu.Lock()
	if l.config == nil {
		l.mu.Unlock()
		return dial(ctx, false)
	}
	all, err := l.enterLocked(c)
	metered := slices.ContainsFunc(all, func(h *holder) bool { return h.limit.BytesPerSecond+h.limit.BytesPerDay > 0 })
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	conn, err := dial(ctx, metered)
	if err != nil {
		l.leave(all)
		return nil, err
	}
	return &limitedConn{
		Conn: conn, limiter: l, client: cmp.Or(c.Name, SourceOf(c.Remote)), holders: all, metered: metered, done: make(chan struct{}),
	}, nil
}

// enterLocked counts a connection for all whose limits it has to keep.
func (l *Limiter) enterLocked(c Client) ([]*holder, error) {
	now := time.Now()
	if len(l.holders) >= 2*l.swept+maxIdle {
		l.sweepLocked(now)
	}
	keys := []holderKey{{kindTotal, ""}, {kindCluster, c.Cluster}}
	if c.Name != "" {
		keys = append(keys, holderKey{kindClient, c.Name})
	}
	if source := SourceOf(c.Remote); source != "" {
		keys = append(keys, holderKey{kindSource, source})
	}
	var all []*holder
	for _, k := range keys {
		h := l.holderLocked(k)
		if err := h.check(now); err != nil {
			h.counts.Refused[err.Limit]++
			return nil, err
		}
		all = append(all, h)
	}
	for _, h := range all {
		h.dials.allow(now, 1)
		h.open++
	}
	return all, nil
}

// check returns why the holder may have no other connection now.
func (h *holder) check(now time.Time) *Error {
	fail := func(limit string, most any, wait time.Duration) *Error {
		return &Error{Kind: h.kind, Name: h.name, Limit: limit, Most: fmt.Sprint(most), Wait: wait}
	}
	if h.limit.Connections > 0 && h.open >= h.limit.Connections {
		return fail("connections", h.limit.Connections, 0)
	}
	if wait := h.dials.wait(now, 1); wait > 0 {
		return fail("dialsPerSecond", h.limit.DialsPerSecond, wait)
	}
	if wait := h.day.wait(now, maxPiece); wait > 0 { // less is of no use
		return fail("bytesPerDay", h.limit.BytesPerDay, wait)
	}
	return nil
}

// maxIdle is how many holders without connections are kept before they are looked at. A
// stranger can be a new source as often as it likes.
const maxIdle = 1000

func (l *Limiter) holderLocked(k holderKey) *holder {
	if h := l.holders[k]; h != nil {
		return h
	}
	if l.holders == nil {
		l.holders, l.counts = map[holderKey]*holder{}, map[string]*Count{}
		for _, kind := range kinds {
			l.counts[kind] = &Count{Refused: map[string]uint64{}}
		}
	}
	h := &holder{holderKey: k, bytes: newBucket(0), counts: l.counts[k.kind]}
	h.set(l.config.limitFor(k))
	l.holders[k] = h
	return h
}

// sweepLocked forgets the holders that would be the same if they were made anew.
func (l *Limiter) sweepLocked(now time.Time) {
	for k, h := range l.holders {
		if h.open == 0 && h.dials.isFull(now) && h.day.isUnused(now) {
			delete(l.holders, k)
		}
	}
	l.swept = len(l.holders)
}

func (l *Limiter) leave(all []*holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range all {
		h.open--
	}
}

// Counts returns what the limits have done, by kind.
func (l *Limiter) Counts() map[string]Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]Count{}
	for _, kind := range kinds {
		count := Count{Refused: map[string]uint64{}}
		for _, limit := range []string{"connections", "dialsPerSecond", "bytesPerDay"} {
			count.Refused[limit] = 0
		}
		if c := l.counts[kind]; c != nil {
			maps.Copy(count.Refused, c.Refused)
			count.Waited = c.Waited
		}
		all[kind] = count
	}
	return all
}

// SourceOf returns the address of a client, or for IPv6 its network (/64), because one
// site has a whole network; empty for a unix socket.
func SourceOf(remote net.Addr) string {
	if remote == nil {
		return ""
	}
	ip, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return ""
	}
	addr := ip.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	prefix, _ := addr.Prefix(64)
	return prefix.String()
}

func (l *Limiter) countWait(h *holder, waited time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.counts.Waited += waited
}

// spendDay takes n bytes of the day's. The last connection may take a little more than
// there is.
func (l *Limiter) spendDay(h *holder, n int) error {
	now := time.Now()
	if h.day.allow(now, n) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.counts.Refused["bytesPerDay"]++
	return &Error{Kind: h.kind, Name: h.name, Limit: "bytesPerDay", Most: fmt.Sprint(h.limit.BytesPerDay), Wait: h.day.wait(now, maxPiece)}
}

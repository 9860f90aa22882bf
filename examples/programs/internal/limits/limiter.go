package limits

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/internal/turns"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// Error is why a connection is refused.
type Error struct {
	Kind  string // "client", "cluster", "source" or "total"
	Name  string // the client's, cluster's or source's
	Limit string // the field, such as "dialsPerSecond"
	Most  float64
	// Wait is when to try again; zero: nobody knows.
	Wait time.Duration
}

// Error returns a text like `limit: client "ann": connections: at most 10`.
func (e *Error) Error() string {
	who := "all clients together"
	if e.Kind != kindTotal {
		who = fmt.Sprintf("%s %q", e.Kind, e.Name)
	}
	return fmt.Sprintf("limit: %s: %s: at most %.12g", who, e.Limit, e.Most)
}

// RetryAfter makes a gateway answer 429.
func (e *Error) RetryAfter() time.Duration { return e.Wait }

// Unavailable makes it answer 503 if the limit is for all clients.
func (e *Error) Unavailable() bool { return e.Kind == kindTotal }

const (
	kindClient  = "client"
	kindCluster = "cluster"
	kindSource  = "source"
	kindTotal   = "total"

	connections    = "connections"
	dialsPerSecond = "dialsPerSecond"
	bytesPerSecond = "bytesPerSecond"

	// maxPiece is how many bytes are taken at once. It is also the lowest bytesPerSecond:
	// with less, hardly a TLS handshake ends.
	maxPiece = 16 << 10
	// maxIdle is how many holders without connections are kept before they are looked at.
	// A stranger can be a new source as often as it likes.
	maxIdle = 1000
)

// Limiter applies a Config, which may change. Its methods are safe for concurrent use.
type Limiter struct {
	// Refused counts dials, and Waited the seconds that connections have waited for bytes.
	Refused, Waited *prometheus.CounterVec

	mu      sync.Mutex // guards the fields below, and the holders' limit and open
	config  *Config    // nil: no limits
	holders map[holderKey]*holder
	swept   int // how many holders the last sweep has left
}

type holderKey struct{ kind, name string }

// holder is a client, a cluster, a source or all together, and what it uses.
type holder struct {
	holderKey
	limit        limit
	open         int
	dials, bytes *rate.Limiter
	turn         chan struct{} // full while a connection takes bytes: the others wait in line
}

// New returns a Limiter without limits.
func New() *Limiter {
	l := &Limiter{holders: map[holderKey]*holder{}}
	l.Refused = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "causeway_limit_refusals_total",
		Help: "Connections that a limit has refused, by what it is for and its name in --limits."}, []string{"kind", "limit"})
	l.Waited = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "causeway_limit_wait_seconds_total",
		Help: "How long connections have waited because of bytesPerSecond, all together, by what the limit is for."}, []string{"kind"})
	for _, kind := range []string{kindClient, kindCluster, kindSource, kindTotal} {
		l.Waited.WithLabelValues(kind)
		l.Refused.WithLabelValues(kind, connections)
	}
	return l
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

// limitFor returns the limit of a holder. Of networks, the smallest applies.
func (c *Config) limitFor(k holderKey) limit {
	of := c.kinds[k.kind]
	if l, ok := of.some[k.name]; ok {
		return l
	}
	if k.kind == kindSource {
		source, _ := cli.ParseNetwork(k.name)
		for bits := source.Bits(); bits >= 0 && len(of.some) > 0; bits-- {
			network, _ := source.Addr().Prefix(bits)
			if l, ok := of.some[network.String()]; ok {
				return l
			}
		}
	}
	return of.each
}

// set gives the holder another limit. What it has used already still counts.
func (h *holder) set(l limit) {
	h.limit = l
	h.dials.SetLimit(rate.Limit(l.dialsPerSecond))
	h.dials.SetBurst(int(min(max(1, 10*l.dialsPerSecond), math.MaxInt32)))
	h.bytes.SetLimit(rate.Limit(l.bytesPerSecond))
	h.bytes.SetBurst(int(min(max(maxPiece, l.bytesPerSecond/10), math.MaxInt32)))
}

// waitFor returns when r has n tokens; zero if it has them.
func waitFor(r *rate.Limiter, now time.Time, n int) time.Duration {
	missing := float64(n) - r.TokensAt(now)
	return max(0, time.Duration(missing/float64(r.Limit())*float64(time.Second)))
}

// Admit returns the connection that dial makes, within the limits; or an *[Error]. The
// connection counts until it is closed. metered tells dial that its bytes are limited.
func (l *Limiter) Admit(ctx context.Context, to gateway.Request, dial func(ctx context.Context, metered bool) (net.Conn, error)) (net.Conn, error) {
	all, metered, refused := l.enter(to)
	if refused != nil {
		l.Refused.WithLabelValues(refused.Kind, refused.Limit).Inc()
		return nil, refused
	}
	conn, err := dial(ctx, metered)
	if err != nil || all == nil {
		l.leave(all)
		return conn, err
	}
	limited := &limitedConn{Conn: conn, limiter: l, holders: all, done: make(chan struct{})}
	if direct, ok := conn.(copier); ok && !metered {
		return struct {
			*limitedConn
			copier
		}{limited, direct}, nil
	}
	return limited, nil
}

// enter counts a connection for all whose limits it has to keep.
func (l *Limiter) enter(to gateway.Request) (all []*holder, metered bool, err *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if len(l.holders) >= 2*l.swept+maxIdle {
		l.sweepLocked(now)
	}
	keys := []holderKey{{kindSource, SourceOf(to.Credentials.Remote)}, {kindClient, to.Client.Name}, {kindCluster, to.Cluster}, {kindTotal, "all"}}
	for _, k := range keys {
		if k.name == "" || l.config == nil { // a client without a name, or at a unix socket
			continue
		}
		h := l.holders[k]
		if h == nil {
			h = &holder{holderKey: k, dials: rate.NewLimiter(0, math.MaxInt32), bytes: rate.NewLimiter(0, math.MaxInt32), turn: make(chan struct{}, 1)}
			h.set(l.config.limitFor(k))
			l.holders[k] = h
		}
		if float64(h.open) >= h.limit.connections {
			return nil, false, &Error{Kind: k.kind, Name: k.name, Limit: connections, Most: h.limit.connections}
		}
		if wait := waitFor(h.dials, now, 1); wait > 0 {
			return nil, false, &Error{Kind: k.kind, Name: k.name, Limit: dialsPerSecond, Most: h.limit.dialsPerSecond, Wait: wait}
		}
		all = append(all, h)
	}
	for _, h := range all {
		h.dials.AllowN(now, 1)
		h.open++
		metered = metered || h.limit.bytesPerSecond < float64(rate.Inf)
	}
	return all, metered, nil
}

// sweepLocked forgets the holders that would be the same if they were made anew.
func (l *Limiter) sweepLocked(now time.Time) {
	maps.DeleteFunc(l.holders, func(_ holderKey, h *holder) bool {
		return h.open == 0 && waitFor(h.dials, now, h.dials.Burst()) == 0 && waitFor(h.bytes, now, h.bytes.Burst()) == 0
	})
	l.swept = len(l.holders)
}

func (l *Limiter) leave(all []*holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range all {
		h.open--
	}
}

// SourceOf returns the address of a client, or for IPv6 its network (/64); empty for a unix
// socket.
func SourceOf(remote net.Addr) string {
	if source := turns.Source(remote); source.IsValid() {
		return strings.TrimSuffix(source.String(), "/32")
	}
	return ""
}

// copier has the methods by which a stream of the tunnel copies without a buffer. Nobody
// counts the bytes then.
type copier interface {
	io.ReaderFrom
	io.WriterTo
	DeliverTo(net.Conn) (int64, error)
}

// limitedConn is the connection to a target. It counts for its holders until it is
// closed, and waits when one of them has used up its bytes.
type limitedConn struct {
	net.Conn
	limiter *Limiter
	holders []*holder
	done    chan struct{} // closed by Close
	once    sync.Once
}

// NetConn returns the connection below, which may have a method Reset.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }

// Close closes the connection.
func (c *limitedConn) Close() error {
	c.once.Do(func() {
		close(c.done)
		c.limiter.leave(c.holders)
	})
	return c.Conn.Close()
}

// CloseWrite ends what is written.
func (c *limitedConn) CloseWrite() error { return relay.CloseWrite(c.Conn) }

// Read reads what the target sends.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), maxPiece)])
	if !c.takeBytes(n) {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write writes what the client sends.
func (c *limitedConn) Write(p []byte) (n int, err error) {
	for {
		piece := p[n:min(len(p), n+maxPiece)]
		if !c.takeBytes(len(piece)) {
			return n, net.ErrClosed
		}
		m, err := c.Conn.Write(piece)
		if n += m; err != nil || n >= len(p) {
			return n, err
		}
	}
}

// takeBytes takes n bytes, at most maxPiece, from all holders, and waits for them. It
// returns false at once when the connection is closed. A connection that waits for its own
// source or client takes nothing from what all share.
func (c *limitedConn) takeBytes(n int) bool {
	for _, h := range c.holders {
		if h.bytes.Limit() == rate.Inf || n == 0 {
			continue
		}
		began := time.Now()
		ok := h.take(n, c.done)
		c.limiter.Waited.WithLabelValues(h.kind).Add(time.Since(began).Seconds())
		if !ok {
			return false
		}
	}
	return true
}

// take waits for n bytes, in line. Nothing is reserved: a connection that is closed while
// it waits has taken nothing.
func (h *holder) take(n int, done <-chan struct{}) bool {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-done:
		return false
	}
	for !h.bytes.AllowN(time.Now(), n) {
		select {
		case <-time.After(max(time.Millisecond, waitFor(h.bytes, time.Now(), n))):
		case <-done:
			return false
		}
	}
	return true
}

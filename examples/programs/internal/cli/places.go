package cli

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/turns"
)

const (
	// maxPages is how many connections a page has at once. Others wait for a place, or get
	// that of one of the address with the most, or of the oldest: a kubelet's probe is not
	// kept out.
	maxPages = 64
	// answerTimeout is how long a request may wait for its turn and compute.
	answerTimeout = 30 * time.Second
)

// newPlaceListener returns a listener of connections that have a place, until they are closed.
func newPlaceListener(l net.Listener) net.Listener {
	places := admission.New(maxPages, 0)
	places.Patience = 100 * time.Millisecond // a request takes far less
	return group.NewListener(l, func(ctx context.Context, conn net.Conn) net.Conn {
		place, err := places.Enter(ctx, conn)
		if err != nil {
			conn.Close()
			return nil
		}
		place.Settle(false)
		place.Wait() // even while a request is served: its client may send more, and not read
		return &placeConn{conn, place}
	})
}

type placeConn struct {
	net.Conn
	place *admission.Place
}

// Close gives the place back, too.
func (c *placeConn) Close() error {
	c.place.Leave()
	return c.Conn.Close()
}

// connContext makes the connection known to inTurn.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, (*placeConn)(nil), conn)
}

// inTurn has requests compute one after the other, in turn by source. Pages, metrics and
// readiness don't wait for each other, and /healthz computes nothing. Who does not read the
// answer keeps no turn: TimeoutHandler writes it afterwards.
func inTurn(h http.Handler) http.Handler {
	queues := map[string]*turns.Queue[netip.Prefix]{"/healthz": nil}
	for _, path := range []string{"/readyz", "/metrics", ""} {
		queues[path] = turns.New[netip.Prefix](1, 0)
	}
	turned := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queue, ok := queues[r.URL.Path]
		if !ok {
			queue = queues[""]
		}
		if queue != nil {
			conn := r.Context().Value((*placeConn)(nil)).(*placeConn)
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(conn.place.Context(), cancel)()
			if queue.Enter(ctx, turns.Source(conn.RemoteAddr())) != nil {
				return // nobody waits for the answer any more
			}
			defer queue.Leave()
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
	return http.TimeoutHandler(turned, answerTimeout, "too busy\n")
}

// Go runs f until stop is called, which ends its context and waits for its end.
func Go(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// StartPage serves h at address, a flag's value, until stop is called, whether or not ctx has
// ended; for an empty address nothing. Stop returns what failed.
func StartPage(ctx context.Context, log *slog.Logger, what, address string, h http.Handler) (stop func() error, err error) {
	l, err := Listen(ctx, address)
	if l == nil {
		return func() error { return nil }, err
	}
	log.Info("listening", "for", what, "address", l.Addr().String())
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- ServeHTTP(ctx, l, h) }()
	return func() error {
		end()
		return <-served
	}, nil
}

package cli

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
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

// placeListener gives each connection a place, until it is closed.
type placeListener struct {
	net.Listener
	places *admission.Admission
}

func newPlaceListener(l net.Listener) placeListener {
	p := placeListener{l, admission.New(maxPages, 0)}
	p.places.Patience = 100 * time.Millisecond // a request takes far less
	return p
}

// Accept does not wait for a place.
func (l placeListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &placeConn{Conn: conn, ctx: ctx, cancel: cancel}
	c.enter = sync.OnceValues(func() (*admission.Place, error) {
		place, err := l.places.Enter(ctx, conn)
		if err == nil {
			place.Settle(false)
			place.Wait() // even while a request is served: its client may send more, and not read
			context.AfterFunc(place.Context(), cancel)
		}
		return place, err
	})
	return c, nil
}

type placeConn struct {
	net.Conn
	ctx    context.Context // ends when the place is lost or the connection closed
	enter  func() (*admission.Place, error)
	cancel context.CancelFunc
}

// Read waits for a place the first time. net/http answers an error that is not of the network
// with 400, as if the request were wrong.
func (c *placeConn) Read(b []byte) (int, error) {
	if _, err := c.enter(); err != nil {
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: err}
	}
	return c.Conn.Read(b)
}

// Close ends the wait for a place, too.
func (c *placeConn) Close() error {
	c.cancel()
	if place, err := c.enter(); err == nil {
		place.Leave()
	}
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
			defer context.AfterFunc(conn.ctx, cancel)()
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

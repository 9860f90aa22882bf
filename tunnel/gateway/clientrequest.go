package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/relay"
)

// clientRequest is one connection, or one HTTP/2 stream, from its first byte to its
// end.
type clientRequest struct {
	g          *Gateway
	began      time.Time
	request    Request // as far as it is known
	counted    bool    // for MaxConns
	countedFor string  // that it counts for; empty if for none
	dialed     int     // bytes from the client that Dial has written
	mayDial    bool    // what is refused after that costs little
}

// requestCounts counts the requests of a Gateway.
type requestCounts struct {
	total        atomic.Uint64
	failed       atomic.Uint64
	in, out      atomic.Uint64 // bytes from and to the clients, added when a request ends
	maxOpen      int
	maxPerClient int

	mu       sync.Mutex // guards the fields below
	open     int        // all that have not ended
	admitted int        // the open ones that count for MaxConns
	clients  map[string]int
}

var (
	errTooMany   = errors.New("too many connections")
	errTooManyOf = errors.New("too many connections of this client")
	errNoRoute   = errors.New("there is no such cluster")
	errNoAddress = errors.New("the target has no host:port")
)

// beginRequest begins a request, which does not count for MaxConns yet. The caller
// calls finish at its end.
func (g *Gateway) beginRequest(door Door, remote net.Addr) *clientRequest {
	g.requests.total.Add(1)
	g.requests.mu.Lock()
	defer g.requests.mu.Unlock()
	g.requests.open++
	return &clientRequest{g: g, began: time.Now(), request: Request{Door: door, Credentials: Credentials{Door: door, Remote: remote}}}
}

func (r *clientRequest) finish() {
	vs := &r.g.requests
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.open--
	if !r.counted {
		return
	}
	vs.admitted--
	if name := r.countedFor; name != "" {
		if vs.clients[name]--; vs.clients[name] == 0 {
			delete(vs.clients, name)
		}
	}
}

// recordFailure tells Hooks of an error, and returns the *Error that it told.
func (r *clientRequest) recordFailure(phase Phase, err error) *Error {
	e := &Error{Request: r.request, Phase: phase, Err: err}
	r.g.requests.failed.Add(1)
	if failed := r.g.Hooks.Failed; failed != nil {
		failed(e)
	}
	return e
}

// authorize authenticates the client, counts it, and routes what it asks for. The
// error is an *Error whose Phase says what failed.
func (r *clientRequest) authorize(ctx context.Context, c Credentials) error {
	if err := r.authenticate(ctx, c); err != nil {
		return err
	}
	return r.route(ctx, c.Address)
}

// authenticate is the first half of authorize. The SOCKS5 door, which has no Address
// yet, calls it by itself.
func (r *clientRequest) authenticate(ctx context.Context, c Credentials) error {
	r.request.Address = c.Address
	authenticate := r.g.Authenticate
	if authenticate == nil {
		return r.recordFailure(PhaseAuthenticate, errNobody)
	}
	id, err := authenticate(ctx, c)
	if err != nil {
		return r.recordFailure(PhaseAuthenticate, err)
	}
	c.Password, c.Bearer = "", ""
	r.request = Request{Door: c.Door, Client: id, Credentials: c, Cluster: id.Cluster}
	return nil
}

// route is the second half of authorize.
func (r *clientRequest) route(ctx context.Context, address string) error {
	r.request.Credentials.Address, r.request.Address = address, address
	if err := r.countAdmitted(r.request.Client.Name); err != nil {
		return r.recordFailure(PhaseLimit, err)
	}
	if r.g.Route != nil {
		if err := r.g.Route(ctx, &r.request); err != nil {
			return r.recordFailure(PhaseRoute, err)
		}
	}
	if _, _, err := net.SplitHostPort(r.request.Address); err != nil {
		return r.recordFailure(PhaseRoute, errNoAddress)
	}
	return nil
}

// countAdmitted counts a client for MaxConns, of which one that has a name may have three times as many as are
// free, and for MaxPerClient.
func (r *clientRequest) countAdmitted(name string) error {
	vs := &r.g.requests
	vs.mu.Lock()
	defer vs.mu.Unlock()
	most := 3 * (vs.maxOpen - vs.admitted)
	if vs.maxPerClient > 0 {
		most = min(most, vs.maxPerClient)
	}
	switch {
	case vs.admitted >= vs.maxOpen:
		return errTooMany
	case name != "" && vs.clients[name] >= most:
		return errTooManyOf
	}
	vs.admitted++
	r.counted = true
	if name != "" {
		vs.clients[name]++
		r.countedFor = name
	}
	return nil
}

// dial connects the target. first is what the client has sent for it already; dial
// returns what of it is still to be written. The error is an *Error around Dial's.
func (r *clientRequest) dial(ctx context.Context, first []byte) (net.Conn, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.g.DialTimeout, 30*time.Second))
	defer cancel()
	r.mayDial = true
	account := r.g.accounts.enter(accountKey(r.request.Client, r.request.Credentials.Remote))
	defer account.leave()
	answered, err := account.dials.Enter(ctx)
	if err != nil {
		return nil, nil, r.recordFailure(PhaseDial, err)
	}
	began := time.Now()
	request, early := r.request, first
	if isHandshake(first) {
		request.early = &early
	}
	conn, err := r.g.Dial(ctx, request)
	answered()
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err == nil && conn == nil {
		err = errors.New("function Dial returned neither a connection nor an error")
	}
	if dialed := r.g.Hooks.Dialed; dialed != nil {
		dialed(r.request, time.Since(began), err)
	}
	if limited := (Limited)(nil); errors.As(err, &limited) {
		return nil, nil, r.recordFailure(PhaseLimit, err)
	}
	if err != nil {
		return nil, nil, r.recordFailure(PhaseDial, err)
	}
	r.dialed = len(first) - len(early)
	return conn, early, nil
}

// awaitRefusal returns when the client may be told that the request is refused. It waits for who has left, too.
func (r *clientRequest) awaitRefusal(ctx context.Context) {
	cost := wasteRefusal
	if r.mayDial {
		cost = wasteDial
	}
	r.g.rest(ctx, accountKey(r.request.Client, r.request.Credentials.Remote), cost)
}

// rest counts n of what brings nothing, and waits if the client has done too much of that.
func (g *Gateway) rest(ctx context.Context, client any, n int) {
	wait := g.accounts.waste(client, n)
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// isHandshake reports whether b begins a TLS handshake, and may travel with a dial.
func isHandshake(b []byte) bool {
	const recordHandshake, recordHeader = 22, 5
	return len(b) > recordHeader && len(b) <= maxEarly && b[0] == recordHandshake && b[1] == 3
}

// relay copies between client and target until both have ended or ctx ends. Both are
// closed when it returns. early was already read from the client; written is called when the target has it.
func (r *clientRequest) relay(ctx context.Context, early []byte, written func(), client, target net.Conn) {
	to := target.RemoteAddr()
	res := relay.RelayEarly(ctx, early, written, client, target)
	res.AToB += int64(r.dialed)
	r.g.requests.in.Add(uint64(res.AToB))
	r.g.requests.out.Add(uint64(res.BToA))
	if ended := r.g.Hooks.Ended; ended != nil {
		err := res.Err
		if cause := errors.Unwrap(err); cause != nil { // without the relay's own words
			err = cause
		}
		ended(r.request, Ended{In: res.AToB, Out: res.BToA, Took: time.Since(r.began), Target: to, Err: err})
	}
}

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/relay"
)

// A clientRequest is one connection or HTTP/2 stream, from its first byte to its end.
type clientRequest struct {
	g          *Gateway
	began      time.Time
	request    Request // as far as it is known
	counted    bool    // for MaxConns
	countedFor string  // that it counts for; empty if for none
}

// requestCounts counts those that are there.
type requestCounts struct {
	total        atomic.Uint64
	failed       atomic.Uint64
	in, out      atomic.Uint64 // bytes from and to the clients, of those that ended
	maxOpen      int
	maxPerClient int

	mu       sync.Mutex // guards the fields below
	open     int        // all that are there
	admitted int        // those of them that count for MaxConns
	clients  map[string]int
}

func (v *requestCounts) setLimits(most, perClient int) {
	v.maxOpen, v.maxPerClient, v.clients = most, perClient, map[string]int{}
}

var (
	errTooMany   = errors.New("too many connections")
	errTooManyOf = errors.New("too many connections of this client")
	errNoRoute   = errors.New("there is no such cluster")
	errNoAddress = errors.New("the target has no host:port")
)

// beginRequest begins a visit, which counts for nothing yet; the caller calls leave at
// its end.
func (g *Gateway) beginRequest(door Door, remote net.Addr) *clientRequest {
	g.requests.total.Add(1)
	g.requests.mu.Lock()
	defer g.requests.mu.Unlock()
	g.requests.open++
	return &clientRequest{g: g, began: time.Now(), request: Request{Door: door, Credentials: Credentials{Door: door, Remote: remote}}}
}

func (v *clientRequest) finish() {
	vs := &v.g.requests
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.open--
	if !v.counted {
		return
	}
	vs.admitted--
	if name := v.countedFor; name != "" {
		if vs.clients[name]--; vs.clients[name] == 0 {
			delete(vs.clients, name)
		}
	}
}

// recordFailure tells Hooks, and returns what it told.
func (v *clientRequest) recordFailure(phase Phase, err error) *Error {
	e := &Error{Request: v.request, Phase: phase, Err: err}
	v.g.requests.failed.Add(1)
	v.g.Hooks.failed(e)
	return e
}

// authorize authenticates the client, counts it, and routes what it asks for. The
// error is an *Error whose Phase says what failed.
func (v *clientRequest) authorize(ctx context.Context, c Credentials) error {
	if err := v.authenticate(ctx, c); err != nil {
		return err
	}
	return v.route(ctx, c.Address)
}

// authenticate is the first half of admit, for a door that has no Address yet.
func (v *clientRequest) authenticate(ctx context.Context, c Credentials) error {
	v.request.Address = c.Address
	authenticate := v.g.Authenticate
	if authenticate == nil {
		return v.recordFailure(PhaseAuthenticate, errNobody)
	}
	id, err := authenticate(ctx, c)
	if err != nil {
		return v.recordFailure(PhaseAuthenticate, err)
	}
	c.Password, c.Bearer = "", ""
	v.request = Request{Door: c.Door, Client: id, Credentials: c, Cluster: id.Cluster}
	return nil
}

// route is the second half of admit.
func (v *clientRequest) route(ctx context.Context, address string) error {
	v.request.Credentials.Address, v.request.Address = address, address
	if err := v.countAdmitted(v.request.Client.Name); err != nil {
		return v.recordFailure(PhaseLimit, err)
	}
	if v.g.Route != nil {
		if err := v.g.Route(ctx, &v.request); err != nil {
			return v.recordFailure(PhaseRoute, err)
		}
	}
	if _, _, err := net.SplitHostPort(v.request.Address); err != nil {
		return v.recordFailure(PhaseRoute, errNoAddress)
	}
	return nil
}

// countAdmitted counts a client for MaxConns, and one with a name for MaxPerClient.
func (v *clientRequest) countAdmitted(name string) error {
	vs := &v.g.requests
	if vs.maxPerClient <= 0 {
		name = ""
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	switch {
	case vs.admitted >= vs.maxOpen:
		return errTooMany
	case name != "" && vs.clients[name] >= vs.maxPerClient:
		return errTooManyOf
	}
	vs.admitted++
	v.counted = true
	if name != "" {
		vs.clients[name]++
		v.countedFor = name
	}
	return nil
}

// dial connects the target. The error is an *Error around Dial's.
func (v *clientRequest) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, orDefault(v.g.DialTimeout, 30*time.Second))
	defer cancel()
	began := time.Now()
	conn, err := v.g.Dial(ctx, v.request)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err == nil && conn == nil {
		err = errors.New("function Dial returned neither a connection nor an error")
	}
	v.g.Hooks.dialed(v.request, time.Since(began), err)
	if err != nil {
		return nil, v.recordFailure(PhaseDial, err)
	}
	return conn, nil
}

// relay joins client and target until both have ended; ctx cuts them. Both are
// closed when it returns. early is what was already read of the client.
func (v *clientRequest) relay(ctx context.Context, early []byte, client, target net.Conn) {
	res := relay.RelayEarly(ctx, early, client, target)
	v.g.requests.in.Add(uint64(res.AToB))
	v.g.requests.out.Add(uint64(res.BToA))
	v.g.Hooks.ended(v.request, Ended{In: res.AToB, Out: res.BToA, Took: time.Since(v.began), Err: res.Err})
}

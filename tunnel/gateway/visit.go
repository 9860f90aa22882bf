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

// A visit is one connection or HTTP/2 stream, from its first byte to its end.
type visit struct {
	g       *Gateway
	began   time.Time
	request Request // as far as it is known
	counted bool    // for MaxConns
	client  string  // that it counts for; empty if for none
}

// visits counts those that are there.
type visits struct {
	total     atomic.Uint64
	failed    atomic.Uint64
	in, out   atomic.Uint64 // bytes from and to the clients, of those that ended
	most      int
	perClient int

	mu      sync.Mutex // guards the fields below
	open    int        // all that are there
	letIn   int        // those of them that count for MaxConns
	clients map[string]int
}

func (v *visits) init(most, perClient int) {
	v.most, v.perClient, v.clients = most, perClient, map[string]int{}
}

var (
	errTooMany   = errors.New("too many connections")
	errTooManyOf = errors.New("too many connections of this client")
	errNoRoute   = errors.New("there is no such cluster")
	errNoAddress = errors.New("the target has no host:port")
)

// enter begins a visit, which counts for nothing yet; the caller calls leave at
// its end.
func (g *Gateway) enter(door Door, remote net.Addr) *visit {
	g.visits.total.Add(1)
	g.visits.mu.Lock()
	defer g.visits.mu.Unlock()
	g.visits.open++
	return &visit{g: g, began: time.Now(), request: Request{Door: door, Credentials: Credentials{Door: door, Remote: remote}}}
}

func (v *visit) leave() {
	vs := &v.g.visits
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.open--
	if !v.counted {
		return
	}
	vs.letIn--
	if name := v.client; name != "" {
		if vs.clients[name]--; vs.clients[name] == 0 {
			delete(vs.clients, name)
		}
	}
}

// fail tells Hooks, and returns what it told.
func (v *visit) fail(phase Phase, err error) *Error {
	e := &Error{Request: v.request, Phase: phase, Err: err}
	v.g.visits.failed.Add(1)
	v.g.Hooks.failed(e)
	return e
}

// admit authenticates the client, counts it, and routes what it asks for. The
// error is an *Error whose Phase says what failed.
func (v *visit) admit(ctx context.Context, c Credentials) error {
	if err := v.authenticate(ctx, c); err != nil {
		return err
	}
	return v.route(ctx, c.Address)
}

// authenticate is the first half of admit, for a door that has no Address yet.
func (v *visit) authenticate(ctx context.Context, c Credentials) error {
	v.request.Address = c.Address
	authenticate := v.g.Authenticate
	if authenticate == nil {
		return v.fail(PhaseAuthenticate, errNobody)
	}
	id, err := authenticate(ctx, c)
	if err != nil {
		return v.fail(PhaseAuthenticate, err)
	}
	c.Password, c.Bearer = "", ""
	v.request = Request{Door: c.Door, Client: id, Credentials: c, Cluster: id.Cluster}
	return nil
}

// route is the second half of admit.
func (v *visit) route(ctx context.Context, address string) error {
	v.request.Credentials.Address, v.request.Address = address, address
	if err := v.count(v.request.Client.Name); err != nil {
		return v.fail(PhaseLimit, err)
	}
	if v.g.Route != nil {
		if err := v.g.Route(ctx, &v.request); err != nil {
			return v.fail(PhaseRoute, err)
		}
	}
	if _, _, err := net.SplitHostPort(v.request.Address); err != nil {
		return v.fail(PhaseRoute, errNoAddress)
	}
	return nil
}

// count counts a client for MaxConns, and one with a name for MaxPerClient.
func (v *visit) count(name string) error {
	vs := &v.g.visits
	if vs.perClient <= 0 {
		name = ""
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	switch {
	case vs.letIn >= vs.most:
		return errTooMany
	case name != "" && vs.clients[name] >= vs.perClient:
		return errTooManyOf
	}
	vs.letIn++
	v.counted = true
	if name != "" {
		vs.clients[name]++
		v.client = name
	}
	return nil
}

// dial connects the target. The error is an *Error around Dial's.
func (v *visit) dial(ctx context.Context) (net.Conn, error) {
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
		return nil, v.fail(PhaseDial, err)
	}
	return conn, nil
}

// relay joins client and target until both have ended; ctx cuts them. Both are
// closed when it returns. early is what was already read of the client.
func (v *visit) relay(ctx context.Context, early []byte, client, target net.Conn) {
	res := relay.RelayEarly(ctx, early, client, target)
	v.g.visits.in.Add(uint64(res.AToB))
	v.g.visits.out.Add(uint64(res.BToA))
	v.g.Hooks.ended(v.request, Ended{In: res.AToB, Out: res.BToA, Took: time.Since(v.began), Err: res.Err})
}

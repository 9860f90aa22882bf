package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// replica is one of the tunnel's servers, and what dials by it.
type replica struct {
	server *tunnel.Server
	store  remoteStore
	drain  context.CancelFunc
	served chan error // closed after what Serve returned
	grace  time.Duration
	places []place
	load   *load

	forwarded atomic.Int64

	mu    sync.Mutex // guards the field below
	peers map[string]int
}

func newReplica() *replica { return &replica{peers: map[string]int{}} }

func (r *replica) ops() map[string]op {
	return map[string]op{
		"start": handler(r.start), "peers": handler(r.countPeers), "places": handler(r.setPlaces), "rate": handler(r.setRate),
		"results": handler(r.takeResults), "leave": handler(r.drainAndLeave),
	}
}

// replicaArgs has a replica's identity and settings.
type replicaArgs struct {
	Name, Address    string
	Peers            []string // this one's address may be among them
	Certificate, Key []byte   // the Authority's, PEM
	Store            string   // where it is
	Grace            time.Duration
}

func (r *replica) start(_ context.Context, args replicaArgs) (none, error) {
	authority, err := tunnel.ParseAuthority(args.Certificate, args.Key)
	if err != nil {
		return none{}, err
	}
	if r.store, err = dialStore(args.Store); err != nil {
		return none{}, err
	}
	l, err := net.Listen("tcp", args.Address)
	if err != nil {
		return none{}, err
	}
	r.server = &tunnel.Server{
		Name: args.Name, Authority: authority, Store: r.store, Peers: tunnel.StaticPeers(args.Peers), Grace: args.Grace,
		Hooks: tunnel.Hooks{
			Forwarded:        func(string, time.Duration, error) { r.forwarded.Add(1) },
			PeerConnected:    func(name string) { r.countPeer(name, 1) },
			PeerDisconnected: func(name string, _ error) { r.countPeer(name, -1) },
		},
	}
	r.load, r.grace = newLoad(r.server), args.Grace
	ctx, cancel := context.WithCancel(context.Background())
	r.drain, r.served = cancel, make(chan error, 1)
	go func() {
		defer close(r.served)
		r.served <- r.server.Serve(ctx, l)
	}()
	return none{}, nil
}

func (r *replica) countPeer(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peers[name] += n; r.peers[name] == 0 {
		delete(r.peers, name)
	}
}

// countPeers is how many other replicas this one has a session with.
func (r *replica) countPeers(context.Context, none) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.peers), nil
}

// A place is a target, and the cluster that it is in.
type place struct{ Cluster, Target string }

func (r *replica) setPlaces(_ context.Context, places []place) (none, error) {
	r.places = places
	r.load.setPlaces(places)
	return none{}, nil
}

// setRate sets how many dials a second begin here from now on.
func (r *replica) setRate(_ context.Context, rate float64) (none, error) {
	r.load.setRate(rate)
	return none{}, nil
}

// takeResults returns the results of the dials since its last call; if none
// begin any more, it waits for those under way.
func (r *replica) takeResults(context.Context, none) (dials, error) {
	d := r.load.takeResult()
	d.Forwarded = int(r.forwarded.Swap(0))
	return d, nil
}

// drainAndLeave ends the server as a rolling restart does: it drains while dials that
// began before are under way.
func (r *replica) drainAndLeave(ctx context.Context, _ none) (dials, error) {
	r.load.setRate(0)
	ctx, cancel := context.WithTimeout(ctx, r.grace)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return dials{}, err
	}
	return r.takeResults(ctx, none{})
}

// Close ends the server at once.
func (r *replica) Close() error {
	if r.server == nil {
		return nil
	}
	r.load.setRate(0)
	err := r.server.Close()
	r.drain()
	for range r.served {
	}
	r.load.close()
	r.store.client.Close()
	return err
}

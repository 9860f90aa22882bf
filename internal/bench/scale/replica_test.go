package scale

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
	"github.com/causewayproject/causeway/tunnel"
)

// replica is one of the tunnel's servers, and what dials by it.
type replica struct {
	rig.Process
	traffic // with the peers that it has dialed
	server  *tunnel.Server
	store   remoteStore
	drain   context.CancelFunc
	served  chan error // closed after what Serve returned
	grace   time.Duration
	load    *load

	forwarded atomic.Int64

	mu    sync.Mutex // guards the field below
	peers map[string]int
}

// ReplicaArgs has a replica's identity and settings.
type ReplicaArgs struct {
	Name, Address    string
	Peers            []string // this one's address may be among them
	Certificate, Key []byte   // the Authority's, PEM
	Store            string   // where it is
	Grace            time.Duration
	Counted          bool
}

func (r *replica) Start(args ReplicaArgs, _ *rig.None) error {
	authority, err := tunnel.ParseAuthority(args.Certificate, args.Key)
	if err != nil {
		return err
	}
	if r.store, err = dialStore(args.Store); err != nil {
		return err
	}
	l, err := net.Listen("tcp", args.Address)
	if err != nil {
		return err
	}
	r.server = &tunnel.Server{
		Name: args.Name, Authority: authority, Store: r.store, Peers: tunnel.StaticPeers(args.Peers), Grace: args.Grace, PeerDial: r.dial,
		Hooks: tunnel.Hooks{
			Forwarded:        func(string, time.Duration, error) { r.forwarded.Add(1) },
			PeerConnected:    func(name string) { r.countPeer(name, 1) },
			PeerDisconnected: func(name string, _ error) { r.countPeer(name, -1) },
		},
	}
	r.peers, r.wanted = map[string]int{}, args.Counted
	r.load, r.grace = newLoad(r.server), args.Grace
	ctx, cancel := context.WithCancel(context.Background())
	r.drain, r.served = cancel, make(chan error, 1)
	go func() {
		defer close(r.served)
		r.served <- r.server.Serve(ctx, l)
	}()
	return nil
}

func (r *replica) countPeer(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peers[name] += n; r.peers[name] == 0 {
		delete(r.peers, name)
	}
}

// Peers is how many other replicas this one has a session with.
func (r *replica) Peers(_ rig.None, n *int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n = len(r.peers)
	return nil
}

// A place is a target, and the cluster that it is in.
type place struct{ Cluster, Target string }

func (r *replica) Places(places []place, _ *rig.None) error {
	r.load.setPlaces(places)
	return nil
}

// Rate sets how many dials a second begin here from now on.
func (r *replica) Rate(rate float64, _ *rig.None) error {
	r.load.setRate(rate)
	return nil
}

// Results returns the results of the dials since its last call; if none
// begin any more, it waits for those under way.
func (r *replica) Results(_ rig.None, d *Dials) error {
	*d = r.load.takeResult()
	d.Forwarded = int(r.forwarded.Swap(0))
	return nil
}

// Leave ends the server as a rolling restart does: it drains while dials that
// began before are under way.
func (r *replica) Leave(_ rig.None, d *Dials) error {
	r.load.setRate(0)
	ctx, cancel := context.WithTimeout(context.Background(), r.grace)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return r.Results(rig.None{}, d)
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

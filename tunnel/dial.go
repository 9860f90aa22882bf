package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"os"
	"time"

	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/target"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Dialer dials targets through the agents of one cluster.
type Dialer struct {
	server  *Server
	cluster string
}

// Dialer returns the dialer of a cluster, whether or not an agent of it is
// connected: each dial takes the agents that are connected then. It costs nothing.
func (s *Server) Dialer(cluster string) *Dialer {
	return &Dialer{server: s, cluster: cluster}
}

// DialContext returns a connection to address, host:port, which an agent of
// the cluster resolves and dials; network is "tcp". It takes one round trip,
// and returns once the target is connected. The agent with the fewest streams
// is asked first; if its session fails before it has answered, the next one is. So it is
// if the target refuses the connection, up to three agents: a target such as
// kubernetes.default.svc:443 is another machine's API server to each of them, and one may
// be starting.
// If no agent of the cluster is connected to this replica, the other replicas are
// asked. The dial fails with [CodeNoAgent] once all of them have said that they
// have no agent; the error says which of them could not be asked, and why. What they have
// said counts for 10 seconds, or until an agent comes.
//
// What a dial waits for:
//
//	event                                           wait   then
//	an agent or a replica does not answer           2 s    it is probed
//	it does not answer the probe                    3 s    another one is asked; later dials
//	                                                       try this one last
//	a replica is busy, but can be heard             15 s   its answer counts as "no agent"
//	a replica has not been connected yet            5 s    the same
//	Peers has not answered, 10 s after it was       5 s    the same
//	asked at most
//	no other replica can be asked                   -      the dial waits until the session has
//	                                                       ended, 30 s at most
//
// The errors are *[Error]. The context bounds the dial, and not the connection.
//
// The connection is of the same make as a *net.TCPConn: deadlines, CloseWrite,
// and, by errors.Is(err, syscall.ECONNRESET), a reset that is no end of file.
// Its addresses are of type [Addr].
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.DialEarly(ctx, network, address, nil)
}

// DialEarly is DialContext for a caller that has the first bytes for the target already,
// at most 32 KiB. They travel with the dial, which saves a round trip to the agent, and
// are written by nobody else. They may reach a target although the dial fails. If a
// session fails before its agent has answered, the next agent has them too, so two
// connections may get them: they have to be bytes that may come twice, such as
// a TLS ClientHello. early must not change before DialEarly returns.
func (d *Dialer) DialEarly(ctx context.Context, network, address string, early []byte) (net.Conn, error) {
	began := time.Now()
	stream, err := d.dial(ctx, network, address, early)
	callHook3(d.server.Hooks.Dialed, d.cluster, time.Since(began), withoutTarget(err))
	if err != nil {
		d.server.failures.record(ctx, d.cluster, err)
		return nil, err // not a nil *mux.Stream in a net.Conn
	}
	return stream, nil
}

func (d *Dialer) dial(ctx context.Context, network, address string, early []byte) (*mux.Stream, error) {
	s := d.server
	if err := s.setup(); err != nil {
		return nil, err
	}
	run := d.newDial(network, address, shareOf(ctx, d.cluster), early)
	if s.groups.Closed() {
		return nil, run.newError(CodeClosed, nil)
	}
	if err := run.check(); err != nil {
		return nil, run.newError(CodeConfig, err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(s.DialTimeout, wire.DialTimeout))
		defer cancel()
	}
	if s.AllowDial != nil {
		if err := s.AllowDial(ctx, d.cluster, network, address); err != nil {
			return nil, run.newError(CodeForbidden, err)
		}
	}
	stream, err := run.dialAny(ctx)
	if err != nil {
		return nil, err // not a nil *Error in an error
	}
	return stream, nil
}

// forwardedBy has all dials of a cluster that another replica forwards be of one holder: nobody
// knows whether the callers that it names are there. None is one of this replica's.
func (r *dialRun) forwardedBy(host string) {
	r.caller.Holder.By = host
	r.caller.Share = maphash.Comparable(shareSeed, struct {
		host, cluster string
		share         uint64
	}{host, r.cluster, r.caller.Share})
}

// dialForwarded dials for another replica, which has checked that the dial is
// allowed: by the sessions of this replica only.
func (r *dialRun) dialForwarded(ctx context.Context) (*mux.Stream, *Error) {
	if err := r.check(); err != nil {
		return nil, r.newError(CodeBadRequest, err)
	}
	return r.dialAgents(ctx, true)
}

// dialRun is one dial that is under way.
type dialRun struct {
	*Dialer
	network, address string
	caller           session.Caller
	early            []byte
	tried            map[*agentSession]bool
	refused          int // how many agents or replicas have said that the target refuses
}

// maxRefused is how many agents are asked for a target that refuses the connection.
const maxRefused = 3

func (d *Dialer) newDial(network, address string, share uint64, early []byte) *dialRun {
	return &dialRun{Dialer: d, network: network, address: address, caller: session.Caller{Share: share, Holder: budget.Holder{In: d.cluster}}, early: early, tried: map[*agentSession]bool{}}
}

func (r *dialRun) check() error {
	if r.network != "tcp" {
		return fmt.Errorf("network %q: only tcp is carried", printable.Text(r.network, printable.Most))
	}
	if err := wire.CheckCluster(r.cluster); err != nil {
		return err
	}
	if err := target.CheckAddress(r.address); err != nil {
		return fmt.Errorf("the address: %w", err)
	}
	if len(r.early) > wire.MaxEarly {
		return fmt.Errorf("%d early bytes: at most %d travel with a dial", len(r.early), wire.MaxEarly)
	}
	return nil
}

func (r *dialRun) newError(code Code, err error) *Error {
	return &Error{Op: "dial", Cluster: r.cluster, Addr: r.address, Code: code, Err: err}
}

// dialAny tries, one after the other, for as long as the next may do better:
//
//  1. the agents that are connected to this replica, but not the suspect ones
//  2. the agents of the other replicas
//  3. the suspect agents here
func (r *dialRun) dialAny(ctx context.Context) (*mux.Stream, *Error) {
	if r.server.peers.isAlone() {
		stream, err := r.dialAgents(ctx, true)
		if err != nil && err.Code == CodeNoAgent {
			err = r.newError(CodeNoAgent, r.server.peers.missingAnswers(0))
		}
		return stream, err
	}
	stream, err := r.dialAgents(ctx, false)
	if err == nil || !r.mayRetry(err) || ctx.Err() != nil && err.Code != CodeNoAgent {
		return stream, err
	}
	stream, err = r.dialPeers(ctx, err)
	if err == nil || !r.mayRetry(err) || ctx.Err() != nil {
		return stream, err
	}
	stream, last := r.dialAgents(ctx, true)
	if last != nil && last.Code == CodeNoAgent {
		return nil, err // there was none to try
	}
	return stream, last
}

// mayRetry reports whether another agent or replica may do better: this one was
// asked at most, and has connected to nothing.
func (r *dialRun) mayRetry(err *Error) bool {
	switch err.Code {
	case CodeNoAgent, CodeLost, CodeTooManyStreams, CodeDraining:
		return true
	case CodeRefused:
		return r.refused < maxRefused
	}
	return false
}

// dialAgents tries the agents here, the best first, and the suspect ones only if
// suspects is set. CodeNoAgent says that there was none to try.
func (r *dialRun) dialAgents(ctx context.Context, suspects bool) (*mux.Stream, *Error) {
	last := r.newError(CodeNoAgent, nil)
	for {
		sess := r.nextAgent()
		if sess == nil || !suspects && sess.IsSuspect() {
			return nil, last
		}
		r.tried[sess] = true
		stream, err := r.dialAgent(ctx, sess)
		if err == nil || !r.mayRetry(err) || ctx.Err() != nil {
			return stream, err
		}
		last = err
	}
}

// nextAgent returns the best agent here that was not tried; nil if all were.
func (r *dialRun) nextAgent() *agentSession { return r.server.registry.nextSession(r.cluster, r.tried) }

// dialPeers has another replica dial: the one that had an agent just now, or one
// that says that it has one. local is the error of the agents here.
func (r *dialRun) dialPeers(ctx context.Context, local *Error) (stream *mux.Stream, err *Error) {
	began := time.Now()
	defer func() {
		var cause error
		if err != nil { // not a nil *Error in an error
			cause = err
		}
		callHook3(r.server.Hooks.Forwarded, r.cluster, time.Since(began), withoutTarget(cause))
	}()
	if l, _ := r.server.peers.holders.recall(r.cluster); l != nil {
		if stream, err = r.dialPeer(ctx, l); err == nil || !r.mayRetry(err) {
			return stream, err
		}
	}
	stream, err = r.searchPeers(ctx, local)
	if err != nil && errors.Is(err, errMoved) {
		stream, err = r.searchPeers(ctx, local) // by now it may be elsewhere
	}
	return stream, err
}

// searchPeers asks all replicas at once, and has those dial that have an agent,
// one after the other.
func (r *dialRun) searchPeers(ctx context.Context, last *Error) (*mux.Stream, *Error) {
	peers := &r.server.peers
	if _, none := peers.holders.recall(r.cluster); none {
		return nil, last
	}
	began := peers.holders.beginSearch()
	patience := wire.AskPatience
	if r.nextAgent() != nil || last.Code == CodeRefused {
		patience = wire.AskTimeout // the suspect ones here are tried after that, or there is an answer
	}
	q := peers.startSearch(ctx, r.cluster, patience)
	defer q.stop()
	found := false
	for l := q.nextHolder(); l != nil; l = q.nextHolder() {
		found = true
		stream, err := r.dialPeer(ctx, l)
		if err == nil {
			peers.holders.remember(r.cluster, l, began)
		}
		if err == nil || !r.mayRetry(err) {
			return stream, err
		}
		last = err
	}
	if end := ctx.Err(); end != nil {
		err := end
		if last.Code != CodeNoAgent { // whether there is one is not known
			err = last
		}
		return nil, r.newError(contextCode(end), ended.Error(ctx, err))
	}
	missing := peers.missingAnswers(q.silent)
	if !found && missing == nil {
		peers.holders.remember(r.cluster, nil, began)
	}
	if last.Code == CodeNoAgent && (last.Err == nil || q.silent > 0) {
		return nil, r.newError(CodeNoAgent, missing)
	}
	return nil, last
}

// dialAgent has one agent dial.
func (r *dialRun) dialAgent(ctx context.Context, sess *agentSession) (*mux.Stream, *Error) {
	if sess.counts.begin() == wire.MaxOpened {
		sess.sendOrClose(wire.New(wire.MsgDrain))
	}
	// If another replica has forwarded the dial, it can go elsewhere.
	elsewhere := func(ctx context.Context) bool {
		return r.nextAgent() != nil || r.server.peers.anyHas(ctx, r.cluster)
	}
	stream, _, err := r.dialThrough(ctx, &sess.Session, wire.New(wire.MsgDial), elsewhere)
	if err != nil && ctx.Err() != nil && sess.IsSuspect() {
		code := err.Code
		if code == CodeCanceled { // it is no trouble of the caller
			code = CodeLost
		}
		err = r.newError(code, fmt.Errorf("the agent does not answer: %w", err.Err))
	}
	sess.counts.finish(err)
	if err != nil {
		return nil, err
	}
	r.setAddrs(stream, Addr{Agent: sess.id.Agent, Replica: sess.replica})
	return stream, nil
}

// setAddrs sets the addresses of the stream's ends; far says who has dialed.
func (r *dialRun) setAddrs(stream *mux.Stream, far Addr) {
	far.Cluster, far.Target = r.cluster, r.address
	stream.SetAddrs(Addr{Cluster: r.cluster}, far)
}

// errMoved says that a replica had an agent when it was asked, and none when it
// was to dial.
var errMoved = errors.New("the agent of another replica has just left")

// errPeerLost is errMoved for a replica that was lost itself.
type errPeerLost struct{ error }

func (e errPeerLost) Is(err error) bool { return err == errMoved }

func (e errPeerLost) Unwrap() error { return e.error }

// dialPeer has one replica dial. One that can't is not asked first any more.
func (r *dialRun) dialPeer(ctx context.Context, l *outboundPeer) (*mux.Stream, *Error) {
	l.countStream()
	m := wire.New(wire.MsgForward).AddString(wire.TagCluster, r.cluster)
	if len(r.early) > 0 {
		m.AddUint(wire.TagEarly, uint64(len(r.early)))
	}
	stream, answer, err := r.dialThrough(ctx, &l.Session, m, func(context.Context) bool { return true })
	if err == nil {
		r.setAddrs(stream, forwardedAddr(l.name, answer))
		return stream, nil
	}
	switch err.Code {
	case codeNotHere, CodeDraining:
		err = r.newError(CodeNoAgent, errMoved)
	case CodeLost:
		err = r.newError(CodeLost, errPeerLost{err.Err})
	}
	if err.Code != CodeRefused && r.mayRetry(err) {
		r.server.peers.holders.forget(r.cluster, l)
	}
	return nil, err
}

// forwardedAddr returns what a replica says about the agent that has dialed.
func forwardedAddr(peer string, answer *wire.Message) Addr {
	a := Addr{Peer: peer, Agent: answer.Text(wire.TagName), Replica: answer.Text(wire.TagID)}
	if wire.CheckAgent(a.Agent) != nil || wire.CheckAgentReplica(a.Replica) != nil {
		a.Agent, a.Replica = "", "" // an older replica says nothing
	}
	return a
}

// dialThrough sends m, a DIAL or FORWARD, on a stream of the session, and returns
// the stream and the answer once the other end has dialed. If that is silent and elsewhere returns
// true, the dial is given up: somebody else may do better.
func (r *dialRun) dialThrough(ctx context.Context, s *session.Session, m *wire.Message, elsewhere func(context.Context) bool) (*mux.Stream, *wire.Message, *Error) {
	deadline, _ := ctx.Deadline()
	m.AddString(wire.TagNetwork, r.network).AddString(wire.TagAddress, r.address).
		AddUint(wire.TagTime, uint64(max(time.Until(deadline).Milliseconds(), 1)))
	if r.caller.Share != 0 {
		m.AddUint(wire.TagShare, r.caller.Share)
	}
	stream, answer, err := s.Exchange(ctx, r.caller, m, r.early, elsewhere)
	if err == nil && answer.Kind != wire.MsgDialed {
		stream.Reset(0)
		err = wire.ErrMalformed
	}
	if err != nil {
		return nil, nil, r.explainError(ctx, err)
	}
	if refused, ok := errors.AsType[*Error](messageError(answer, "dial", r.cluster, r.address)); ok {
		stream.Close()
		if refused.Code == CodeRefused {
			r.refused++
		}
		return nil, nil, refused
	}
	stream.SetReadDeadline(time.Time{})
	return stream, answer, nil
}

// explainError returns the error with a code for why no answer came.
func (r *dialRun) explainError(ctx context.Context, err error) *Error {
	var reset *mux.ResetError
	var lost *mux.LostError
	switch {
	case ctx.Err() != nil:
		return r.newError(contextCode(ctx.Err()), ended.Error(ctx, err))
	case errors.Is(err, session.ErrTooMany):
		return r.newError(CodeTooManyStreams, nil)
	case errors.As(err, &reset) && (reset.Remote && reset.Code != 0 || reset.Code == mux.CodeBudget):
		return r.newError(codeFromWire(uint64(reset.Code)), nil)
	case errors.As(err, &lost), errors.As(err, &reset), errors.Is(err, net.ErrClosed):
		return r.newError(CodeLost, err)
	case errors.Is(err, mux.ErrGoAway), errors.Is(err, mux.ErrSettled), errors.Is(err, mux.ErrExhausted):
		return r.newError(CodeDraining, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return r.newError(CodeTimeout, err)
	}
	return r.newError(CodeBadRequest, err)
}

// Addr is the address of an end of a stream.
type Addr struct {
	// Cluster is the cluster whose agent dialed.
	Cluster string
	// Target is host:port as it was asked for. It is empty at the end that
	// dialed.
	Target string
	// Agent is the agent that dialed, and Replica its [Agent.Replica]. They are empty
	// at the end that dialed.
	Agent, Replica string
	// Peer is the name of the Server's replica that the dial was forwarded to; empty
	// if it was not forwarded.
	Peer string
}

var _ net.Addr = Addr{}

// Network returns "tunnel".
func (Addr) Network() string { return "tunnel" }

// NextHop returns, for people, who has dialed; empty at the end that dialed. A
// gateway.Gateway says it to its clients.
func (a Addr) NextHop() string {
	if a.Agent == "" {
		return ""
	}
	hop := "agent " + a.Agent
	if a.Replica != "" {
		hop += " of " + a.Replica
	}
	if a.Peer != "" {
		hop += " by replica " + a.Peer
	}
	return hop
}

// String returns "namespace/name" or "namespace/name|host:port".
func (a Addr) String() string {
	if a.Target == "" {
		return a.Cluster
	}
	return a.Cluster + "|" + a.Target
}

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

const (
	// rotateAfter is how many streams a session opens before the agent is
	// asked for a new one: stream ids are finite.
	rotateAfter = 1 << 30
)

// Dialer dials targets through the agents of one cluster.
type Dialer struct {
	server  *Server
	cluster string
}

// Dialer returns the dialer of a cluster, whether or not an agent of it is
// connected: each dial takes the agents there are. It costs nothing.
func (s *Server) Dialer(cluster string) *Dialer {
	return &Dialer{server: s, cluster: cluster}
}

// Cluster returns the name of the cluster.
func (d *Dialer) Cluster() string { return d.cluster }

// DialContext returns a connection to address, host:port, which an agent of
// the cluster resolves and dials; network is "tcp". It takes one round trip,
// and returns once the target is connected. The agent with the fewest streams
// is asked first; if its session fails before it has answered, the next one is.
// Where no agent of the cluster is connected to this replica, one that is
// connected to another is asked. That there is none, the caller knows when all
// replicas have said so; which of them could not be asked, and why, is in the
// error. One that can be heard, but is busy, is waited for: for 15 seconds at
// most. So is one that is being connected for the first time, for 5, and the
// first answer of Peers, for 5 and only while Peers was asked for less than 10.
// An agent or a replica that has fallen silent costs the dials that it was asked
// for five seconds, or ten if it can still be heard, and later ones nothing, but
// for two seconds where none has an agent. Where there is no other, they wait for
// it until its session has ended, 30 seconds at most.
// The errors are *[Error]; the context bounds the dial alone.
//
// The connection is of the same make as a *net.TCPConn: deadlines, CloseWrite,
// and, by errors.Is(err, syscall.ECONNRESET), a reset that is no end of file.
// Its addresses are of type [Addr].
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	began := time.Now()
	conn, err := d.dial(ctx, network, address)
	d.server.Hooks.dialed(d.cluster, time.Since(began), err)
	if err != nil {
		return nil, err // not a nil *mux.Stream in a net.Conn
	}
	return conn, nil
}

func (d *Dialer) dial(ctx context.Context, network, address string) (*mux.Stream, error) {
	s := d.server
	if err := s.setup(); err != nil {
		return nil, err
	}
	if s.groups.Closed() {
		return nil, d.fail(address, CodeClosed, nil)
	}
	if err := checkTarget(network, address); err != nil {
		return nil, d.fail(address, CodeConfig, err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, orDefault(s.DialTimeout, 30*time.Second))
		defer cancel()
	}
	if s.AllowDial != nil {
		if err := s.AllowDial(ctx, d.cluster, network, address); err != nil {
			return nil, d.fail(address, CodeForbidden, err)
		}
	}
	return d.reach(ctx, network, address)
}

// reach asks the agents that are connected here, then those of the peers, and
// at last those here that did not answer their last probe.
func (d *Dialer) reach(ctx context.Context, network, address string) (*mux.Stream, error) {
	tried := map[*agentSession]bool{}
	alone := d.server.peers.none()
	stream, err := d.walk(ctx, network, address, tried, alone)
	if alone && err != nil && err.Code == CodeNoAgent {
		err = d.fail(address, CodeNoAgent, d.server.peers.unasked(0))
	}
	if !alone && err != nil && worthAsking(err) {
		patience := askPatience
		if d.server.registry.next(d.cluster, tried) != nil {
			patience = askTimeout // there is one yet that may do better
		}
		if stream, err = d.forward(ctx, network, address, err, patience); err != nil && worthAsking(err) && ctx.Err() == nil {
			var last *Error
			if stream, last = d.walk(ctx, network, address, tried, true); last == nil || last.Code != CodeNoAgent {
				err = last
			}
		}
	}
	if err != nil {
		return nil, err // not a nil *Error in an error
	}
	return stream, nil
}

// worthAsking reports whether somebody else may do better.
func worthAsking(err *Error) bool { return err.Code == CodeNoAgent || movable(err.Code) }

// walk asks one agent after the other, for as long as another may do better;
// those that did not answer their last probe only if suspects is set.
func (d *Dialer) walk(ctx context.Context, network, address string, tried map[*agentSession]bool, suspects bool) (*mux.Stream, *Error) {
	last := d.fail(address, CodeNoAgent, nil)
	for {
		sess := d.server.registry.next(d.cluster, tried)
		if sess == nil || !suspects && sess.IsSuspect() {
			return nil, last
		}
		tried[sess] = true
		stream, err := d.attempt(ctx, sess, network, address, tried)
		if err == nil {
			return stream, nil
		}
		if last = err; !movable(err.Code) || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (d *Dialer) fail(address string, code Code, err error) *Error {
	return &Error{Op: "dial", Cluster: d.cluster, Addr: address, Code: code, Err: err}
}

// movable reports whether another agent may do better: nothing was sent but
// the question.
func movable(c Code) bool {
	return c == CodeLost || c == CodeTooManyStreams || c == CodeDraining
}

func checkTarget(network, address string) error {
	if network != "tcp" {
		return fmt.Errorf("network %q: only tcp is carried", wire.Printable(network))
	}
	host, port, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return errors.New("the address is not host:port")
	case host == "":
		return errors.New("the address has no host")
	case port == "":
		return errors.New("the address has no port")
	case len(address) > wire.MaxRequest/2:
		return errors.New("the address is too long")
	}
	return nil
}

// attempt asks one agent.
func (d *Dialer) attempt(ctx context.Context, sess *agentSession, network, address string, tried map[*agentSession]bool) (*mux.Stream, *Error) {
	if sess.dials.Add(1) == rotateAfter {
		sess.sendOrClose(wire.New(wire.MsgDrain))
	}
	m := dialRequest(ctx, wire.MsgDial, network, address)
	elsewhere := func(ctx context.Context) bool { return d.another(ctx, tried) }
	stream, err := d.dialThrough(ctx, &sess.Session, m, address, elsewhere)
	if err != nil {
		sess.failed.Add(1)
	}
	return stream, err
}

// dialRequest is a DIAL or FORWARD with the time that is left.
func dialRequest(ctx context.Context, kind wire.Kind, network, address string) *wire.Message {
	deadline, _ := ctx.Deadline()
	return wire.New(kind).AddString(wire.TagNetwork, network).AddString(wire.TagAddress, address).
		AddUint(wire.TagTime, uint64(max(time.Until(deadline).Milliseconds(), 1)))
}

// dialThrough has the other end of a session dial, an agent or a replica. Where it
// stays silent and elsewhere returns true, another one may do better.
func (d *Dialer) dialThrough(ctx context.Context, s *session.Session, m *wire.Message, address string, elsewhere func(context.Context) bool) (*mux.Stream, *Error) {
	stream, answer, err := s.Exchange(ctx, m, elsewhere)
	if err == nil && answer.Kind != wire.MsgDialed {
		stream.Reset(0)
		err = wire.ErrMalformed
	}
	if err != nil {
		return nil, d.cause(ctx, address, err)
	}
	var refused *Error
	if errors.As(messageError(answer, "dial", d.cluster, address), &refused) {
		stream.Close()
		return nil, refused
	}
	stream.SetReadDeadline(time.Time{})
	stream.SetAddrs(Addr{Cluster: d.cluster}, Addr{Cluster: d.cluster, Target: address})
	return stream, nil
}

// another reports whether the dial could be somebody else's. Where it came from
// a peer, it is that one's to go there.
func (d *Dialer) another(ctx context.Context, tried map[*agentSession]bool) bool {
	return d.server.registry.next(d.cluster, tried) != nil || d.server.peers.have(ctx, d.cluster)
}

// cause says in codes what ended an attempt.
func (d *Dialer) cause(ctx context.Context, address string, err error) *Error {
	var reset *mux.ResetError
	var lost *mux.LostError
	switch {
	case ctx.Err() != nil:
		return d.fail(address, contextCode(ctx.Err()), ctx.Err())
	case errors.Is(err, session.ErrTooMany):
		return d.fail(address, CodeTooManyStreams, nil)
	case errors.As(err, &reset) && reset.Remote && reset.Code != 0:
		return d.fail(address, codeFromWire(uint64(reset.Code)), nil)
	case errors.As(err, &lost), errors.As(err, &reset), errors.Is(err, net.ErrClosed):
		return d.fail(address, CodeLost, err)
	case errors.Is(err, mux.ErrGoAway), errors.Is(err, mux.ErrSettled), errors.Is(err, mux.ErrExhausted):
		return d.fail(address, CodeDraining, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return d.fail(address, CodeTimeout, err)
	}
	return d.fail(address, CodeBadRequest, err)
}

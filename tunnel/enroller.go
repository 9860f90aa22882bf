package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"

	"github.com/causewayproject/causeway/internal/turns"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Enroller lets agents in by tokens that are not of the Server's [Authority], for
// example those of a Kubernetes ServiceAccount, which the module tunnel/oidc verifies.
type Enroller interface {
	// Enroll verifies the token, and returns the cluster that its holder is an agent of.
	//
	// The error refuses the agent. With an error, Enroll returns the cluster only if the
	// token has proven to be of it: logs and Events then name it. What the agent says it
	// is of proves nothing. The Cluster of an [*Error] does not count.
	//
	// If the error is an [*Error], the agent gets its code and the text of its cause. Of
	// any other error the agent gets CodeTokenUnknown and no cause, so that a stranger
	// does not learn which clusters there are; the hook Refused gets all of it. After CodeTokenExpired and CodeTokenUsed the agent
	// waits for another token; after other codes it tries this one again, with waits that
	// grow to MaxBackoff.
	//
	// It is asked about each text that has the form of a JSON Web Token, whoever shows it:
	// one that was made up must cost it little. Four calls of one
	// source and 32 in all are under way at once, and more wait. It is called by several
	// goroutines, and has to return soon after ctx has ended, which is when two thirds
	// of HandshakeTimeout are over: Close waits for it.
	//
	// The Server remembers nothing about the token: the same one may enrol again, with
	// the same key, or with another one, which is another agent. [Server.Revoke] and
	// [Server.RevokeCluster] end the agents that there are. For none to come back,
	// refuse the token here.
	Enroll(ctx context.Context, e Enrollment) (cluster string, err error)
}

// Enrollment is an agent's request to be let in.
type Enrollment struct {
	// Cluster is the cluster that the agent says it is of; empty if it does not say. The
	// Server refuses the agent if Enroll returns another.
	Cluster string
	// Token is what the agent shows: three parts with dots, at most 8 KiB. It is a
	// secret: fmt does not print it.
	Token string
	// Key is the hex fingerprint of the agent's key, as in [Token]. The agent has proven
	// that it holds the key. An Enroller whose tokens are good for one agent remembers it.
	Key string
}

// String returns the enrolment without the token.
func (e Enrollment) String() string { return fmt.Sprintf("tunnel.Enrollment{Cluster: %q}", e.Cluster) }

// Format writes String, whatever the verb.
func (e Enrollment) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.String()) }

// MarshalText returns String: JSON and logs hold no token.
func (e Enrollment) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// enrollOther enrols an agent as the Server's Enroller says.
func (r *registrar) enrollOther(ctx context.Context, from netip.Prefix, state *tls.ConnectionState, m *wire.Message) (*wire.Message, Identity, error) {
	asked := Enrollment{Cluster: m.Text(wire.TagCluster), Token: m.Text(wire.TagToken)}
	if err := wire.CheckToken(asked.Token); err != nil {
		return nil, Identity{}, refusedError("enroll", "", CodeTokenUnknown, "%w", err)
	}
	if asked.Cluster != "" && wire.CheckCluster(asked.Cluster) != nil {
		return nil, Identity{}, refusedError("enroll", "", CodeBadRequest, "the cluster's name is malformed")
	}
	pub, err := m.ProvenKey(state)
	if err != nil {
		return nil, Identity{}, refusedError("enroll", "", CodeBadProof, "%w", err)
	}
	id, key, err := nameAgent("", pub)
	if err != nil {
		return nil, id, err
	}
	asked.Key = key
	cluster, err := r.askEnroller(ctx, from, asked)
	if err != nil {
		return nil, Identity{}, err
	}
	id.Cluster = cluster
	if err := r.checkAgentRevoked(ctx, "enroll", id); err != nil {
		return nil, id, err
	}
	after, err := r.records.Revoked(ctx, Identity{Cluster: cluster})
	if err != nil {
		return nil, id, internalError("enroll", cluster, err)
	}
	answer, err := r.answerIssued("enroll", id, after, pub)
	return answer, id, err
}

// askEnroller returns the cluster that the Enroller says.
func (r *registrar) askEnroller(ctx context.Context, from netip.Prefix, asked Enrollment) (string, error) {
	leave, err := r.calls.enter(ctx, from)
	if err != nil {
		return "", &Error{Op: "enroll", Code: CodeTooManyStreams, Err: fmt.Errorf("too many enrolments of this address are under way: %w", err)}
	}
	defer leave()
	cluster, err := r.enroller.Enroll(ctx, asked)
	if err != nil {
		return "", enrollerError(ctx, cluster, err)
	}
	if err := wire.CheckCluster(cluster); err != nil {
		return "", internalError("enroll", "", fmt.Errorf("field Enroller of the Server returned a name that no cluster can have: %w", err))
	}
	if asked.Cluster != "" && asked.Cluster != cluster {
		return "", refusedError("enroll", cluster, CodeWrongCluster, "")
	}
	return cluster, nil
}

// enrollerError returns the error for one of the Enroller's. cluster is what the token has
// proven, which may be no name of one.
func enrollerError(ctx context.Context, cluster string, err error) *Error {
	if wire.CheckCluster(cluster) != nil {
		cluster = ""
	}
	refused := &Error{Op: "enroll", Cluster: cluster}
	var e *Error
	switch {
	case errors.As(err, &e):
		refused.Code, refused.Err = cmp.Or(e.Code, CodeInternal), e.Err
	case ctx.Err() != nil:
		refused.Code, refused.Err = CodeTimeout, privateCause{error: err}
	default:
		refused.Code, refused.Err = CodeTokenUnknown, privateCause{err, "the server does not accept it; the server's log says why"}
	}
	return refused
}

const (
	callsAtOnce    = 32  // of the Enroller
	callsOfSource  = 4   // of these
	callersWaiting = 256 // of one source
)

// calls limits the calls of the Enroller. The zero value is ready; it is safe for
// concurrent use.
type calls struct {
	mu      sync.Mutex // guards the fields below
	all     *turns.Queue[netip.Prefix]
	sources map[netip.Prefix]*sourceCalls
}

// sourceCalls are the calls of one source.
type sourceCalls struct {
	queue *turns.Queue[struct{}]
	users int // that wait or have a turn; the lock of calls guards it
}

// enter waits for a turn, which leave gives back. The error is [turns.ErrFull] or ctx's
// cause.
func (c *calls) enter(ctx context.Context, from netip.Prefix) (leave func(), err error) {
	own := c.join(from)
	if err := own.queue.Enter(ctx, struct{}{}); err != nil {
		c.part(from, own)
		return nil, err
	}
	if err := c.all.Enter(ctx, from); err != nil {
		own.queue.Leave()
		c.part(from, own)
		return nil, err
	}
	return func() {
		c.all.Leave()
		own.queue.Leave()
		c.part(from, own)
	}, nil
}

func (c *calls) join(from netip.Prefix) *sourceCalls {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources == nil {
		c.all, c.sources = turns.New[netip.Prefix](callsAtOnce, 0), map[netip.Prefix]*sourceCalls{}
	}
	own := c.sources[from]
	if own == nil {
		own = &sourceCalls{queue: turns.New[struct{}](callsOfSource, callersWaiting)}
		c.sources[from] = own
	}
	own.users++
	return own
}

func (c *calls) part(from netip.Prefix, own *sourceCalls) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(c.sources, from)
	}
}

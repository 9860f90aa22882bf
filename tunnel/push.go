package tunnel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Payload is data that a Server sends to an Agent over the control stream, such as an
// SSH public key. The two programs agree on what a name means. At most 1 MiB, name
// included.
type Payload struct {
	Name string
	Data []byte
}

// payloadTimeout is how long the server waits for an agent's answer to a payload.
const payloadTimeout = 30 * time.Second

// sendPayloads sends a new session the payloads that the field Payloads returns.
func (s *Server) sendPayloads(sess *agentSession) {
	if s.Payloads == nil {
		return
	}
	ctx, cancel := context.WithTimeout(sess.Group.Context(), payloadTimeout)
	defer cancel()
	payloads, err := s.Payloads(ctx, sess.id)
	if err != nil {
		callHook3(s.Hooks.Delivered, sess.id, "", err)
	}
	for _, p := range payloads {
		callHook3(s.Hooks.Delivered, sess.id, p.Name, sess.pushPayload(ctx, s.seq.Add(1), p))
	}
}

// handleReceived passes a RECEIVED to the pushPayload that waits for it.
func (sess *agentSession) handleReceived(m *wire.Message) {
	sess.state.Lock()
	answered := sess.waiting[m.Text(wire.TagID)]
	delete(sess.waiting, m.Text(wire.TagID))
	sess.state.Unlock()
	if answered != nil {
		answered <- messageError(m, "push", sess.id.Cluster, "")
	}
}

// queuePayload reports whether there was room for the payload.
func (l *serverSession) queuePayload(m *wire.Message) bool {
	l.state.Lock()
	defer l.state.Unlock()
	if len(l.payloads) == maxPayloads {
		return false
	}
	l.payloads = append(l.payloads, m)
	if !l.taking {
		l.taking = true
		l.Go(l.takePayloads)
	}
	return true
}

// nextPayload returns nil if no payload waits; takePayloads must return then.
func (l *serverSession) nextPayload() *wire.Message {
	l.state.Lock()
	defer l.state.Unlock()
	if len(l.payloads) == 0 {
		l.payloads, l.taking = nil, false
		return nil
	}
	m := l.payloads[0]
	l.payloads = l.payloads[1:]
	return m
}

// takePayloads passes the payloads to the field Payload, in their order.
func (l *serverSession) takePayloads() {
	for m := l.nextPayload(); m != nil; m = l.nextPayload() {
		ctx, cancel := context.WithTimeout(l.Streams.Context(), payloadTimeout)
		err := errors.New("the agent takes no payloads")
		if take := l.runner.Payload; take != nil {
			err = take(ctx, Payload{Name: m.Text(wire.TagName), Data: m.Bytes(wire.TagData)})
		}
		cancel()
		l.receivedPayload(m, err)
	}
}

// maxPayloads is how many payloads may wait for the field Payload.
const maxPayloads = 16

func (l *serverSession) receivedPayload(m *wire.Message, err error) {
	answer := wire.New(wire.MsgReceived).AddBytes(wire.TagID, m.Bytes(wire.TagID))
	if err != nil {
		answer.AddUint(wire.TagCode, uint64(CodeInternal)).AddString(wire.TagText, printable.Text(err.Error(), printable.Most))
	}
	l.Send(answer)
}

// Push sends the payload to each agent of the cluster, whichever replica it is connected
// to, and returns when all have answered, after 30 seconds at most: an agent that has not
// answered by then may still take it. An agent with sessions with two replicas gets the
// payload twice.
//
// The error joins an *[Error] for each agent that did not accept the payload, and one with
// [CodeLost] if a replica could not be asked, whose agents may lack it. If no agent
// is connected, the code is [CodeNoAgent].
func (s *Server) Push(ctx context.Context, cluster string, p Payload) error {
	if err := s.setup(); err != nil {
		return err
	}
	if err := p.check(cluster); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	run := pushRun{results: map[agentKey]error{}}
	run.pushing.Go(func() { s.pushHere(ctx, cluster, p, run.note) })
	var missing error
	if !s.peers.isAlone() {
		q := s.peers.startSearch(ctx, cluster, wire.AskPatience)
		for l := q.nextHolder(); l != nil; l = q.nextHolder() {
			run.pushing.Go(func() { run.notePeer(l.push(ctx, cluster, p, run.note)) })
		}
		q.stop()
		missing = s.peers.missingAnswers(q.silent)
	}
	run.pushing.Wait()
	return run.err(cluster, missing)
}

// pushRun is one call of Push.
type pushRun struct {
	pushing sync.WaitGroup
	mu      sync.Mutex         // guards the fields below
	results map[agentKey]error // nil: one session of the agent has accepted the payload
	lost    []error            // of replicas
}

func (r *pushRun) note(agent agentKey, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, known := r.results[agent]; !known || before != nil {
		r.results[agent] = err
	}
}

func (r *pushRun) notePeer(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, err)
}

// err returns the error of Push; missing says why there may be more agents.
func (r *pushRun) err(cluster string, missing error) error {
	all := slices.AppendSeq(r.lost, maps.Values(r.results))
	switch {
	case len(r.results) == 0 && errors.Join(all...) == nil:
		return &Error{Op: "push", Cluster: cluster, Code: CodeNoAgent, Err: missing}
	case missing != nil:
		all = append(all, &Error{Op: "push", Cluster: cluster, Code: CodeLost, Err: missing})
	}
	return errors.Join(all...)
}

// pushHere sends the payload to the agents of this replica, and calls note for each, also
// at the same time.
func (s *Server) pushHere(ctx context.Context, cluster string, p Payload, note func(agentKey, error)) {
	var wg sync.WaitGroup
	for _, sess := range s.registry.dialCandidates(cluster) {
		wg.Go(func() { note(sess.agentKey(), sess.pushPayload(ctx, s.seq.Add(1), p)) })
	}
	wg.Wait()
}

// push has the other replica push to its agents.
func (l *outboundPeer) push(ctx context.Context, cluster string, p Payload, note func(agentKey, error)) error {
	request := wire.New(wire.MsgPush).AddString(wire.TagCluster, cluster)
	err := l.requestAll(ctx, request, p.message(""), func(stream *mux.Stream) error {
		m, err := readKind(stream, wire.MsgReceived, wire.MaxRequest)
		if err == nil {
			note(agentKey{m.Text(wire.TagName), m.Text(wire.TagID)}, receivedError(m, cluster))
		}
		return err
	})
	if err != nil {
		return l.requestError("push", err)
	}
	return nil
}

// pushFor pushes for the peer, and says what each agent has answered.
func (p *inboundPeer) pushFor(stream *mux.Stream, cluster string) {
	select {
	case p.server.peers.pushes <- struct{}{}:
		defer func() { <-p.server.peers.pushes }()
	default:
		stream.Reset(uint32(CodeTooManyStreams))
		return
	}
	ctx, cancel := context.WithTimeout(p.Streams.Context(), payloadTimeout)
	defer cancel()
	stream.AfterReset(func(uint32, bool) { cancel() })
	stream.SetDeadline(time.Now().Add(payloadTimeout))
	payload, err := readKind(stream, wire.MsgPayload, wire.MaxBody)
	if err != nil {
		stream.Reset(uint32(CodeBadRequest))
		return
	}
	stream.Keep(len(payload.Body))
	defer stream.Keep(0)
	var writing sync.Mutex
	p.server.pushHere(ctx, cluster, Payload{Name: payload.Text(wire.TagName), Data: payload.Bytes(wire.TagData)}, func(agent agentKey, err error) {
		answer := wire.New(wire.MsgReceived)
		if e, ok := errors.AsType[*Error](err); ok {
			e = forwardedError(e)
			answer = refusalMessage(wire.MsgReceived, e.Code, printable.Text(e.reasonText(), printable.Most))
		}
		writing.Lock()
		defer writing.Unlock()
		wire.Write(stream, answer.AddString(wire.TagName, agent.agent).AddString(wire.TagID, agent.replica))
	})
	stream.CloseWrite()
}

// receivedError returns the error in a RECEIVED of another replica.
func receivedError(m *wire.Message, cluster string) error {
	if messageCode(m) == codeNotHere {
		return &Error{Op: "push", Cluster: cluster, Code: CodeLost}
	}
	return messageError(m, "push", cluster, "")
}

func (p Payload) message(id string) *wire.Message {
	return wire.New(wire.MsgPayload).AddString(wire.TagID, id).AddString(wire.TagName, p.Name).AddBytes(wire.TagData, p.Data)
}

// check returns why the payload can't be sent.
func (p Payload) check(cluster string) error {
	const fields = 64 // of the message, and its id
	if len(p.Name)+len(p.Data)+fields <= wire.MaxBody {
		return nil
	}
	return &Error{Op: "push", Cluster: cluster, Code: CodeConfig,
		Err: fmt.Errorf("payload %q has %d bytes, and a message takes %d at most", printable.Text(p.Name, printable.Most), len(p.Data), wire.MaxBody)}
}

// pushPayload sends the payload, and waits for the agent's answer.
func (sess *agentSession) pushPayload(ctx context.Context, seq uint64, p Payload) error {
	if err := p.check(sess.id.Cluster); err != nil {
		return err
	}
	id := strconv.FormatUint(seq, 10)
	m := p.message(id)
	answered := make(chan error, 1)
	sess.state.Lock()
	if sess.waiting == nil {
		sess.waiting = map[string]chan error{}
	}
	sess.waiting[id] = answered
	sess.state.Unlock()
	defer func() {
		sess.state.Lock()
		delete(sess.waiting, id)
		sess.state.Unlock()
	}()
	sess.sendOrClose(m)
	select {
	case err := <-answered:
		return err
	case <-sess.Mux.Done():
		return &Error{Op: "push", Cluster: sess.id.Cluster, Code: CodeLost, Err: sess.Mux.Err()}
	case <-ctx.Done():
		return &Error{Op: "push", Cluster: sess.id.Cluster, Code: contextCode(ctx.Err()),
			Err: fmt.Errorf("the payload may be under way still, and be taken: %w", ended.Error(ctx, ctx.Err()))}
	}
}

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Payload is data that a Server sends to an Agent over the control stream, such as an
// SSH public key. The two programs agree on what a name means. At most 1 MiB, name
// included.
type Payload struct {
	Name string
	Data []byte
}

// payloadTimeout is how long an agent may take to answer a payload.
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

// Push sends the payload to each agent of the cluster that is connected to this
// replica, and returns when all have answered. It does not reach agents that are
// connected to other replicas only: call it on each replica. An agent with sessions
// to two of them gets the payload twice. The error joins an *[Error] for each agent
// that did not accept the payload; if no agent is connected here, it has
// [CodeNoAgent].
func (s *Server) Push(ctx context.Context, cluster string, p Payload) error {
	if err := s.setup(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	sessions := s.registry.dialCandidates(cluster)
	if len(sessions) == 0 {
		return &Error{Op: "push", Cluster: cluster, Code: CodeNoAgent}
	}
	errs := make([]error, len(sessions))
	var wg sync.WaitGroup
	for i, sess := range sessions {
		wg.Go(func() { errs[i] = sess.pushPayload(ctx, s.seq.Add(1), p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pushPayload sends the payload, and waits for the agent's answer.
func (sess *agentSession) pushPayload(ctx context.Context, seq uint64, p Payload) error {
	id := strconv.FormatUint(seq, 10)
	m := wire.New(wire.MsgPayload).AddString(wire.TagID, id).AddString(wire.TagName, p.Name).AddBytes(wire.TagData, p.Data)
	if len(m.Body) > wire.MaxBody {
		return &Error{Op: "push", Cluster: sess.id.Cluster, Code: CodeConfig,
			Err: fmt.Errorf("payload %q has %d bytes, and a message takes %d at most", wire.Printable(p.Name), len(p.Data), wire.MaxBody)}
	}
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
		return &Error{Op: "push", Cluster: sess.id.Cluster, Code: contextCode(ctx.Err()), Err: ctx.Err()}
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
		answer.AddUint(wire.TagCode, uint64(CodeInternal)).AddString(wire.TagText, wire.Printable(err.Error()))
	}
	l.Send(answer)
}

package tunnel

import (
	"context"
	"errors"
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

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

// Payload is a piece of data that the server's owner hands an agent over the
// control stream, such as an SSH public key. What a name means is between the
// two programs. At most 1 MiB, name included.
type Payload struct {
	Name string
	Data []byte
}

// payloadTimeout bounds the wait for an agent's word on a payload.
const payloadTimeout = 30 * time.Second

// sendPayloads hands a new session what the field Payloads has for it.
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

// Push hands the payload to each agent of the cluster that is connected to this
// replica, and returns when all have taken it. An agent of other replicas alone
// gets nothing: each is to push, and one that has sessions with two gets it from
// both. The error joins one *[Error] for each that has not taken it; without any
// agent here it is one of [CodeNoAgent].
func (s *Server) Push(ctx context.Context, cluster string, p Payload) error {
	if err := s.setup(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	sessions := s.registry.candidates(cluster)
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

// pushPayload waits for what the agent says of the payload.
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

// handleReceived passes a RECEIVED to who waits for it.
func (sess *agentSession) handleReceived(m *wire.Message) {
	sess.state.Lock()
	answered := sess.waiting[m.Text(wire.TagID)]
	delete(sess.waiting, m.Text(wire.TagID))
	sess.state.Unlock()
	if answered != nil {
		answered <- messageError(m, "push", sess.id.Cluster, "")
	}
}

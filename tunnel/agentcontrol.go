package tunnel

import (
	"context"
	"errors"
	"fmt"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// HandleControl handles a message from the server.
func (l *serverSession) HandleControl(m *wire.Message) {
	switch m.Kind {
	case wire.MsgDrain:
		l.Retire()
	case wire.MsgIssued:
		select {
		case <-l.issued: // an answer that nobody has waited for
		default:
		}
		l.issued <- m
	case wire.MsgRoots:
		l.trustRoots(m)
	case wire.MsgServers:
		l.learnServers(m)
	case wire.MsgPayload:
		if !l.queuePayload(m) { // the rest of the control stream must not wait
			l.receivedPayload(m, errors.New("too many payloads wait"))
		}
	}
}

// trustRoots takes the authorities of a ROOTS. Since that saves credentials, it may
// take long, and watches for the end of the session meanwhile. If it fails because the
// session ends, that is no failure: the WELCOME of the next one has the authorities.
func (l *serverSession) trustRoots(m *wire.Message) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx := l.Streams.Context()
		if err := l.runner.trustRoots(ctx, m); err != nil && ctx.Err() == nil {
			l.runner.reportFailure(l.server, err, 0)
		}
	}()
	select {
	case <-done:
	case <-l.Mux.Done():
		l.CancelStreams()
		l.runner.wakeRun()
		<-done
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

// held returns the credentials; nil if there are none.
func (r *runner) held() *Credentials {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.credentials
}

func (r *runner) identity() Identity { return r.held().identity() }

// updateCredentials replaces the credentials by those that change returns, after they
// are saved: else they would be lost with the process. Those of GetClientCertificate
// are not saved, since somebody else keeps them.
func (r *runner) updateCredentials(ctx context.Context, change func(*Credentials) (*Credentials, error)) (*Credentials, error) {
	select {
	case r.updating <- struct{}{}:
		defer func() { <-r.updating }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	held := r.held()
	next, err := change(held)
	if err != nil || next == held {
		return held, err
	}
	if r.Credentials != nil {
		if err := r.Credentials.Save(ctx, next); err != nil {
			return nil, &Error{Op: "connect", Code: CodeInternal, Err: fmt.Errorf("saving the credentials: %w", err)}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credentials = next
	return next, nil
}

// trustRoots replaces the authorities that are trusted by those of a WELCOME or ROOTS.
func (r *runner) trustRoots(ctx context.Context, m *wire.Message) error {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	_, err := r.updateCredentials(ctx, func(held *Credentials) (*Credentials, error) { return held.withAuthorities(m) })
	return err
}

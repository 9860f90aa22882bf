package session

import (
	"context"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Outbox is an outbox of messages that do not matter.
type Outbox struct{ o outbox }

func NewOutbox(control *mux.Stream) *Outbox { return &Outbox{outbox{control: control}} }
func (o *Outbox) Start(failed func(error))  { o.o.start(failed) }
func (o *Outbox) Add() bool                 { return o.o.add(wire.New(wire.MsgDrain)) }
func (o *Outbox) Close()                    { o.o.close() }

// AwaitAnswer waits for the answer to a dial on a stream of the session.
func AwaitAnswer(ctx context.Context, m *mux.Session, stream *mux.Stream, elsewhere func(context.Context) bool) error {
	g := group.New(ctx)
	defer g.Drain(ctx)
	s := Session{Config: Config{Mux: m, Group: g}}
	_, err := s.awaitAnswer(ctx, stream, elsewhere)
	return err
}

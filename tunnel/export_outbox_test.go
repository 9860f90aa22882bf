package tunnel

import (
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Outbox is an outbox of messages that do not matter.
type Outbox struct{ o outbox }

func NewOutbox(control *mux.Stream) *Outbox { return &Outbox{outbox{control: control}} }
func (o *Outbox) Start(failed func(error))  { o.o.start(failed) }
func (o *Outbox) Add() bool                 { return o.o.add(wire.New(wire.MsgDrain)) }
func (o *Outbox) Close()                    { o.o.close() }

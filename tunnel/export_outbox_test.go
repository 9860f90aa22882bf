package tunnel

import "github.com/causewayproject/causeway/internal/mux"

// Outbox is an outbox of messages that do not matter.
type Outbox struct{ o outbox }

func NewOutbox(control *mux.Stream) *Outbox { return &Outbox{outbox{control: control}} }
func (o *Outbox) Start(failed func(error))  { o.o.start(failed) }
func (o *Outbox) Add() bool                 { return o.o.add(&message{kind: msgDrain}) }
func (o *Outbox) Close()                    { o.o.close() }

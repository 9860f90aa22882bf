package tunnel

import (
	"context"
	"net"
	"net/netip"
)

type (
	Place = place
	Stage = stage
	Turns = turns
)

const (
	Silent     = silent
	Greeting   = greeting
	Proven     = proven
	AnswerTime = answerTime
)

var (
	NewAdmission = newAdmission
	NewTurns     = newTurns
	OriginOf     = originOf
)

func (a *admission) Enter(ctx context.Context, conn net.Conn) (*Place, error) {
	return a.enter(ctx, conn)
}

func (p *place) Reach(s Stage)  { p.reach(s) }
func (p *place) Wait(wait bool) { p.waiting.Store(wait) }
func (p *place) Leave()         { p.leave() }
func (p *place) Lost() bool     { return p.ctx.Err() != nil }

func (t *turns) Enter(ctx context.Context, from netip.Prefix) error { return t.enter(ctx, from) }
func (t *turns) Leave()                                             { t.leave() }

package tunnel

import (
	"context"
	"net"
)

type (
	Place = place
	Stage = stage
)

const (
	Silent     = silent
	Greeting   = greeting
	Proven     = proven
	AnswerTime = answerTime
)

var (
	NewAdmission = newAdmission
)

func (a *admission) Enter(ctx context.Context, conn net.Conn) (*Place, error) {
	return a.enter(ctx, conn)
}

func (p *place) Reach(s Stage)  { p.reach(s) }
func (p *place) Wait(wait bool) { p.waiting.Store(wait) }
func (p *place) Leave()         { p.leave() }
func (p *place) Lost() bool     { return p.ctx.Err() != nil }

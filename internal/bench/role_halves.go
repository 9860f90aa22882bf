package main

import (
	"context"
	"net"
)

// An agentRole is the process of a row's agents.
type agentRole struct{ half agent }

func (a *agentRole) handleRequest(ctx context.Context, q request) (reply, error) {
	switch q.Op {
	case "start":
		chosen, err := chooseRows(q.Row)
		if err != nil {
			return reply{}, err
		}
		if a.half, err = chosen[0].newAgent(&q.Setup); err != nil {
			return reply{}, err
		}
		return reply{Addr: a.half.addr()}, nil
	case "connect":
		front, err := a.half.connect(ctx, q.Addr, q.N)
		return reply{Addr: front}, err
	}
	return reply{}, errOp
}

func (a *agentRole) childPIDs() []int { return childrenOf(a.half) }

func (a *agentRole) Close() error {
	if a.half == nil {
		return nil
	}
	return a.half.Close()
}

// A serverRole is the process that runs a row's server and the listener in front
// of the server.
type serverRole struct {
	half  server
	front *listener
}

func (s *serverRole) handleRequest(_ context.Context, q request) (reply, error) {
	switch q.Op {
	case "start":
		chosen, err := chooseRows(q.Row)
		if err != nil {
			return reply{}, err
		}
		if s.half, err = chosen[0].newServer(&q.Setup); err != nil {
			return reply{}, err
		}
		return reply{Addr: s.half.addr()}, nil
	case "front":
		if d, ok := s.half.(door); ok {
			addr, err := d.front()
			return reply{Addr: addr}, err
		}
		var err error
		if s.front, err = listen(s.serve); err != nil {
			return reply{}, err
		}
		return reply{Addr: s.front.addr()}, nil
	case "sessions":
		return reply{N: int64(s.half.sessions())}, nil
	}
	return reply{}, errOp
}

func (s *serverRole) serve(client net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	stream, err := s.half.dial(ctx)
	cancel()
	if err != nil {
		return // the client sees the end
	}
	if r, ok := s.half.(relayer); ok {
		r.relay(client, stream)
		return
	}
	relay(client, stream, chunkSize)
}

func (s *serverRole) childPIDs() []int { return childrenOf(s.half) }

// Close closes the sessions first: a dial may wait for one.
func (s *serverRole) Close() error {
	if s.half != nil {
		s.half.Close()
	}
	if s.front != nil {
		return s.front.Close()
	}
	return nil
}

// childrenOf is nil for a half that does its work itself.
func childrenOf(half any) []int {
	p, ok := half.(parent)
	if !ok {
		return nil
	}
	return append([]int{}, p.childPIDs()...)
}

package bench

import (
	"context"
	"net"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// An agentRole is the process of a row's agents.
type agentRole struct {
	rig.Process
	half agent
}

func (a *agentRole) Start(s Setup, addr *string) error {
	r, err := chooseRow(s.Row)
	if err != nil {
		return err
	}
	if a.half, err = r.newAgent(&s); err != nil {
		return err
	}
	*addr = a.half.addr()
	return nil
}

type ConnectArgs struct {
	Server string
	N      int
}

func (a *agentRole) Connect(args ConnectArgs, front *string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), measureTimeout)
	defer cancel()
	*front, err = a.half.connect(ctx, args.Server, args.N)
	return err
}

func (a *agentRole) Usage(tidy bool, u *rig.Usage) error { return halfUsage(a.half, tidy, u) }

func (a *agentRole) Close() error {
	if a.half == nil {
		return nil
	}
	return a.half.Close()
}

// A serverRole is the process that runs a row's server and the listener in front
// of the server.
type serverRole struct {
	rig.Process
	half  server
	front *listener
}

func (s *serverRole) Start(args Setup, addr *string) error {
	r, err := chooseRow(args.Row)
	if err != nil {
		return err
	}
	if s.half, err = r.newServer(&args); err != nil {
		return err
	}
	*addr = s.half.addr()
	return nil
}

// Front returns where clients get in.
func (s *serverRole) Front(_ rig.None, addr *string) (err error) {
	if d, ok := s.half.(door); ok {
		*addr = d.front()
		return nil
	}
	if s.front, err = listen(s.serve); err == nil {
		*addr = s.front.addr()
	}
	return err
}

func (s *serverRole) Sessions(_ rig.None, n *int) error {
	*n = s.half.sessions()
	return nil
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

func (s *serverRole) Usage(tidy bool, u *rig.Usage) error { return halfUsage(s.half, tidy, u) }

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

// halfUsage is this process's, unless the half has its work done by others.
func halfUsage(half any, tidy bool, u *rig.Usage) (err error) {
	if p, ok := half.(parent); ok {
		*u, err = childrenUsage(p.childPIDs())
		return err
	}
	return rig.Process{}.Usage(tidy, u)
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A bed is a row's four processes, with one agent connected, and a fifth for the
// line between server and agent. A row without a tunnel has no agent, and may
// have no server.
type bed struct {
	row    row
	dir    string
	addr   string // where the server waits for agents
	front  string // what the client dials
	target *process
	agent  *process
	server *process
	client *process

	line line
	link *process // nil: there is no line

	profiles string // folder for CPU profiles; "": none
}

// startBed starts the processes; stop ends them, also after an error.
func startBed(ctx context.Context, r row, l line) (*bed, error) {
	b := &bed{row: r, line: l}
	if err := b.start(ctx); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *bed) start(ctx context.Context) error {
	var err error
	if b.dir, err = os.MkdirTemp("", "causeway-bench"); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if err := writeCertificates(b.dir); err != nil {
		return err
	}
	if b.client, err = startProcess("client"); err != nil {
		return err
	}
	if b.target, err = startProcess("target"); err != nil {
		return err
	}
	started, err := b.target.call(ctx, request{Op: "start"})
	if err != nil || b.row.newServer == nil {
		b.front = started.Addr
		return err
	}
	s := setup{Dir: b.dir, Target: started.Addr}
	if b.row.newClient != nil {
		if _, err := b.client.call(ctx, request{Op: "start", Row: b.row.name, Setup: s}); err != nil {
			return err
		}
	}
	return b.startTunnel(ctx, s)
}

func (b *bed) startTunnel(ctx context.Context, s setup) error {
	var err error
	if b.row.newAgent != nil {
		if b.agent, err = startProcess("agent"); err != nil {
			return err
		}
		started, err := b.agent.call(ctx, request{Op: "start", Row: b.row.name, Setup: s})
		if err != nil {
			return err
		}
		if s.Peer, err = b.linkedAddress(ctx, started.Addr); err != nil {
			return err
		}
	}
	if b.server, err = startProcess("server"); err != nil {
		return err
	}
	started, err := b.server.call(ctx, request{Op: "start", Row: b.row.name, Setup: s})
	if err != nil {
		return err
	}
	if b.addr, err = b.linkedAddress(ctx, started.Addr); err != nil {
		return err
	}
	if b.agent != nil {
		if b.front, err = b.connect(ctx, 1); err != nil || b.front != "" {
			return err
		}
	}
	if b.row.idleAgents > 0 {
		if err := b.waitSessions(ctx, 1); err != nil {
			return err
		}
	}
	started, err = b.server.call(ctx, request{Op: "front"})
	b.front = started.Addr
	return err
}

func (b *bed) connect(ctx context.Context, n int) (string, error) {
	r, err := b.agent.call(ctx, request{Op: "connect", Addr: b.addr, N: n})
	return r.Addr, err
}

// waitSessions waits until the server too has seen n agents.
func (b *bed) waitSessions(ctx context.Context, n int) error {
	return pollUntil(ctx, 10*time.Millisecond, func() (bool, error) {
		r, err := b.server.call(ctx, request{Op: "sessions"})
		return int(r.N) >= n, err
	})
}

// pollUntil calls done until it says so.
func pollUntil(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("bench: %w", ctx.Err())
		}
	}
}

// tunnelProcesses are the processes of the row.
func (b *bed) tunnelProcesses() []*process {
	if b.agent == nil {
		return []*process{b.server}
	}
	return []*process{b.server, b.agent}
}

// endUsages returns the server's and the agent's, which is zero without one.
func (b *bed) endUsages(ctx context.Context, tidy bool) (server, agent usage, err error) {
	s, err := b.server.call(ctx, request{Op: "usage", Tidy: tidy})
	if err != nil {
		return usage{}, usage{}, err
	}
	if b.agent == nil {
		return s.Usage, usage{}, nil
	}
	a, err := b.agent.call(ctx, request{Op: "usage", Tidy: tidy})
	return s.Usage, a.Usage, err
}

// startProfiles starts the CPU profiles of server and agent, if the plan wants them.
func (b *bed) startProfiles(ctx context.Context, measure string) (stop func() error, err error) {
	if b.profiles == "" {
		return func() error { return nil }, nil
	}
	for _, p := range b.tunnelProcesses() {
		path := filepath.Join(b.profiles, fmt.Sprintf("%s-%s-%s.pprof", b.row.name, measure, p.name))
		if _, err := p.call(ctx, request{Op: "profile", Addr: path}); err != nil {
			return nil, err
		}
	}
	return func() error {
		for _, p := range b.tunnelProcesses() {
			if _, err := p.call(ctx, request{Op: "profile"}); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (b *bed) resetPeaks(ctx context.Context) error {
	for _, p := range b.tunnelProcesses() {
		if _, err := p.call(ctx, request{Op: "reset"}); err != nil {
			return err
		}
	}
	return nil
}

// stop ends what stands between before the ends, so that nobody redials.
func (b *bed) stop() {
	for _, p := range []*process{b.client, b.agent, b.server, b.link, b.target} {
		if p != nil {
			p.Stop(2 * closeTimeout)
		}
	}
	if b.dir != "" {
		os.RemoveAll(b.dir)
	}
}

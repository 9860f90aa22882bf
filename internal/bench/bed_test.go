package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// A bed is a row's four processes, with one agent connected, and a fifth for the
// line between server and agent. A row without a tunnel has no agent, and may
// have no server.
type bed struct {
	*testing.B
	ctx   context.Context
	row   row
	addr  string // where the server waits for agents
	front string // what the client dials

	target, agent, server, client *rig.Child

	line line
	link *rig.Child // nil: there is none
	path *path      // nil: there is none
}

// newBed starts the processes. What goes wrong ends the benchmark.
func newBed(b *testing.B, r row, l line) *bed {
	s := Setup{Row: r.name, Dir: b.TempDir()}
	ctx, cancel := context.WithTimeout(interrupted, measureTimeout)
	bed := &bed{B: b, ctx: ctx, row: r, line: l}
	b.Cleanup(func() {
		bed.stop()
		cancel()
	})
	err := writeCertificates(s.Dir)
	if err == nil && l.Kbit > 0 {
		bed.path, err = newPath(l)
	}
	if err != nil {
		b.Fatal(err)
	}
	bed.client, bed.target = bed.startProcess("client"), bed.startProcess("target")
	bed.call(bed.target, "Start", rig.None{}, &s.Target)
	if r.newServer == nil {
		bed.front = s.Target
		return bed
	}
	if r.newClient != nil {
		bed.call(bed.client, "Start", s, nil)
	}
	bed.startTunnel(s)
	return bed
}

func (b *bed) startTunnel(s Setup) {
	if b.row.newAgent != nil {
		b.agent = b.startProcess("agent")
		b.call(b.agent, "Start", s, &s.Peer)
		s.Peer = b.linkedAddress(s.Peer)
	}
	b.server = b.startProcess("server")
	b.call(b.server, "Start", s, &b.addr)
	b.addr = b.linkedAddress(b.addr)
	if b.agent != nil {
		if b.front = b.connect(1); b.front != "" {
			return
		}
	}
	if b.row.idleAgents > 0 {
		b.waitSessions(1)
	}
	b.call(b.server, "Front", rig.None{}, &b.front)
}

func (b *bed) startProcess(role string) *rig.Child {
	var c *rig.Child
	err := b.path.enter(role, func() (err error) {
		c, err = rig.Start(role, closeTimeout)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// call asks a process; what goes wrong ends the benchmark.
func (b *bed) call(c *rig.Child, method string, args, reply any) {
	b.Helper()
	if err := c.Call(b.ctx, method, args, reply); err != nil {
		b.Fatal(err)
	}
}

// connect connects n agents, and returns where clients connect to if the agents
// decide it.
func (b *bed) connect(n int) (front string) {
	b.call(b.agent, "Connect", ConnectArgs{b.addr, n}, &front)
	return front
}

// waitSessions waits until the server too has seen n agents.
func (b *bed) waitSessions(n int) {
	b.poll(10*time.Millisecond, func() bool {
		var sessions int
		b.call(b.server, "Sessions", rig.None{}, &sessions)
		return sessions >= n
	})
}

// poll waits until something is so.
func (b *bed) poll(every time.Duration, done func() bool) {
	if err := rig.Poll(b.ctx, every, func() (bool, error) { return done(), nil }); err != nil {
		b.Fatal(err)
	}
}

// tunnelProcesses are the processes of the row.
func (b *bed) tunnelProcesses() (all []*rig.Child) {
	for _, c := range []*rig.Child{b.server, b.agent} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// usages returns the usages of the row's processes, by their names.
func (b *bed) usages(tidy bool) map[string]rig.Usage {
	all := map[string]rig.Usage{}
	for _, c := range b.tunnelProcesses() {
		var u rig.Usage
		b.call(c, "Usage", tidy, &u)
		all[c.Name] = u
	}
	return all
}

// profile has server and agent write CPU profiles until the benchmark ends, if
// they are wanted.
func (b *bed) profile(measure string) {
	if *profiles == "" {
		return
	}
	if err := os.MkdirAll(*profiles, 0o755); err != nil {
		b.Fatal(err)
	}
	for _, c := range b.tunnelProcesses() {
		path := filepath.Join(*profiles, fmt.Sprintf("%s-%s-%s.pprof", b.row.name, measure, c.Name))
		b.call(c, "Profile", path, nil)
		b.Cleanup(func() { c.Call(context.Background(), "Profile", "", nil) })
	}
}

// stop ends what stands between before the ends, so that nobody redials.
func (b *bed) stop() {
	for _, c := range []*rig.Child{b.client, b.agent, b.server, b.link, b.target} {
		if c == nil {
			continue
		}
		if err := c.Stop(); err != nil && b.ctx.Err() == nil {
			b.Error(err)
		}
	}
	if b.path != nil {
		if err := b.path.Close(); err != nil {
			b.Error(err)
		}
	}
}

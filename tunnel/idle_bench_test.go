package tunnel_test

import (
	"context"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// BenchmarkIdleAgent is the memory, heap and stacks, of an agent with sessions
// with one and with two servers over TCP: its own, and the servers' for it.
func BenchmarkIdleAgent(b *testing.B) {
	for _, sessions := range []int{1, 2} {
		b.Run(strconv.Itoa(sessions), func(b *testing.B) {
			const n = 200
			idleAgents(b, 1, sessions) // what is allocated once
			for b.Loop() {
				b.ReportMetric(idleAgents(b, n, sessions)/n, "B/agent")
			}
		})
	}
}

// idleAgents returns what agents and their sessions take.
func idleAgents(b *testing.B, agents, sessions int) float64 {
	authority, err := tunnel.NewAuthority()
	if err != nil {
		b.Fatal(err)
	}
	names := []string{"a", "b"}[:sessions]
	store := &tunnel.MemoryStore{}
	var servers []*tunnel.Server
	var addresses []string
	var serving, running sync.WaitGroup
	for i := range sessions {
		s := &tunnel.Server{Name: names[i], Authority: authority, Store: store}
		if err := s.TellServers(slices.Concat(names[i:], names[:i])...); err != nil {
			b.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		serving.Go(func() { s.Serve(context.Background(), l) })
		servers, addresses = append(servers, s), append(addresses, l.Addr().String())
	}
	before := inUse()
	ctx, cancel := context.WithCancel(context.Background())
	up := make(chan struct{}, agents*sessions)
	for range agents {
		inv, err := servers[0].Invite(ctx, testCluster, 0)
		if err != nil {
			b.Fatal(err)
		}
		a := &tunnel.Agent{
			Servers: addresses, Credentials: &tunnel.MemoryCredentials{}, Grace: -1, FirstBackoff: 1,
			Invitation: func(context.Context) (tunnel.Invitation, error) { return inv, nil },
			Hooks:      tunnel.AgentHooks{Connected: func(string, tunnel.Identity) { up <- struct{}{} }},
		}
		running.Go(func() { a.Run(ctx) })
	}
	for range agents * sessions {
		<-up
	}
	time.Sleep(1500 * time.Millisecond) // what is for the beginning ends after a second
	used := inUse() - before
	cancel()
	running.Wait()
	for _, s := range servers {
		s.Close()
	}
	serving.Wait()
	return used
}

func inUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

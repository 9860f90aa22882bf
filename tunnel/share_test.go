package tunnel_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// floods returns Targets whose connections send without end, and count what they take.
func floods(taken map[string]*atomic.Int64) tunnel.Targets {
	network := &targettest.Network{
		Hosts: map[string]string{"ann": "192.0.2.1", "bob": "192.0.2.2"},
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			near, far := net.Pipe()
			go io.Copy(countTo{taken[address]}, far)
			go func() {
				for p := make([]byte, 64<<10); ; {
					if _, err := far.Write(p); err != nil {
						return
					}
				}
			}()
			return near, nil
		},
	}
	return tunnel.Targets{Allow: []string{"*:7"}, Resolver: network, Dial: network.DialContext}
}

type countTo struct{ n *atomic.Int64 }

func (c countTo) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// A caller with twenty connections gets no more of an agent's line than one with a single
// one, in both directions, and by another replica too.
func TestSharesOfCallers(t *testing.T) {
	slow := linktest.Config{Up: linktest.Direction{Rate: 2 << 20}, Down: linktest.Direction{Rate: 2 << 20}}
	for _, slowLine := range []string{"agent", "peer"} {
		t.Run(slowLine, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "a", "b")
				r.mesh()
				if slowLine == "agent" {
					link := newTestLink(t)
					link.Set(slow)
					r.w.wrap = link.join
				} else {
					r.link("b:1").Set(slow)
				}
				sent := map[string]*atomic.Int64{"192.0.2.1:7": {}, "192.0.2.2:7": {}}
				r.at("b", &tunnel.Agent{Targets: floods(sent)})
				received := map[string]*atomic.Int64{"ann": {}, "bob": {}}
				var wg sync.WaitGroup
				var conns []net.Conn
				for i := range 21 {
					caller := "ann"
					if i == 20 {
						caller = "bob"
					}
					conn, err := r.beds["a"].s.Dialer(testCluster).DialContext(tunnel.WithCaller(t.Context(), caller), "tcp", caller+":7")
					if err != nil {
						t.Fatal(err)
					}
					conns = append(conns, conn)
					wg.Go(func() { io.Copy(countTo{received[caller]}, conn) })
					wg.Go(func() {
						for p := make([]byte, 64<<10); ; {
							if _, err := conn.Write(p); err != nil {
								return
							}
						}
					})
				}
				all := []*atomic.Int64{received["ann"], received["bob"], sent["192.0.2.1:7"], sent["192.0.2.2:7"]}
				time.Sleep(10 * time.Second) // until windows are what they will be
				var before [4]int64
				for i, n := range all {
					before[i] = n.Load()
				}
				time.Sleep(20 * time.Second)
				for i := 0; i < 4; i += 2 {
					ann, bob := all[i].Load()-before[i], all[i+1].Load()-before[i+1]
					if bob < ann*8/10 {
						t.Errorf("%s: 20 connections got %d bytes, one got %d", [...]string{"down", "", "up"}[i], ann, bob)
					}
				}
				for _, conn := range conns {
					conn.(interface{ Reset(uint32) error }).Reset(0)
				}
				wg.Wait()
			})
		})
	}
}

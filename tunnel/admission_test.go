package tunnel_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// from is a connection of an address.
type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr)) }

func connFrom(t *testing.T, ip string) net.Conn {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	return from{near, netip.AddrPortFrom(netip.MustParseAddr(ip), 1).String()}
}

// Who makes room for one more carrier.
func TestAdmission(t *testing.T) {
	type carrier struct {
		ip    string
		stage tunnel.Stage
		busy  bool          // it waits for the server, not for its client
		ago   time.Duration // since it came to the stage
	}
	const a, b, c = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	for _, tt := range []struct {
		name string
		have []carrier // the oldest first
		next string
		want int // index of who makes room; -1: nobody
	}{
		{"the oldest silent one of the address that has most", []carrier{{ip: b}, {ip: a, stage: tunnel.Greeting}, {ip: a}, {ip: a}}, c, 2},
		{"whatever it does", []carrier{{ip: b}, {ip: a, stage: tunnel.Proven, busy: true}, {ip: a, stage: tunnel.Proven, busy: true}}, c, 1},
		{"not of an address that has less", []carrier{{ip: b, ago: time.Second}, {ip: a}, {ip: a}}, a, 1},
		{"of equals the oldest", []carrier{{ip: b, ago: time.Second}, {ip: a}}, c, 0},
		{"its own oldest silent one", []carrier{{ip: a, stage: tunnel.Greeting, ago: time.Minute}, {ip: a}, {ip: a}}, a, 1},
		{"no silent one that the server keeps waiting", []carrier{{ip: a, busy: true}, {ip: a}}, a, 1},
		{"its own that does not answer", []carrier{{ip: a, stage: tunnel.Greeting, ago: tunnel.AnswerTime}, {ip: a, stage: tunnel.Greeting}}, a, 0},
		{"none that has just been answered", []carrier{{ip: a, stage: tunnel.Greeting, ago: tunnel.AnswerTime - 1}}, a, -1},
		{"none that waits for its turn", []carrier{{ip: a, stage: tunnel.Greeting, busy: true, ago: time.Minute}}, a, -1},
		{"none that has proven who it is", []carrier{{ip: a, stage: tunnel.Proven, ago: time.Minute}}, a, -1},
		{"the network of an IPv6 address is one source", []carrier{{ip: b}, {ip: "2001:db8::1"}, {ip: "2001:db8::2"}}, "2001:db8::3", 1},
		{"IPv4 in IPv6 is IPv4", []carrier{{ip: b}, {ip: "::ffff:192.0.2.1"}, {ip: a}}, c, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				admission := tunnel.NewAdmission(len(tt.have))
				var places []*tunnel.Place
				clock := time.Minute
				for _, have := range tt.have {
					time.Sleep(clock - have.ago) // of the bubble
					p, err := admission.Enter(t.Context(), connFrom(t, have.ip))
					if err != nil {
						t.Fatal(err)
					}
					p.Reach(have.stage)
					p.Wait(!have.busy)
					places = append(places, p)
					time.Sleep(have.ago)
					clock = 0
				}
				ctx, cancel := context.WithTimeout(t.Context(), 0) // it does not wait
				defer cancel()
				p, err := admission.Enter(ctx, connFrom(t, tt.next))
				if got := slices.IndexFunc(places, (*tunnel.Place).Lost); got != tt.want || (err != nil) != (tt.want < 0) {
					t.Errorf("%d made room, and the new one got %v, want %d", got, err, tt.want)
				}
				if err == nil {
					p.Leave()
				}
				for _, p := range places {
					p.Leave()
				}
			})
		})
	}
}

package tunnel_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// longLine is a line between agents and servers, and between servers.
type longLine struct {
	roundTrip time.Duration
	mbit      int
}

func (l longLine) config() linktest.Config {
	way := linktest.Direction{Delay: l.roundTrip / 2, Rate: l.mbit * 1_000_000 / 8}
	return linktest.Config{Up: way, Down: way}
}

// on makes w wires of which each is such a line.
func (l longLine) on(t testing.TB, w *wires) *wires {
	link := newTestLink(t)
	link.Set(l.config())
	w.wrap = link.join
	return w
}

// lineRoutes are ways to a target beyond the line, which is between agent and
// server, or between the servers.
var lineRoutes = []struct {
	name string
	dial func(*testing.T, longLine, tunnel.Targets) net.Conn
}{
	{"direct", func(t *testing.T, l longLine, targets tunnel.Targets) net.Conn {
		return dialLine(t, serveLine(t, l, targets))
	}},
	{"gateway", func(t *testing.T, l longLine, targets tunnel.Targets) net.Conn {
		b := serveLine(t, l, targets)
		return dialGateway(t, func(ctx context.Context, r gateway.Request) (net.Conn, error) {
			return b.s.Dialer(testCluster).DialContext(ctx, "tcp", r.Address)
		})
	}},
	{"replica", func(t *testing.T, l longLine, targets tunnel.Targets) net.Conn {
		r := newReplicas(t, "a", "b")
		r.mesh()
		l.on(t, r.w)
		r.at("b", &tunnel.Agent{Targets: targets})
		return dialLine(t, r.beds["a"])
	}},
	{"distant replica", func(t *testing.T, l longLine, targets tunnel.Targets) net.Conn {
		r := newReplicas(t, "a", "b")
		for _, address := range []string{"a:1", "b:1"} { // either may have dialed
			r.link(address).Set(l.config())
		}
		r.mesh()
		r.at("b", &tunnel.Agent{Targets: targets})
		return dialLine(t, r.beds["a"])
	}},
}

func serveLine(t *testing.T, l longLine, targets tunnel.Targets) *bed {
	b := newBedAt(t, &tunnel.Server{}, l.on(t, &wires{}), wireAddress)
	b.agent(&tunnel.Agent{Targets: targets})
	return b
}

func dialLine(t *testing.T, b *bed) net.Conn {
	t.Helper()
	conn, err := b.dial("target:9")
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// dialGateway dials by a CONNECT door.
func dialGateway(t *testing.T, dial func(context.Context, gateway.Request) (net.Conn, error)) net.Conn {
	t.Helper()
	doors := &wires{}
	l, _ := doors.Listen(t.Context(), "door")
	g := &gateway.Gateway{Dial: dial, Authenticate: func(context.Context, gateway.Credentials) (gateway.Identity, error) {
		return gateway.Identity{Name: "client"}, nil
	}}
	served := make(chan error, 1)
	go func() { served <- g.ServeConnect(context.Background(), l) }()
	t.Cleanup(func() {
		g.Close()
		<-served
	})
	conn, err := doors.Dial(t.Context(), "tcp", "door")
	if err != nil {
		t.Fatal(err)
	}
	go fmt.Fprint(conn, "CONNECT target:9 HTTP/1.1\r\nHost: target:9\r\nProxy-Authorization: Basic YTpi\r\n\r\n")
	r := bufio.NewReaderSize(conn, 1) // what follows the answer is read from conn
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %+v, %v from the gateway", resp, err)
	}
	return conn
}

// lineTargets are targets that are the other ends of what comes by the channel.
func lineTargets(ends chan<- net.Conn) tunnel.Targets {
	n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1"}, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		ends <- far
		return near, nil
	}}
	return *targetsThrough(n, tunnel.Targets{Allow: []string{"*:9"}})
}

// rateOf is what comes from one connection to the other, a second later.
func (l longLine) rateOf(from, to net.Conn) float64 {
	began := time.Now()
	go io.CopyBuffer(struct{ io.Writer }{from}, zeros{}, make([]byte, 256<<10)) // full frames
	during := 2 * l.roundTrip
	start, end := began.Add(time.Second), began.Add(time.Second+during)
	to.SetReadDeadline(end)
	got := 0
	for buf := make([]byte, 64<<10); ; {
		n, err := to.Read(buf)
		if err != nil {
			return float64(got) / during.Seconds()
		}
		if now := time.Now(); now.After(start) {
			got += n
		}
	}
}

// tlsRate is that of a plain TLS connection.
func (l longLine) tlsRate(t *testing.T) float64 {
	t.Helper()
	ca := pki.NewCA("line")
	w := l.on(t, &wires{})
	listener, _ := w.Listen(t.Context(), "tls")
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, _ := listener.Accept()
		accepted <- conn
	}()
	conn, err := w.Dial(t.Context(), "tcp", "tls")
	if err != nil {
		t.Fatal(err)
	}
	client := tls.Client(conn, &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"})
	server := tls.Server(<-accepted, &tls.Config{Certificates: []tls.Certificate{ca.Server("localhost")}, SessionTicketsDisabled: true})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	defer w.cut()
	return l.rateOf(server, client)
}

// A stream has nine tenths of what one TLS connection carries over the same line,
// a second after the dial, whichever way it goes. The clock is a bubble's, so that
// the measurements can run beside each other.
func TestLongLine(t *testing.T) {
	for _, l := range []longLine{{10 * time.Millisecond, 500}, {100 * time.Millisecond, 200}, {200 * time.Millisecond, 500}} {
		var want float64
		synctest.Test(t, func(t *testing.T) { want = l.tlsRate(t) })
		for _, route := range lineRoutes {
			for _, way := range []string{"down", "up"} {
				t.Run(fmt.Sprintf("%v %d Mbit/s %s %s", l.roundTrip, l.mbit, route.name, way), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						ends := make(chan net.Conn, 1)
						conn := route.dial(t, l, lineTargets(ends))
						target := <-ends
						defer target.Close()
						defer conn.Close()
						from, to := target, conn
						if way == "up" {
							from, to = conn, target
						}
						if got := l.rateOf(from, to); got < 0.9*want {
							t.Errorf("got %.1f MB/s, want 90%% of %.1f", got/1e6, want/1e6)
						}
					})
				})
			}
		}
	}
}

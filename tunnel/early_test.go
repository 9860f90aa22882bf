package tunnel_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// What travels with a dial is answered a round trip earlier, whichever way the dial goes.
func TestDialEarlySavesRoundTrip(t *testing.T) {
	for _, roundTrip := range []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond} {
		line := longLine{roundTrip, 10_000}
		for _, route := range []struct {
			name string
			bed  func(*testing.T) *bed
		}{
			{"direct", func(t *testing.T) *bed { return serveLine(t, line, testTargets()) }},
			{"replica", func(t *testing.T) *bed {
				r := newReplicas(t, "a", "b")
				r.mesh()
				line.on(t, r.w)
				r.at("b", &tunnel.Agent{})
				return r.beds["a"]
			}},
			{"distant replica", func(t *testing.T) *bed {
				r := newReplicas(t, "a", "b")
				for _, address := range []string{"a:1", "b:1"} {
					r.link(address).Set(line.config())
				}
				r.mesh()
				r.at("b", &tunnel.Agent{})
				return r.beds["a"]
			}},
		} {
			t.Run(fmt.Sprintf("%v %s", roundTrip, route.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := route.bed(t)
					b.echo().Close() // a replica is asked once who has the agent
					began := time.Now()
					b.echo().Close()
					late := time.Since(began).Round(10 * time.Millisecond)
					began = time.Now()
					conn, err := b.s.Dialer(testCluster).DialEarly(t.Context(), "tcp", "echo:7", []byte("hello"))
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					expectText(t, conn, "hello")
					early := time.Since(began).Round(10 * time.Millisecond)
					if late != 2*roundTrip || early != roundTrip {
						t.Errorf("the echo came after %v, early after %v, want two round trips and one", late, early)
					}
					checkEcho(t, conn) // and nobody writes the bytes twice
				})
			})
		}
	}
}

// The bytes are with the dial before it is answered, and the next agent has them too.
func TestDialEarlyNextAgent(t *testing.T) {
	early := strings.Repeat("early", 5000)
	for _, tt := range []struct {
		name string
		fail func(*rawStream)
	}{
		{"refused", func(s *rawStream) {
			s.dialed(3)
			s.Close()
		}},
		{"the session is lost", func(s *rawStream) { s.carrier.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				var asked atomic.Int32
				got := make(chan string, 2)
				answer := func(s *rawStream) {
					data := make([]byte, len(early))
					io.ReadFull(s, data)
					got <- string(data)
					if asked.Add(1) == 1 {
						tt.fail(s)
						return
					}
					s.dialed(0)
					io.WriteString(s, "connected")
					s.CloseWrite()
				}
				b.raw(answer)
				b.raw(answer)
				conn, err := b.s.Dialer(testCluster).DialEarly(t.Context(), "tcp", "x:1", []byte(early))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				expectText(t, conn, "connected")
				for range 2 {
					if data := <-got; data != early {
						t.Errorf("an agent got %d bytes, want the %d early ones", len(data), len(early))
					}
				}
			})
		})
	}
}

// A dial that is refused is what it is without early bytes; and there is a bound.
func TestDialEarlyRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		r.at("b", &tunnel.Agent{})
		for name, b := range r.beds {
			for _, tt := range []struct {
				target string
				early  int
				code   tunnel.Code
			}{
				{"x:443", 32 << 10, tunnel.CodeDenied},
				{"x:1", 32 << 10, tunnel.CodeRefused},
				{"echo:7", 32<<10 + 1, tunnel.CodeConfig},
			} {
				conn, err := b.s.Dialer(testCluster).DialEarly(t.Context(), "tcp", tt.target, make([]byte, tt.early))
				if conn != nil || codeOf(err) != tt.code {
					t.Errorf("by %s to %s with %d bytes: got %v, %v, want code %v", name, tt.target, tt.early, conn, err, tt.code)
				}
			}
			b.echo().Close()
		}
	})
}

// A replica that names more early bytes than may travel gets no memory for them.
func TestForwardEarlyBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{})
		c, err := tunnel.ServerCredentials(b.s.Authority)
		if err != nil {
			t.Fatal(err)
		}
		session := b.rawPeer(c)
		control := open(t, session, rawPeerHello("b"))
		if kind, _, err := readRaw(control); kind != 2 || err != nil {
			t.Fatalf("got %d, %v, want WELCOME", kind, err)
		}
		for _, n := range []uint64{32<<10 + 1, 1 << 62} {
			st := open(t, session, rawMessage(66, uint16(7), []byte(testCluster), uint16(6), []byte("tcp"), uint16(5), []byte("echo:7"), uint16(21), n))
			if _, err := st.Read(make([]byte, 1)); resetCode(err) != uint32(tunnel.CodeBadRequest) {
				t.Errorf("%d bytes: got %v, want a reset", n, err)
			}
		}
	})
}

func expectText(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

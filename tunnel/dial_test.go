package tunnel_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

var dialErrors = []struct {
	name     string
	canceled bool
	cluster  string
	network  string
	target   string
	code     tunnel.Code
	is       error // what errors.Is finds; nil: no check
	timeout  bool
}{
	{name: "refused", target: "x:1", code: tunnel.CodeRefused, is: syscall.ECONNREFUSED},
	{name: "unreachable", target: "x:2", code: tunnel.CodeUnreachable, is: syscall.EHOSTUNREACH},
	{name: "not found", target: "nowhere:7", code: tunnel.CodeNotFound},
	{name: "the target is silent", target: "x:3", code: tunnel.CodeTimeout, is: os.ErrDeadlineExceeded, timeout: true},
	{name: "the target timed out", target: "x:4", code: tunnel.CodeTimeout, is: os.ErrDeadlineExceeded, timeout: true},
	{name: "the agent tells of a deadline", target: "x:4", code: tunnel.CodeTimeout, is: context.DeadlineExceeded, timeout: true},
	{name: "something else", target: "x:5", code: tunnel.CodeInternal},
	{name: "denied by port", target: "x:443", code: tunnel.CodeDenied, is: syscall.EACCES},
	{name: "denied by address", target: "127.0.0.1:7", code: tunnel.CodeDenied, is: syscall.EACCES},
	{name: "forbidden", target: "forbidden:7", code: tunnel.CodeForbidden, is: errForbidden},
	{name: "canceled", canceled: true, target: "x:7", code: tunnel.CodeCanceled, is: context.Canceled},
	{name: "no agent", cluster: "default/other", target: "x:7", code: tunnel.CodeNoAgent},
	{name: "network", network: "udp", target: "x:7", code: tunnel.CodeConfig},
	{name: "no port", target: "x", code: tunnel.CodeConfig},
	{name: "no host", target: ":7", code: tunnel.CodeConfig},
	{name: "a port with a zero", target: "x:07", code: tunnel.CodeConfig},
	{name: "a number of another kind", target: "0x7f.1:7", code: tunnel.CodeConfig},
	{name: "an empty label", target: "a..b:7", code: tunnel.CodeConfig},
	{name: "long", target: string(make([]byte, 5000)) + ":7", code: tunnel.CodeConfig},
}

// What a dial that fails is to its caller.
func TestDialErrors(t *testing.T) {
	for _, tt := range dialErrors {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hooked []error
				b := newBed(t, &tunnel.Server{AllowDial: forbid, Hooks: tunnel.Hooks{
					Dialed: func(_ string, _ time.Duration, err error) { hooked = append(hooked, err) },
				}})
				a := testTargets()
				a.Resolver = &targettest.Network{Hosts: map[string]string{"x": "192.0.2.1", "forbidden": "192.0.2.1", "echo": "192.0.2.1"}}
				b.agent(&tunnel.Agent{Targets: a})
				busy := b.echo()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.canceled {
					cancel()
				}
				began := time.Now()
				conn, err := b.s.Dialer(orString(tt.cluster, testCluster)).DialContext(ctx, orString(tt.network, "tcp"), tt.target)
				if conn != nil {
					t.Fatal("got a connection")
				}
				var e *tunnel.Error
				if !errors.As(err, &e) || e.Code != tt.code || e.Addr != tt.target || e.Op != "dial" {
					t.Errorf("got %v, want code %v", err, tt.code)
				}
				if tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("got %v, want to find %v in it", err, tt.is)
				}
				var timeout net.Error
				if !errors.As(err, &timeout) || timeout.Timeout() != tt.timeout {
					t.Errorf("Timeout: got %t, want %t", !tt.timeout, tt.timeout)
				}
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("it took %v, want 30 s at most", took)
				}
				if last := hooked[len(hooked)-1]; codeOf(last) != tt.code || errors.As(last, &e) && e.Addr != "" {
					t.Errorf("the hook got %v, want the code without an address", last)
				}
				checkEcho(t, busy) // the session goes on
				busy.Close()
			})
		})
	}
}

// TestRecentDials: a session counts the dials of the last minutes, however often it is asked.
func TestRecentDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		a := testTargets()
		a.Resolver = &targettest.Network{Hosts: map[string]string{"x": "192.0.2.1", "echo": "192.0.2.1"}}
		b.agent(&tunnel.Agent{Targets: a})
		for _, step := range []struct {
			after           time.Duration
			refused, denied int
			want            tunnel.DialCounts
		}{
			{0, 0, 0, tunnel.DialCounts{}},
			{time.Hour, 20, 2, tunnel.DialCounts{Dials: 22, Failed: 22, Denied: 2}},
			{4 * time.Minute, 0, 0, tunnel.DialCounts{Dials: 22, Failed: 22, Denied: 2}},
			{2 * time.Minute, 1, 0, tunnel.DialCounts{Dials: 23, Failed: 23, Denied: 2}},
			{5 * time.Minute, 0, 1, tunnel.DialCounts{Dials: 2, Failed: 2, Denied: 1}},
			{10 * time.Minute, 0, 0, tunnel.DialCounts{}},
		} {
			time.Sleep(step.after)
			for range step.refused {
				b.dial("x:1")
			}
			for range step.denied {
				b.dial("x:443")
			}
			if got := b.sessions()[0].Recent; got != step.want {
				t.Errorf("after %v: got %+v, want %+v", step.after, got, step.want)
			}
		}
		b.echo().Close()
		if got := b.sessions()[0]; got.Recent != (tunnel.DialCounts{Dials: 1}) || got.Dials != 25 || got.Failed != 24 {
			t.Errorf("got %+v and %+v in all", got.Recent, got.DialCounts)
		}
	})
}

var errForbidden = errors.New("not for you")

func forbid(_ context.Context, _, _, address string) error {
	if address == "forbidden:7" {
		return errForbidden
	}
	return nil
}

func orString(s, byDefault string) string {
	if s == "" {
		return byDefault
	}
	return s
}

// Of several agents the one with the fewest streams is asked.
func TestLeastLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{})
		var conns []net.Conn
		for range 3 {
			conns = append(conns, b.echo())
		}
		b.agent(&tunnel.Agent{})
		for i, want := range [][2]int{{3, 1}, {3, 2}, {3, 3}, {4, 3}, {4, 4}} {
			conns = append(conns, b.echo())
			if got := b.sessions(); got[0].Streams != want[0] || got[1].Streams != want[1] {
				t.Errorf("dial %d: got %d and %d streams, want %v", i, got[0].Streams, got[1].Streams, want)
			}
		}
		for _, c := range conns {
			c.Close()
		}
	})
}

// However many dial at once, a session takes as many streams as it may, by
// the smaller of the two sides' limits.
func TestMaxStreams(t *testing.T) {
	for _, tt := range []struct {
		name          string
		server, agent int
		want          int
	}{
		{"one", 1, 0, 1},
		{"the server's", 5, 50, 5},
		{"the agent's", 50, 5, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{MaxStreams: tt.server})
				b.agent(&tunnel.Agent{MaxStreams: tt.agent})
				for range 2 { // streams that have ended count no more
					conns := make(chan net.Conn, 100)
					var wg sync.WaitGroup
					for range 20 {
						wg.Go(func() {
							conn, err := b.dial("echo:7")
							switch {
							case err == nil:
								conns <- conn
							case codeOf(err) != tunnel.CodeTooManyStreams:
								t.Errorf("got %v, want too many streams", err)
							}
						})
					}
					wg.Wait()
					close(conns)
					if len(conns) != tt.want {
						t.Errorf("got %d streams, want %d", len(conns), tt.want)
					}
					if failed := b.sessions()[0].Failed; failed == 0 {
						t.Error("no dial is counted as failed")
					}
					for c := range conns {
						c.Close()
					}
					synctest.Wait()
				}
				b.agent(&tunnel.Agent{}) // and with another agent there is room
				conns := []net.Conn{b.echo(), b.echo()}
				for _, c := range conns {
					c.Close()
				}
			})
		})
	}
}

// A caller that opens all the streams it can leaves some of a session to others. All callers of another
// replica count as one.
func TestMaxStreamsByCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 40
		r := newReplicas(t)
		r.members.all = []string{"a:1", "b:1"}
		for _, name := range []string{"a", "b"} {
			r.serve(&tunnel.Server{Name: name, MaxStreams: most})
		}
		r.mesh()
		open := func(by, caller string) (n int) {
			for ; n <= most; n++ {
				conn, err := r.beds[by].s.Dialer(testCluster).DialContext(tunnel.WithCaller(t.Context(), caller), "tcp", "echo:7")
				if err != nil {
					if codeOf(err) != tunnel.CodeTooManyStreams {
						t.Errorf("%s: got %v, want too many streams", caller, err)
					}
					break
				}
				t.Cleanup(func() { conn.Close() })
			}
			return n
		}
		type row struct {
			by, caller string
			want       int
		}
		for _, rows := range [][]row{
			{{"a", "one", 30}, {"a", "two", 8}, {"a", "three", 2}, {"a", "one", 0}, {"a", "four", 0}},
			{{"b", "one", 30}, {"b", "two", 0}, {"b", "", 0}, {"a", "three", 8}, {"a", "", 2}},
		} {
			agent := r.at("a", &tunnel.Agent{})
			for _, tt := range rows {
				if n := open(tt.by, tt.caller); n != tt.want {
					t.Errorf("%q by %s: got %d streams, want %d", tt.caller, tt.by, n, tt.want)
				}
			}
			agent.stop()
		}
	})
}

// An agent that does not answer as it should: the dial moves on to another
// agent if that one may do better, and only then.
func TestDialMovesOn(t *testing.T) {
	for _, tt := range []struct {
		name  string
		agent func(*rawStream) // answers DIAL
		code  tunnel.Code      // zero: the other agent gets the dial
		took  time.Duration    // at most
	}{
		{"too many streams", func(s *rawStream) { s.Reset(7) }, 0, time.Second},
		{"draining", func(s *rawStream) { s.Reset(8) }, 0, time.Second},
		{"DIALED with too many streams", func(s *rawStream) { s.dialed(7) }, 0, time.Second},
		{"DIALED with draining", func(s *rawStream) { s.dialed(8) }, 0, time.Second},
		{"reset without a code", func(s *rawStream) { s.Reset(0) }, 0, time.Second},
		{"carrier cut", func(s *rawStream) { s.carrier.Close() }, 0, time.Second},
		{"session closed", func(s *rawStream) { go s.session.Close() }, 0, time.Second},
		{"silent carrier", func(s *rawStream) { s.carrier.stall() }, 0, 6 * time.Second},
		{"refused", func(s *rawStream) { s.dialed(3) }, 0, time.Second},
		{"denied", func(s *rawStream) { s.dialed(2) }, tunnel.CodeDenied, time.Second},
		{"reset by denial", func(s *rawStream) { s.Reset(2) }, tunnel.CodeDenied, time.Second},
		{"an unknown code", func(s *rawStream) { s.dialed(99) }, 99, time.Second},
		{"a code of this side", func(s *rawStream) { s.dialed(uint64(tunnel.CodeLost)) }, tunnel.CodeInternal, time.Second},
		{"a reset with a code of this side", func(s *rawStream) { s.Reset(uint32(tunnel.CodeLost)) }, tunnel.CodeInternal, time.Second},
		{"a code of 33 bits", func(s *rawStream) { s.dialed(1 << 32) }, tunnel.CodeInternal, time.Second},
		{"end", func(s *rawStream) { s.Close() }, tunnel.CodeBadRequest, time.Second},
		{"garbage", func(s *rawStream) { s.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }, tunnel.CodeBadRequest, time.Second},
		{"another kind", func(s *rawStream) { s.Write(rawMessage(16)) }, tunnel.CodeBadRequest, time.Second},
		{"no answer", func(*rawStream) {}, tunnel.CodeTimeout, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				b.raw(tt.agent)
				b.agent(&tunnel.Agent{})
				began := time.Now()
				conn, err := b.dial("echo:7")
				if took := time.Since(began); took > tt.took {
					t.Errorf("it took %v, want %v at most", took, tt.took)
				}
				if codeOf(err) != tt.code {
					t.Errorf("got %v, want code %d", err, tt.code)
				}
				if err == nil {
					checkEcho(t, conn)
					conn.Close()
				}
			})
		})
	}
}

// A dial that waits on a dead session moves to an agent that comes later; new
// dials don't go there any more.
func TestDialMovesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.raw(func(s *rawStream) { s.carrier.stall() })
		moved := make(chan error)
		go func() {
			conn, err := b.dial("echo:7")
			if err == nil {
				conn.Close()
			}
			moved <- err
		}()
		time.Sleep(10 * time.Second)
		b.agent(&tunnel.Agent{})
		began := time.Now()
		for range 10 {
			b.echo().Close()
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("10 dials beside a dead session took %v", took)
		}
		if err := <-moved; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the dial moved after %v, want 5 s", took)
		}
	})
}

// A slow target keeps a dial that has a live session.
func TestSlowTargetStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{})
		b.agent(&tunnel.Agent{})
		if _, err := b.dial("x:3"); codeOf(err) != tunnel.CodeTimeout {
			t.Errorf("got %v, want a timeout", err)
		}
		if got := b.sessions(); got[0].Dials+got[1].Dials != 1 {
			t.Errorf("got %d and %d dials, want one", got[0].Dials, got[1].Dials)
		}
	})
}

// A carrier turns into a black hole under 100 dials a second: each dial is on
// a live session soon, none is stuck, and those that come later don't notice.
func TestBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.raw(func(s *rawStream) { s.carrier.stall() })
		b.agent(&tunnel.Agent{})
		var wg sync.WaitGroup
		var worst, worstLater time.Duration
		var mu sync.Mutex
		began := time.Now()
		for range 2000 {
			wg.Go(func() {
				at := time.Now()
				conn, err := b.dial("echo:7")
				if err != nil {
					t.Error(err)
					return
				}
				conn.Close()
				mu.Lock()
				defer mu.Unlock()
				took := time.Since(at)
				worst = max(worst, took)
				if at.Sub(began) > 6*time.Second {
					worstLater = max(worstLater, took)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
		if worst > 6*time.Second || worstLater > time.Second {
			t.Errorf("the worst dial took %v, later %v, want 6 s and 1 s", worst, worstLater)
		}
	})
}

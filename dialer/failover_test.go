package dialer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// refusing is an address that nothing listens on: a port that was free once
// may be another test's by now.
const refusing = "127.0.0.1:1"

// answering is a proxy that reads a request and says text.
func answering(t *testing.T, text string) string {
	return serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		conn.Read(make([]byte, 1024))
		io.WriteString(conn, text)
	})
}

// socksClient is how golang.org/x/net/proxy says err.
func socksClient(err error) error { return &net.OpError{Op: "socks connect", Err: err} }

// What the first member's failure does: another proxy is tried or it is not.
func TestFailoverDecision(t *testing.T) {
	forward := checked(t)
	web := func(addr string) *dialer.HTTPConnect { return &dialer.HTTPConnect{Addr: addr, Forward: forward} }
	socks := func(addr string) *dialer.SOCKS5 { return &dialer.SOCKS5{Addr: addr, Forward: forward} }
	status := func(code int) *dialer.HTTPConnect {
		return web(answering(t, fmt.Sprintf("HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n", code)))
	}
	reply := func(code byte) string { return answering(t, "\x05\x00\x05"+string([]byte{code})+"\x00"+bound4) }
	login := func(answer string) *dialer.SOCKS5 {
		d := socks(answering(t, answer))
		d.Credentials = dialer.Password("u", "p")
		return d
	}
	behind := func(hop dialer.Dialer) dialer.Dialer {
		d := web("192.0.2.1:3128")
		d.Forward = hop
		return d
	}
	says := func(err error) dialer.Dialer {
		return dialer.Func(func(context.Context, string, string) (net.Conn, error) { return nil, err })
	}
	silent := web(serve(t, listen(t), hold))
	silent.Timeout = 20 * time.Millisecond
	tokenless := web(refusing)
	tokenless.Auth = dialer.Basic(func(context.Context) (string, string, error) {
		_, err := dialer.Direct{}.DialContext(testContext(t), "tcp", refusing)
		return "", "", err
	})
	silentLogin := login("")
	silentLogin.Addr = serve(t, listen(t), func(ctx context.Context, conn net.Conn) {
		io.WriteString(conn, "\x05\x02")
		hold(ctx, conn)
	})
	silentLogin.Timeout = 20 * time.Millisecond
	plainAsTLS := status(400)
	plainAsTLS.TLSConfig = &tls.Config{}
	localLookup := socks(refusing)
	localLookup.Resolver = fakeDNS(t, nil)

	for _, tt := range []struct {
		name   string
		first  dialer.Dialer
		next   bool // whether the second is tried
		target string
	}{
		{"refused", web(refusing), true, target},
		{"refused, socks5", socks(refusing), true, target},
		{"no such proxy", web("proxy.invalid:3128"), true, target},
		{"not TLS", plainAsTLS, true, target},
		{"closed", web(answering(t, "")), true, target},
		{"closed in the answer", web(answering(t, "HTTP/1.1 200 OK\r\nVia")), true, target},
		{"closed, socks5", socks(answering(t, "")), true, target},
		{"silent", silent, true, target},
		{"silent to a login", silentLogin, true, target},
		{"direct, refused", dialer.Direct{}, true, refusing},
		{"direct, no such name", dialer.Direct{}, true, "nowhere.invalid:1"},
		{"target not found here", localLookup, true, "nowhere.invalid:1"},
		{"unreachable behind a hop", behind(status(502)), true, target},
		{"refused behind a hop", behind(socks(reply(5))), true, target},
		{"hop refused", behind(web(refusing)), true, target},
		{"unreachable behind a failover of hops", behind(&dialer.Failover{Dialers: []dialer.Dialer{status(502)}}), true, target},
		{"two that failed", &dialer.Failover{Dialers: []dialer.Dialer{web(refusing), socks(refusing)}}, true, target},
		{"foreign timeout", says(os.ErrDeadlineExceeded), true, target},
		{"foreign EOF", says(fmt.Errorf("reading: %w", io.EOF)), true, target},
		{"foreign lookup error", says(&net.DNSError{Err: "x"}), true, target},
		{"foreign closed connection", says(net.ErrClosed), true, target},
		{"foreign closed pipe", says(io.ErrClosedPipe), true, target},
		{"foreign TLS alert", says(&net.OpError{Op: "remote error", Err: tls.AlertError(116)}), true, target},
		{"foreign reset", says(fmt.Errorf("stream: %w", syscall.ECONNRESET)), true, target},
		{"foreign SOCKS client, refused", says(socksClient(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})), true, target},
		{"the same, wrapped", says(&dialer.Error{Op: "wrapper", Phase: dialer.PhaseTCP, Err: socksClient(io.EOF)}), true, target},
		{"foreign network error", says(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true, target},

		{"403", status(403), false, target},
		{"407", status(407), false, target},
		{"500", status(500), false, target},
		{"502", status(502), false, target},
		{"503", status(503), false, target},
		{"504", status(504), false, target},
		{"socks5 general failure", socks(reply(1)), false, target},
		{"socks5 not allowed", socks(reply(2)), false, target},
		{"socks5 refused", socks(reply(5)), false, target},
		{"socks5 method", socks(answering(t, "\x05\xff")), false, target},
		{"socks5 login", login("\x05\x02\x01\x01"), false, target},
		{"socks5 login, closed", login("\x05\x02"), false, target},
		{"not HTTP", web(answering(t, "SSH-2.0-x\r\n")), false, target},
		{"not SOCKS", socks(answering(t, "HTTP/1.1 400 x\r\n\r\n")), false, target},
		{"403 of a hop", behind(status(403)), false, target},
		{"407 of a hop", behind(status(407)), false, target},
		{"500 of a hop", behind(status(500)), false, target},
		{"no credentials to be had", tokenless, false, target},
		{"not allowed by a hop", behind(socks(reply(2))), false, target},
		{"hop not configured", behind(&dialer.Swap{}), false, target},
		{"not configured", web(""), false, target},
		{"address", web(refusing), false, "nonsense"},
		{"no after a failure", &dialer.Failover{Dialers: []dialer.Dialer{web(refusing), status(403)}}, false, target},
		{"foreign error", says(errors.New("denied")), false, target},
		{"foreign SOCKS client, answer", says(socksClient(errors.New("unknown error host unreachable"))), false, target},
		{"the same, wrapped", says(&dialer.Error{Op: "wrapper", Phase: dialer.PhaseTCP, Err: socksClient(errors.New("x"))}), false, target},
		{"foreign nothing", says(nil), false, target},
		{"foreign cancel", says(&net.OpError{Op: "dial", Err: context.Canceled}), false, target},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, hedge := range []time.Duration{0, time.Minute} {
				f := &dialer.Failover{Dialers: []dialer.Dialer{tt.first, way("second")}, Hedge: hedge}
				_, err := f.DialContext(testContext(t), "tcp", tt.target)
				var w way
				if tried := errors.As(err, &w); tried != tt.next {
					t.Errorf("hedge %v: second tried: got %t, want %t: %v", hedge, tried, tt.next, err)
				}
			}
		})
	}
}

func TestFailoverConnects(t *testing.T) {
	for _, hedge := range []time.Duration{0, time.Minute} {
		f := &dialer.Failover{Hedge: hedge, Dialers: []dialer.Dialer{
			&dialer.HTTPConnect{Addr: refusing, Forward: checked(t)},
			&dialer.SOCKS5{Addr: answering(t, ""), Forward: checked(t)},
			&dialer.HTTPConnect{Addr: serve(t, listen(t), (&proxytest.HTTP{Dial: toEcho(t)}).Handle), Forward: checked(t)},
			way("not needed"),
		}}
		for range 2 {
			ctx, cancel := context.WithCancel(testContext(t))
			conn, err := f.DialContext(ctx, "tcp", target)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			cancel() // it bounds the dial alone
			if _, ok := conn.(*net.TCPConn); !ok {
				t.Errorf("got a %T, want the raw connection", conn)
			}
			exchange(t, conn, "")
		}
	}
}

func TestFailoverRetry(t *testing.T) {
	busy := answering(t, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
	var asked error
	f := &dialer.Failover{
		Dialers: []dialer.Dialer{&dialer.HTTPConnect{Addr: busy}, way("second")},
		Retry: func(err error) bool {
			var e *dialer.Error
			asked = err
			return errors.As(err, &e) && e.Status == 503
		},
	}
	for range 2 {
		_, err := f.DialContext(testContext(t), "tcp", target)
		// The target is what failed: the first keeps its place.
		want := []int{0, 1}
		if diff := cmp.Diff(want, members(err)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if asked != error(way("second")) {
			t.Errorf("got %v, want to be asked about the member's own error", asked)
		}
	}
}

// members are the members of which err says that they failed.
func members(err error) (got []int) {
	var failures dialer.Failures
	errors.As(err, &failures)
	for _, f := range failures {
		got = append(got, f.Member)
	}
	return got
}

func TestFailoverError(t *testing.T) {
	denying := answering(t, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
	for _, hedge := range []time.Duration{0, time.Minute} {
		f := &dialer.Failover{Hedge: hedge, Dialers: []dialer.Dialer{
			&dialer.SOCKS5{Addr: refusing},
			&dialer.HTTPConnect{Addr: denying},
			way("not tried"),
		}}
		_, err := f.DialContext(testContext(t), "tcp", target)
		var e *dialer.Error
		if !errors.As(err, &e) || e.Op != "failover" || e.Phase != dialer.PhaseConnect || e.Status != 403 || e.Addr != target {
			t.Errorf("got %#v, want the phase and status of the last", err)
		}
		var failures dialer.Failures
		if !errors.As(err, &failures) || len(failures) != 2 {
			t.Fatalf("got %v, want two failures", err)
		}
		var first, second *dialer.Error
		if !errors.As(failures[0].Err, &first) || first.Proxy != "socks5://"+refusing || failures[0].Member != 0 {
			t.Errorf("got %+v first", failures[0])
		}
		if !errors.As(failures[1].Err, &second) || second.Proxy != "http://"+denying || failures[1].Member != 1 {
			t.Errorf("got %+v second", failures[1])
		}
		var refusal *dialer.Refusal
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &refusal) || e.Timeout() {
			t.Errorf("got %v, want both causes and no timeout", err)
		}
		for _, want := range []string{"dialer: " + target + ": connect: member 1: ", refusing, "; member 2: ", denying, "403 Forbidden", "allow port 6443"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, want it to contain %q", err, want)
			}
		}
		if strings.Count(err.Error(), "dialer:") != 1 {
			t.Errorf("got %q", err)
		}
	}
}

func TestFailoverBadFields(t *testing.T) {
	for _, tt := range []struct {
		name    string
		dialers []dialer.Dialer
		want    string
	}{
		{"none", nil, "Dialers is required"},
		{"nil", []dialer.Dialer{way("x"), nil}, "member 2 of 2 is nil"},
		{"nil pointer", []dialer.Dialer{(*dialer.HTTPConnect)(nil)}, "member 1 of 1 is nil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := (&dialer.Failover{Dialers: tt.dialers}).DialContext(t.Context(), "tcp", target)
			checkConfigError(t, err, tt.want)
		})
	}
}

// member is a proxy whose answer takes time.
type member struct {
	after time.Duration // how long until it answers; negative: never
	err   error         // the answer; nil for a connection

	dials, ended atomic.Int32
	made, closed atomic.Int32 // connections
	took         atomic.Int64 // of the last dial
}

var (
	errDown   = &dialer.Error{Op: "test", Phase: dialer.PhaseTCP, Proxy: "test://", Err: errors.New("down")}
	errDenied = &dialer.Error{Op: "test", Phase: dialer.PhaseConnect, Proxy: "test://", Status: 403, Err: errors.New("denied")}
)

func (m *member) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	m.dials.Add(1)
	defer m.ended.Add(1)
	began := time.Now()
	defer func() { m.took.Store(int64(time.Since(began))) }()
	var answer <-chan time.Time
	if m.after >= 0 {
		answer = time.After(m.after)
	}
	select {
	case <-ctx.Done():
		return nil, &dialer.Error{Op: "test", Phase: dialer.PhaseTCP, Proxy: "test://", Err: fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))}
	case <-answer:
	}
	if m.err != nil {
		return nil, m.err
	}
	client, server := net.Pipe()
	server.Close()
	m.made.Add(1)
	return &countedClose{client, &m.closed}, nil
}

// countedClose counts its Close.
type countedClose struct {
	net.Conn
	closed *atomic.Int32
}

func (c *countedClose) Close() error {
	c.closed.Add(1)
	return c.Conn.Close()
}

// raced dials once and checks that no member is left running.
func raced(t *testing.T, f *dialer.Failover, ctx context.Context) (conn net.Conn, took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	conn, err = f.DialContext(ctx, "tcp", target)
	took = time.Since(began)
	for i, d := range f.Dialers {
		if m := d.(*member); m.dials.Load() != m.ended.Load() {
			t.Errorf("member %d is still running", i+1)
		}
	}
	return conn, took, err
}

func dials(f *dialer.Failover) (got []int32) {
	for _, d := range f.Dialers {
		got = append(got, d.(*member).dials.Load())
	}
	return got
}

func TestFailoverHedge(t *testing.T) {
	const never = -1
	for _, tt := range []struct {
		name   string
		hedge  time.Duration
		all    []*member
		dials  []int32
		winner int // -1: none
		took   time.Duration
	}{
		{"first in time", 100, []*member{{after: 99}, {}}, []int32{1, 0}, 0, 99},
		{"first silent", 100, []*member{{after: never}, {after: 10}, {}}, []int32{1, 1, 0}, 1, 110},
		{"first slow, wins", 100, []*member{{after: 150}, {after: 60}}, []int32{1, 1}, 0, 150},
		{"two silent", 100, []*member{{after: never}, {after: never}, {after: 5}}, []int32{1, 1, 1}, 2, 205},
		{"failure starts the next at once", 100, []*member{{after: 10, err: errDown}, {after: 20}, {}}, []int32{1, 1, 0}, 1, 30},
		{"failure of the second starts the third", 100, []*member{{after: 500}, {after: 10, err: errDown}, {after: 20}}, []int32{1, 1, 1}, 2, 130},
		{"all fail", 100, []*member{{after: 150, err: errDown}, {after: 10, err: errDown}}, []int32{1, 1}, -1, 150},
		{"no", 100, []*member{{after: 10, err: errDenied}, {}}, []int32{1, 0}, -1, 10},
		{"no, while the second runs", 100, []*member{{after: 150, err: errDenied}, {after: 100}}, []int32{1, 1}, -1, 150},
		{"no of the second, the first wins", 100, []*member{{after: 300}, {after: 10, err: errDenied}, {}}, []int32{1, 1, 0}, 0, 300},
		{"no of the second, the first fails", 100, []*member{{after: 300, err: errDown}, {after: 10, err: errDenied}, {}}, []int32{1, 1, 0}, -1, 300},
		{"no of the second, the third has won too late", 100, []*member{{after: 400}, {after: 150, err: errDenied}, {after: 100}}, []int32{1, 1, 1}, 0, 400},
		{"both at once", 100, []*member{{after: 200}, {after: 100}}, []int32{1, 1}, -2, 200},
		{"one at a time", 0, []*member{{after: 500, err: errDown}, {after: 10}}, []int32{1, 1}, 1, 510},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &dialer.Failover{Hedge: tt.hedge * time.Millisecond}
				for _, m := range tt.all {
					if m.after > 0 {
						m.after *= time.Millisecond
					}
					f.Dialers = append(f.Dialers, m)
				}
				conn, took, err := raced(t, f, t.Context())
				if (conn != nil) != (tt.winner != -1) {
					t.Fatalf("got %v, %v", conn, err)
				}
				if want := tt.took * time.Millisecond; took != want {
					t.Errorf("took %v, want %v", took, want)
				}
				if diff := cmp.Diff(tt.dials, dials(f)); diff != "" {
					t.Errorf("dials (-want +got)\n%s", diff)
				}
				if conn == nil {
					if errors.Is(err, context.Canceled) {
						t.Errorf("got %v: a loser's cancel is no failure", err)
					}
					return
				}
				c := conn.(*countedClose)
				if c.closed.Load() != 0 || tt.winner >= 0 && c.closed != &tt.all[tt.winner].closed {
					t.Errorf("the connection is not the open one of member %d", tt.winner+1)
				}
				c.Close()
				for i, m := range tt.all {
					if m.made.Load() != m.closed.Load() {
						t.Errorf("member %d: a connection is still open", i+1)
					}
				}
			})
		})
	}
}

// A loser that connects although it was cancelled is closed, and waited for.
func TestFailoverLateWinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		var closed atomic.Int32
		deaf := dialer.Func(func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(time.Second)
			return &countedClose{client, &closed}, nil
		})
		quick := &member{}
		f := &dialer.Failover{Dialers: []dialer.Dialer{deaf, quick}, Hedge: time.Millisecond}
		conn, err := f.DialContext(t.Context(), "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		if closed.Load() != 1 || quick.closed.Load() != 0 {
			t.Errorf("loser closed %d times, winner %d", closed.Load(), quick.closed.Load())
		}
		conn.Close()
	})
}

func TestFailoverCoolDown(t *testing.T) {
	for _, tt := range []struct {
		name     string
		coolDown time.Duration
		want     []string // which members are dialed, second by second
	}{
		{"2s", 2 * time.Second, []string{"0 1", "1", "0 1", "1"}},
		{"none", -1, []string{"0 1", "0 1", "0 1", "0 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &dialer.Failover{CoolDown: tt.coolDown, Dialers: []dialer.Dialer{&member{err: errDown}, &member{}}}
				var got []string
				for range tt.want {
					before := dials(f)
					conn, _, err := raced(t, f, t.Context())
					if err != nil {
						t.Fatal(err)
					}
					conn.Close()
					var who []string
					for i, n := range dials(f) {
						if n != before[i] {
							who = append(who, fmt.Sprint(i))
						}
					}
					got = append(got, strings.Join(who, " "))
					time.Sleep(time.Second)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
}

// A member that failed is tried last, and is tried if all others fail. A success
// ends its cool-down; a no begins none.
func TestFailoverCoolDownOrder(t *testing.T) {
	const up, down, denied = "up", "down", "denied"
	steps := []struct {
		name  string
		after time.Duration // since the dial before
		state [3]string
		want  []int // who is dialed
	}{
		{"all down", 0, [3]string{down, down, down}, []int{0, 1, 2}},
		{"all cool down: their order", 10 * time.Second, [3]string{down, down, down}, []int{0, 1, 2}},
		{"one works", time.Second, [3]string{down, up, up}, []int{0, 1}},
		{"it comes first", time.Second, [3]string{down, up, up}, []int{1}},
		{"it fails, the others follow", time.Second, [3]string{up, down, up}, []int{1, 0}},
		{"its place again", time.Second, [3]string{up, down, up}, []int{0}},
		{"no cool-down after a no", time.Second, [3]string{denied, up, up}, []int{0}},
		{"no cool-down after a no, again", time.Second, [3]string{denied, up, up}, []int{0}},
		{"the third is over, the second is not", 25 * time.Second, [3]string{down, up, up}, []int{0, 2}},
		{"30 seconds", 30*time.Second - 1, [3]string{up, up, up}, []int{1}},
		{"are over", 1, [3]string{up, up, up}, []int{0}},
	}
	synctest.Test(t, func(t *testing.T) {
		var got []int
		var state [3]string
		f := &dialer.Failover{}
		for i := range state {
			f.Dialers = append(f.Dialers, dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
				got = append(got, i)
				m := &member{err: map[string]error{down: errDown, denied: errDenied}[state[i]]}
				return m.DialContext(ctx, network, address)
			}))
		}
		for _, tt := range steps {
			time.Sleep(tt.after)
			got, state = nil, tt.state
			if conn, err := f.DialContext(t.Context(), "tcp", target); err == nil {
				conn.Close()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: dialed (-want +got)\n%s", tt.name, diff)
			}
		}
	})
}

// A member that lost a race has not failed.
func TestFailoverHedgeNoCoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &member{after: time.Second}
		f := &dialer.Failover{Hedge: time.Millisecond, Dialers: []dialer.Dialer{slow, &member{}}}
		for range 2 {
			conn, took, err := raced(t, f, t.Context())
			if err != nil || took != time.Millisecond {
				t.Fatalf("took %v, %v", took, err)
			}
			conn.Close()
		}
		if got := slow.dials.Load(); got != 2 {
			t.Errorf("slow: got %d dials, want 2", got)
		}
	})
}

// A proxy whose name is not found cools down, other than a target's.
func TestFailoverCoolDownProxyName(t *testing.T) {
	f := &dialer.Failover{Dialers: []dialer.Dialer{&dialer.HTTPConnect{Addr: "proxy.invalid:3128"}, way("second")}}
	for _, want := range [][]int{{0, 1}, {1}} {
		_, err := f.DialContext(testContext(t), "tcp", target)
		if diff := cmp.Diff(want, members(err)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// A target that can't be reached directly does not send the others elsewhere.
func TestFailoverCoolDownTarget(t *testing.T) {
	local := serve(t, listen(t), echo)
	hosts := map[string][]string{"local.test.": {"127.0.0.1"}}
	socks := &dialer.SOCKS5{Addr: serve(t, listen(t), (&proxytest.SOCKS5{}).Handle), Resolver: fakeDNS(t, hosts)}
	_, port, _ := net.SplitHostPort(local)
	for _, tt := range []struct {
		name      string
		first     dialer.Dialer
		bad, good string
	}{
		{"direct", dialer.Direct{}, refusing, local},
		{"looked up here", socks, "nowhere.test:1", "local.test:" + port},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &dialer.Failover{Dialers: []dialer.Dialer{tt.first, way("second")}}
			if got := wayOf(t, f, tt.bad); got != "second" {
				t.Errorf("got %s", got)
			}
			conn, err := f.DialContext(testContext(t), "tcp", tt.good)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		})
	}
}

// Members that never answer take their share of the time.
func TestFailoverShare(t *testing.T) {
	const silent = -1
	for _, tt := range []struct {
		name     string
		deadline time.Duration
		hedge    time.Duration
		all      []*member
		took     []time.Duration // by member
		total    time.Duration
		ok       bool
	}{
		{"halves", 10 * time.Second, 0, []*member{{after: silent}, {after: time.Second}}, []time.Duration{5 * time.Second, time.Second}, 6 * time.Second, true},
		{"thirds, and what is left", 12 * time.Second, 0, []*member{{after: time.Second, err: errDown}, {after: silent}, {after: silent}}, []time.Duration{time.Second, 5500 * time.Millisecond, 5500 * time.Millisecond}, 12 * time.Second, false},
		{"thirds", 12 * time.Second, 0, []*member{{after: silent}, {after: silent}, {}}, []time.Duration{4 * time.Second, 4 * time.Second, 0}, 8 * time.Second, true},
		{"at least 2s", 3 * time.Second, 0, []*member{{after: silent}, {after: silent}, {}}, []time.Duration{2 * time.Second, time.Second, 0}, 3 * time.Second, false},
		{"one", 3 * time.Second, 0, []*member{{after: silent}}, []time.Duration{3 * time.Second}, 3 * time.Second, false},
		{"hedged, but too late", 8 * time.Second, time.Minute, []*member{{after: silent}, {after: time.Second}}, []time.Duration{5 * time.Second, time.Second}, 5 * time.Second, true},
		{"hedged, whole time for each", 8 * time.Second, time.Second, []*member{{after: 7 * time.Second}, {after: silent}}, []time.Duration{7 * time.Second, 6 * time.Second}, 7 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &dialer.Failover{Hedge: tt.hedge}
				for _, m := range tt.all {
					f.Dialers = append(f.Dialers, m)
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				conn, took, err := raced(t, f, ctx)
				if (err == nil) != tt.ok || took != tt.total {
					t.Errorf("got %v after %v, want after %v", err, took, tt.total)
				}
				var each []time.Duration
				for _, m := range tt.all {
					each = append(each, time.Duration(m.took.Load()))
				}
				if diff := cmp.Diff(tt.took, each); diff != "" {
					t.Errorf("time of each (-want +got)\n%s", diff)
				}
				if err == nil {
					conn.Close()
					return
				}
				var ne net.Error
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
					t.Errorf("got %v, want a timeout", err)
				}
				if got, want := strings.Contains(err.Error(), "its share of the time is over"), len(tt.all) > 1; got != want {
					t.Errorf("got %q; whose share was over: got %t, want %t", err, got, want)
				}
				if strings.Contains(err.Error(), "exceeded: member") {
					t.Errorf("got %q, want it said by the members alone", err)
				}
			})
		})
	}
}

// The share reaches a proxy that has taken the connection and is silent.
func TestFailoverShareOfProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		go io.Copy(io.Discard, server)
		defer server.Close()
		silent := &dialer.HTTPConnect{Addr: "proxy:3128", Forward: dialer.Func(func(context.Context, string, string) (net.Conn, error) { return client, nil })}
		f := &dialer.Failover{Dialers: []dialer.Dialer{silent, &member{}}}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		conn, err := f.DialContext(ctx, "tcp", target)
		if took := time.Since(began); err != nil || took != 10*time.Second {
			t.Fatalf("got %v after %v", err, took)
		}
		conn.Close()
	})
}

func TestFailoverContext(t *testing.T) {
	cause := errors.New("shutting down")
	for _, hedge := range []time.Duration{0, time.Second} {
		t.Run(fmt.Sprint("hedge ", hedge), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck := &member{after: -1}
				f := &dialer.Failover{Hedge: hedge, Dialers: []dialer.Dialer{&member{err: errDown}, stuck, &member{after: -1}}}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(1500*time.Millisecond, func() { cancel(cause) })
				_, took, err := raced(t, f, ctx)
				if took != 1500*time.Millisecond || !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
					t.Errorf("got %v after %v, want context.Canceled and its cause", err, took)
				}
				var ne net.Error
				if !errors.As(err, &ne) || ne.Timeout() {
					t.Errorf("got %v, want a net.Error that is no timeout", err)
				}
				if !errors.Is(err, errDown) {
					t.Errorf("got %v, want what had failed before as well", err)
				}
				// One that has ended before is the first member's to report.
				if _, _, err := raced(t, f, ctx); !errors.Is(err, cause) || len(members(err)) != 1 {
					t.Errorf("got %v, want context.Canceled from one member", err)
				}
				// The cancelled ones have not failed: no cool-down.
				stuck.after = 0
				conn, _, err := raced(t, f, t.Context())
				if err != nil || conn.(*countedClose).closed != &stuck.closed {
					t.Fatalf("got %v, %v; want the second member's", conn, err)
				}
				conn.Close()
			})
		})
	}
	// None is started any more, not even while a deaf one is waited for.
	synctest.Test(t, func(t *testing.T) {
		deaf := dialer.Func(func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(time.Second)
			return nil, errDown
		})
		second := &member{}
		f := &dialer.Failover{Hedge: 100 * time.Millisecond, Dialers: []dialer.Dialer{deaf, second}}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := f.DialContext(ctx, "tcp", target)
		if !errors.Is(err, context.DeadlineExceeded) || second.dials.Load() != 0 {
			t.Errorf("got %v, and %d dials of the second", err, second.dials.Load())
		}
	})
	// A member whose own error comes as ctx ends does not hide that it has.
	ctx, cancel := context.WithCancel(t.Context())
	f := &dialer.Failover{Dialers: []dialer.Dialer{dialer.Func(func(context.Context, string, string) (net.Conn, error) {
		cancel()
		return nil, errDown
	}), way("not tried")}}
	_, err := f.DialContext(ctx, "tcp", target)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, errDown) || len(members(err)) != 1 {
		t.Errorf("got %v, want context.Canceled and what the member said", err)
	}
}

// Under -race: many dials at once, of members that come and go.
func TestFailoverConcurrently(t *testing.T) {
	var down atomic.Bool
	flaky := dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
		if down.Load() {
			return nil, errDown
		}
		return (&member{}).DialContext(ctx, network, address)
	})
	for _, hedge := range []time.Duration{0, time.Microsecond} {
		f := &dialer.Failover{Dialers: []dialer.Dialer{flaky, &member{err: errDown}, &member{}}, Hedge: hedge}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range 100 {
					down.Store(i%3 == 0)
					conn, err := f.DialContext(t.Context(), "tcp", target)
					if err != nil {
						t.Error(err)
						return
					}
					conn.Close()
				}
			})
		}
		wg.Wait()
	}
}

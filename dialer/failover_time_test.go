package dialer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/dnstest"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

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
	hosts := dnstest.Hosts{"local.test.": {"127.0.0.1"}}
	socks := &dialer.SOCKS5{Addr: serve(t, listen(t), (&proxytest.SOCKS5{}).Handle), Resolver: hosts.Resolver()}
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
				if got, want := strings.Contains(err.Error(), "its share of the time until the deadline is over"), len(tt.all) > 1; got != want {
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

package admission_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
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

func lost(p *admission.Place) bool {
	return errors.Is(context.Cause(p.Context()), admission.ErrCrowded)
}

// Who makes room for one more connection.
func TestAdmission(t *testing.T) {
	type client struct {
		ip    string
		stage admission.Stage
		busy  bool          // the server keeps it waiting
		ago   time.Duration // since it came to the stage
	}
	const a, b, c = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	for _, tt := range []struct {
		name string
		have []client // the oldest first
		next string
		want int // index of who makes room; -1: nobody
	}{
		{"the oldest silent one of the address that has most", []client{{ip: b}, {ip: a, stage: admission.Greeting}, {ip: a}, {ip: a}}, c, 2},
		{"whatever it does", []client{{ip: b}, {ip: a, stage: admission.Proven, busy: true}, {ip: a, stage: admission.Proven, busy: true}}, c, 1},
		{"not of an address that has less", []client{{ip: b, ago: time.Second}, {ip: a}, {ip: a}}, a, 1},
		{"of equals the oldest", []client{{ip: b, ago: time.Second}, {ip: a}}, c, 0},
		{"its own oldest silent one", []client{{ip: a, stage: admission.Greeting, ago: time.Minute}, {ip: a}, {ip: a}}, a, 1},
		{"no silent one that the server keeps waiting", []client{{ip: a, busy: true}, {ip: a}}, a, 1},
		{"its own that does not answer", []client{{ip: a, stage: admission.Greeting, ago: admission.AnswerTime}, {ip: a, stage: admission.Greeting}}, a, 0},
		{"none that has just been answered", []client{{ip: a, stage: admission.Greeting, ago: admission.AnswerTime - 1}}, a, -1},
		{"none that waits for its turn", []client{{ip: a, stage: admission.Greeting, busy: true, ago: time.Minute}}, a, -1},
		{"none that has proven who it is", []client{{ip: a, stage: admission.Proven, ago: time.Minute}}, a, -1},
		{"the network of an IPv6 address is one source", []client{{ip: b}, {ip: "2001:db8::1"}, {ip: "2001:db8::2"}}, "2001:db8::3", 1},
		{"IPv4 in IPv6 is IPv4", []client{{ip: b}, {ip: "::ffff:192.0.2.1"}, {ip: a}}, c, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				places, all := []*admission.Place{}, admission.New(len(tt.have), 0)
				clock := time.Minute
				for _, have := range tt.have {
					time.Sleep(clock - have.ago) // of the bubble
					p, err := all.Enter(t.Context(), connFrom(t, have.ip))
					if err != nil {
						t.Fatal(err)
					}
					p.Reach(have.stage)
					if have.busy {
						p.Compute()
					} else {
						p.Wait()
					}
					places = append(places, p)
					time.Sleep(have.ago)
					clock = 0
				}
				ctx, cancel := context.WithTimeout(t.Context(), 0) // it does not wait
				defer cancel()
				p, err := all.Enter(ctx, connFrom(t, tt.next))
				if got := slices.IndexFunc(places, lost); got != tt.want || (err != nil) != (tt.want < 0) {
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

// While all places are kept by clients of one address, a silent newcomer takes the place of
// one that does not ask, and the next newcomer waits.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := admission.New(2, 0)
		all.Patience = admission.AnswerTime
		enter := func() *admission.Place {
			p, err := all.Enter(t.Context(), connFrom(t, "192.0.2.1"))
			if err != nil {
				t.Fatal(err)
			}
			p.Wait()
			return p
		}
		first := enter()
		first.Reach(admission.Greeting)
		first.Settle(false)
		time.Sleep(admission.AnswerTime)
		second, third := enter(), enter()
		if !lost(first) || lost(second) {
			t.Errorf("lost the first %t, the second %t; want the first only", lost(first), lost(second))
		}
		began := time.Now()
		fourth := enter()
		if waited := time.Since(began); !lost(second) || lost(third) || waited != admission.AnswerTime {
			t.Errorf("after %v: lost the second %t, the third %t; want the second only, after %v", waited, lost(second), lost(third), admission.AnswerTime)
		}
		for _, p := range []*admission.Place{first, second, third, fourth} {
			p.Leave()
		}
	})
}

// While strangers of as many addresses as there are places fill these and the line, a client
// of another address gets a place as soon as a silent one has had its time.
func TestFullLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const max = 8
		ctx, cancel := context.WithCancel(t.Context())
		all := admission.New(max, 0)
		all.Patience = 100 * time.Millisecond
		enter := func(ip string) error {
			p, err := all.Enter(ctx, connFrom(t, ip))
			if err == nil {
				p.Wait()
				context.AfterFunc(p.Context(), p.Leave)
			}
			return err
		}
		for i := range 6 * max { // some are sent away
			go enter(netip.AddrFrom4([4]byte{192, 0, 2, byte(i % max)}).String())
		}
		synctest.Wait()
		if held, waiting := all.Load(); held != max || waiting != 4*max {
			t.Errorf("got %d places and %d that wait, want all taken", held, waiting)
		}
		began := time.Now()
		if err := enter("198.51.100.1"); err != nil || time.Since(began) > 2*all.Patience {
			t.Errorf("got %v after %v, want a place within %v", err, time.Since(began), 2*all.Patience)
		}
		cancel()
	})
}

// What a status says: one has the place, and one waits for it.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := admission.New(1, 0)
		check := func(wantHeld, wantWaiting int) {
			t.Helper()
			synctest.Wait()
			if held, waiting := all.Load(); held != wantHeld || waiting != wantWaiting {
				t.Errorf("got %d places and %d that wait, want %d and %d", held, waiting, wantHeld, wantWaiting)
			}
		}
		check(0, 0)
		first, err := all.Enter(t.Context(), connFrom(t, "192.0.2.1"))
		if err != nil {
			t.Fatal(err)
		}
		first.Reach(admission.Proven)
		entered := make(chan *admission.Place)
		go func() {
			second, err := all.Enter(t.Context(), connFrom(t, "192.0.2.1"))
			if err != nil {
				t.Error(err)
			}
			entered <- second
		}()
		check(1, 1)
		first.Leave()
		second := <-entered
		check(1, 0)
		second.Leave()
		check(0, 0)
	})
}

// Whoever leaves twice gives one place back, and one turn.
func TestLeaveTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = 32
		all := admission.New(2*long, 0)
		enter := func() *admission.Place {
			conn := connFrom(t, "192.0.2.1")
			p, err := all.Enter(t.Context(), conn)
			if err != nil {
				t.Fatal(err)
			}
			p.Begin()
			return p
		}
		// begins sends the header of a long record.
		begins := func(p *admission.Place) error {
			_, err := new(admission.Records).Read(strings.NewReader("\x16\x03\x01\x20\x00"), make([]byte, 5), p, false)
			return err
		}
		first := enter()
		if err := begins(first); err != nil {
			t.Fatal(err)
		}
		first.Leave()
		first.Leave()
		began := 0
		for range long + 1 {
			p := enter()
			defer p.Leave()
			go func() {
				if begins(p) == nil {
					began++
				}
			}()
			synctest.Wait()
		}
		if began != long {
			t.Errorf("%d long handshakes are under way, want %d", began, long)
		}
	})
}

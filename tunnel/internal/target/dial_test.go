package target_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel/internal/target"
)

// A host is an address and what it does: it refuses or takes a connection
// after a while.
type host struct {
	addr  string
	after time.Duration
	up    bool
}

// closeCounter is a conn whose end shows.
type closeCounter struct {
	net.Conn
	address string
	open    *int // of a synctest bubble, or one goroutine
}

func (c closeCounter) Close() error { *c.open--; return nil }

func TestTargetRace(t *testing.T) {
	const forever = time.Hour
	for _, tt := range []struct {
		name  string
		hosts []host
		want  string // "": the first host's error
		after time.Duration
		dials int
	}{
		{"the first answers", []host{{"192.0.2.1", 0, true}, {"192.0.2.2", 0, true}}, "192.0.2.1:443", 0, 1},
		{"a slow first wins", []host{{"192.0.2.1", 400 * time.Millisecond, true}, {"192.0.2.2", time.Second, true}}, "192.0.2.1:443", 401 * time.Millisecond, 2},
		{"the first refuses", []host{{"192.0.2.1", 0, false}, {"192.0.2.2", 0, true}}, "192.0.2.2:443", 0, 2},
		{"the first hangs", []host{{"192.0.2.1", forever, true}, {"192.0.2.2", 0, true}}, "192.0.2.2:443", 250 * time.Millisecond, 2},
		{"two hang", []host{{"192.0.2.1", forever, true}, {"2001:db8::1", forever, true}, {"192.0.2.3", time.Second, true}}, "192.0.2.3:443", 1500 * time.Millisecond, 3},
		{"one hangs, one refuses", []host{{"192.0.2.1", forever, true}, {"192.0.2.2", 0, false}, {"192.0.2.3", 0, true}}, "192.0.2.3:443", 250 * time.Millisecond, 3},
		{"all refuse", []host{{"192.0.2.1", time.Second, false}, {"192.0.2.2", 0, false}}, "", time.Second, 2},
		{"denied ones are skipped", []host{{"127.0.0.1", 0, true}, {"192.0.2.2", 0, true}}, "192.0.2.2:443", 0, 1},
		{"all hang", []host{{"192.0.2.1", forever, true}, {"192.0.2.2", forever, true}}, "", 10 * time.Second, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var addrs []string
				for _, h := range tt.hosts {
					addrs = append(addrs, h.addr)
				}
				open := 0
				n := &targettest.Network{Hosts: map[string]string{"*": strings.Join(addrs, " ")}, Dial: dialHosts(tt.hosts, &open)}
				start := time.Now()
				conn, err := configThrough(n, target.Config{Allow: []string{"*:443"}}).DialTarget(t.Context(), "tcp", "name:443")
				if got := time.Since(start); got != tt.after || len(n.Dialed) != tt.dials {
					t.Errorf("got %d dials and %v, want %d and %v", len(n.Dialed), got, tt.dials, tt.after)
				}
				if err != nil {
					if tt.want != "" || open != 0 {
						t.Errorf("got %v and %d open connections", err, open)
					}
					return
				}
				if got := conn.(closeCounter).address; got != tt.want || open != 1 {
					t.Errorf("got %s and %d open connections, want %s and 1", got, open, tt.want)
				}
			})
		})
	}
}

// dialHosts connects to hosts. A connection that was on its way when the dial
// was canceled is made all the same, as it can be with the kernel.
func dialHosts(hosts []host, open *int) target.DialFunc {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		for _, h := range hosts {
			if netip.MustParseAddrPort(address).Addr().String() != h.addr {
				continue
			}
			select {
			case <-time.After(h.after):
			case <-ctx.Done():
				if h.after >= time.Hour {
					return nil, ctx.Err()
				}
				<-time.After(time.Millisecond)
			}
			if h.up {
				*open++
				return closeCounter{address: address, open: open}, nil
			}
			return nil, syscall.ECONNREFUSED
		}
		return nil, fmt.Errorf("unexpected address %s", address)
	}
}

// The first address's error is the one that counts.
func TestTargetRaceError(t *testing.T) {
	n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1 192.0.2.2"}, Dial: func(_ context.Context, _, address string) (net.Conn, error) {
		if address == "192.0.2.1:443" {
			return nil, syscall.ECONNREFUSED
		}
		return nil, syscall.EHOSTUNREACH
	}}
	_, err := configThrough(n, target.Config{Allow: []string{"*:443"}}).DialTarget(t.Context(), "tcp", "name:443")
	if reasonOf(err) != target.Refused || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want it refused", err)
	}
}

// A name with thousands of addresses does not make the agent a scanner.
func TestTargetManyAddresses(t *testing.T) {
	var addrs []string
	for i := range 5000 {
		addrs = append(addrs, netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}).String())
	}
	n := &targettest.Network{Hosts: map[string]string{"*": strings.Join(addrs, " ")}, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, syscall.ECONNREFUSED
	}}
	_, err := configThrough(n, target.Config{Allow: []string{"*:443"}}).DialTarget(t.Context(), "tcp", "name:443")
	if reasonOf(err) != target.Refused || len(n.Dialed) != 16 {
		t.Errorf("got %v after %d dials, want it refused after 16", err, len(n.Dialed))
	}
}

func TestTargetAddressesOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		addrs []netip.Addr
		code  target.Reason
		want  string
	}{
		{"twice", []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1")}, target.Refused, "192.0.2.1:443"},
		{"none", []netip.Addr{{}}, target.NotFound, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &targettest.Network{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }}
			targets := configThrough(n, target.Config{Allow: []string{"*:443"}})
			targets.Resolver = targettest.Resolver(func(context.Context, string) ([]netip.Addr, error) { return tt.addrs, nil })
			_, err := targets.DialTarget(t.Context(), "tcp", "name:443")
			if got := strings.Join(n.Dialed, " "); reasonOf(err) != tt.code || got != tt.want {
				t.Errorf("got %v and %q dialed, want code %d and %q", err, got, tt.code, tt.want)
			}
		})
	}
}

// What nobody waits for any more is not begun.
func TestTargetRaceCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1 192.0.2.2 192.0.2.3"}, Dial: targettest.Hang}
		_, err := configThrough(n, target.Config{Allow: []string{"*:443"}}).DialTarget(ctx, "tcp", "name:443")
		if reasonOf(err) != target.TimedOut || len(n.Dialed) != 1 {
			t.Errorf("got %v after %d dials, want a timeout after 1", err, len(n.Dialed))
		}
	})
}

// TestTargetEnd: the text tells the server of the end alone; an agent's hooks find the rest.
func TestTargetEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why, found := errors.New("why"), errors.New("found")
	targets := configThrough(&targettest.Network{}, target.Config{Allow: []string{"*:443"}})
	targets.Resolver = targettest.Resolver(func(context.Context, string) ([]netip.Addr, error) {
		cancel(why)
		return nil, found
	})
	_, err := targets.DialTarget(ctx, "tcp", "name:443")
	if reasonOf(err) != target.Canceled || err.Error() != "context canceled" {
		t.Errorf("got %v, want that the context was canceled", err)
	}
	for _, is := range []error{context.Canceled, why, found} {
		if !errors.Is(err, is) {
			t.Errorf("got %v, want that errors.Is finds %v", err, is)
		}
	}
}

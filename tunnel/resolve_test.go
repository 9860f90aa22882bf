package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// resolver is a function as a Resolver.
type resolver func(ctx context.Context, host string) ([]netip.Addr, error)

func (r resolver) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return r(ctx, host)
}

// hang is a host that does not answer.
func hang(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: canaryAddr, Err: errors.New("gave up")}
}

// canary is an address that no text may hold.
const canary = "10.77.66.55"

var canaryAddr = &net.TCPAddr{IP: net.ParseIP(canary), Port: 443}

func TestTargetErrors(t *testing.T) {
	dial := func(err error) *network {
		return &network{hosts: map[string]string{"*": canary}, dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: canaryAddr, Err: err}
		}}
	}
	errno := func(no syscall.Errno) *network { return dial(os.NewSyscallError("connect", no)) }
	for _, tt := range []struct {
		name string
		n    *network
		code tunnel.Code
		is   error
		text string
	}{
		{"refused", errno(syscall.ECONNREFUSED), tunnel.CodeRefused, syscall.ECONNREFUSED, "connection refused"},
		{"reset", errno(syscall.ECONNRESET), tunnel.CodeReset, syscall.ECONNRESET, "connection reset by peer"},
		{"no route", errno(syscall.EHOSTUNREACH), tunnel.CodeUnreachable, syscall.EHOSTUNREACH, "no route to host"},
		{"no network", errno(syscall.ENETUNREACH), tunnel.CodeUnreachable, syscall.EHOSTUNREACH, "network is unreachable"},
		{"no such family", errno(syscall.EAFNOSUPPORT), tunnel.CodeUnreachable, syscall.EAFNOSUPPORT, "address family"},
		{"firewall", errno(syscall.EPERM), tunnel.CodeUnreachable, syscall.EPERM, "operation not permitted"},
		{"the kernel's timeout", errno(syscall.ETIMEDOUT), tunnel.CodeTimeout, os.ErrDeadlineExceeded, "no answer"},
		{"no descriptors", errno(syscall.EMFILE), tunnel.CodeInternal, syscall.EMFILE, "too many open files"},
		{"another", dial(errors.New("to " + canary)), tunnel.CodeInternal, nil, "the connection failed"},
		{"special", &network{hosts: map[string]string{"*": "127.0.0.1"}}, tunnel.CodeDenied, syscall.EACCES, "does not allow"},
		{"no addresses", &network{hosts: map[string]string{"*": ""}}, tunnel.CodeNotFound, nil, "no such host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.n.through(tunnel.Targets{Allow: []string{"name:443"}}).DialTarget(t.Context(), "tcp", "name:443")
			checkTargetError(t, err, tt.code, tt.is, tt.text)
			if op := new(net.OpError); tt.n.dial != nil && (!errors.As(err, &op) || op.Addr != canaryAddr) {
				t.Errorf("got %v, want it to keep its cause", err)
			}
		})
	}
}

func checkTargetError(t *testing.T, err error, code tunnel.Code, is error, text string) {
	t.Helper()
	var e *tunnel.Error
	if !errors.As(err, &e) || e.Op != "dial" || e.Addr != "name:443" || e.Code != code {
		t.Fatalf("got %#v, want code %d of a dial to name:443", err, code)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("got %v, want it to be %v", err, is)
	}
	if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), canary) {
		t.Errorf("got %q, want %q in it and no internal address", err, text)
	}
	if e.Timeout() != (code == tunnel.CodeTimeout) {
		t.Errorf("%v: got Timeout() %v", err, e.Timeout())
	}
}

func TestTargetLookupErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code tunnel.Code
		text string
	}{
		{"no such host", &net.DNSError{Err: "no such host", Server: canary, IsNotFound: true}, tunnel.CodeNotFound, "no such host"},
		{"server failure", &net.DNSError{Err: "server misbehaving", Server: canary}, tunnel.CodeNotFound, "the name server failed"},
		{"timeout", &net.DNSError{Err: "i/o timeout", Server: canary, IsTimeout: true}, tunnel.CodeTimeout, "the name server did not answer"},
		{"refused", &net.OpError{Op: "dial", Addr: canaryAddr, Err: syscall.ECONNREFUSED}, tunnel.CodeNotFound, "no such host"},
		{"another", errors.New(canary), tunnel.CodeNotFound, "no such host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			targets := tunnel.Targets{Allow: []string{"name:443"}, Resolver: resolver(func(context.Context, string) ([]netip.Addr, error) { return nil, tt.err })}
			_, err := targets.DialTarget(t.Context(), "tcp", "name:443")
			checkTargetError(t, err, tt.code, tt.err, tt.text)
		})
	}
}

func TestTargetBadRequests(t *testing.T) {
	n := &network{}
	for _, tt := range []struct{ network, address, shown, text string }{
		{"udp", "name:443", "name:443", "unknown network udp"},
		{"", "name:443", "name:443", "unknown network"},
		{"unix", "/run/x", "/run/x", "unknown network unix"},
		{"tcp", "a\x1b[2J\nb:443", "a [2J b:443", "not host:port"},
		{"tcp", strings.Repeat("x", 5000) + ":443", strings.Repeat("x", 300), "longer than an address can be"},
	} {
		_, err := n.through(tunnel.Targets{Allow: []string{"*:*"}}).DialTarget(t.Context(), tt.network, tt.address)
		var e *tunnel.Error
		if !errors.As(err, &e) || e.Code != tunnel.CodeBadRequest || e.Addr != tt.shown || !strings.Contains(err.Error(), tt.text) || len(n.lookups)+len(n.dialed) > 0 {
			t.Errorf("%s %q: got %v, %q and %q; want a bad request for %q", tt.network, tt.address, err, n.lookups, n.dialed, tt.shown)
		}
	}
}

// However a dial hangs, it ends with the Timeout, or the caller's context.
func TestTargetTimes(t *testing.T) {
	hangLookup := resolver(func(ctx context.Context, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, &net.DNSError{Err: ctx.Err().Error(), Server: canary, IsTemporary: true}
	})
	for _, kind := range []struct {
		name  string
		hosts string // empty: the lookup hangs
	}{{"lookup", ""}, {"dial", canary}, {"two addresses", canary + " 192.0.2.1"}} {
		for _, tt := range []struct {
			name             string
			timeout          time.Duration
			deadline, cancel time.Duration
			want             time.Duration
			code             tunnel.Code
			is               error
		}{
			{"default", 0, 0, 0, 10 * time.Second, tunnel.CodeTimeout, os.ErrDeadlineExceeded},
			{"set", time.Minute, 0, 0, time.Minute, tunnel.CodeTimeout, os.ErrDeadlineExceeded},
			{"deadline", time.Minute, 2 * time.Second, 0, 2 * time.Second, tunnel.CodeTimeout, context.DeadlineExceeded},
			{"cancel", time.Minute, 0, 3 * time.Second, 3 * time.Second, tunnel.CodeCanceled, context.Canceled},
		} {
			t.Run(kind.name+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if tt.deadline > 0 {
						ctx, cancel = context.WithTimeout(ctx, tt.deadline)
						defer cancel()
					}
					if tt.cancel > 0 {
						time.AfterFunc(tt.cancel, cancel)
					}
					n := &network{hosts: map[string]string{"*": kind.hosts}, dial: hang}
					targets := n.through(tunnel.Targets{Allow: []string{"name:443"}, Timeout: tt.timeout})
					if kind.hosts == "" {
						targets.Resolver = hangLookup
					}
					start := time.Now()
					_, err := targets.DialTarget(ctx, "tcp", "name:443")
					if got := time.Since(start); got != tt.want {
						t.Errorf("got an end after %v, want %v", got, tt.want)
					}
					checkTargetError(t, err, tt.code, tt.is, "")
				})
			})
		}
	}
}

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
				n := &network{hosts: map[string]string{"*": strings.Join(addrs, " ")}, dial: dialHosts(tt.hosts, &open)}
				start := time.Now()
				conn, err := n.through(tunnel.Targets{Allow: []string{"*:443"}}).DialTarget(t.Context(), "tcp", "name:443")
				if got := time.Since(start); got != tt.after || len(n.dialed) != tt.dials {
					t.Errorf("got %d dials and %v, want %d and %v", len(n.dialed), got, tt.dials, tt.after)
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
func dialHosts(hosts []host, open *int) tunnel.DialFunc {
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
	n := &network{hosts: map[string]string{"*": "192.0.2.1 192.0.2.2"}, dial: func(_ context.Context, _, address string) (net.Conn, error) {
		if address == "192.0.2.1:443" {
			return nil, syscall.ECONNREFUSED
		}
		return nil, syscall.EHOSTUNREACH
	}}
	_, err := n.through(tunnel.Targets{Allow: []string{"*:443"}}).DialTarget(t.Context(), "tcp", "name:443")
	checkTargetError(t, err, tunnel.CodeRefused, syscall.ECONNREFUSED, "refused")
}

// A name with thousands of addresses does not make the agent a scanner.
func TestTargetManyAddresses(t *testing.T) {
	var addrs []string
	for i := range 5000 {
		addrs = append(addrs, netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}).String())
	}
	n := &network{hosts: map[string]string{"*": strings.Join(addrs, " ")}, dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, syscall.ECONNREFUSED
	}}
	_, err := n.through(tunnel.Targets{Allow: []string{"*:443"}}).DialTarget(t.Context(), "tcp", "name:443")
	if codeOf(err) != tunnel.CodeRefused || len(n.dialed) != 16 {
		t.Errorf("got %v after %d dials, want it refused after 16", err, len(n.dialed))
	}
}

func TestTargetAddressesOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		addrs []netip.Addr
		code  tunnel.Code
		want  string
	}{
		{"twice", []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1")}, tunnel.CodeRefused, "192.0.2.1:443"},
		{"none", []netip.Addr{{}}, tunnel.CodeNotFound, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &network{dial: func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }}
			targets := n.through(tunnel.Targets{Allow: []string{"*:443"}})
			targets.Resolver = resolver(func(context.Context, string) ([]netip.Addr, error) { return tt.addrs, nil })
			_, err := targets.DialTarget(t.Context(), "tcp", "name:443")
			if got := strings.Join(n.dialed, " "); codeOf(err) != tt.code || got != tt.want {
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
		n := &network{hosts: map[string]string{"*": "192.0.2.1 192.0.2.2 192.0.2.3"}, dial: hang}
		_, err := n.through(tunnel.Targets{Allow: []string{"*:443"}}).DialTarget(ctx, "tcp", "name:443")
		if codeOf(err) != tunnel.CodeTimeout || len(n.dialed) != 1 {
			t.Errorf("got %v after %d dials, want a timeout after 1", err, len(n.dialed))
		}
	})
}

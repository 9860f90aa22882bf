package dialer_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
)

// lookupFunc is a function as a Resolver.
type lookupFunc func(ctx context.Context, network, host string) ([]netip.Addr, error)

func (f lookupFunc) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return f(ctx, network, host)
}

// names is a Resolver that knows these.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, network, host string) (addrs []netip.Addr, err error) {
	if network != "ip" && network != "ip4" && network != "ip6" {
		return nil, net.UnknownNetworkError(network)
	}
	for _, text := range n[host] {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	if addrs == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return addrs, nil
}

// asked is a Dialer that notes what it was asked for, and connects to none of
// it but those of up.
type asked struct {
	up string // what connects
	to string // and where it leads

	mu   sync.Mutex // guards list
	list []string
}

func (a *asked) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	a.mu.Lock()
	a.list = append(a.list, network+" "+address)
	a.mu.Unlock()
	if address != a.up {
		return nil, &dialer.Error{Op: "asked", Phase: dialer.PhaseTCP, Addr: address, Err: syscall.ECONNREFUSED}
	}
	return new(net.Dialer).DialContext(ctx, "tcp", a.to)
}

func TestResolve(t *testing.T) {
	known := names{"three.example": {"10.0.0.1", "2001:db8::1", "::ffff:10.0.0.3"}, "xn--bcher-kva.example": {"10.0.0.4"}}
	for _, tt := range []struct {
		name, network, address string
		want                   []string
	}{
		{"all in turn", "tcp", "three.example:443", []string{"tcp 10.0.0.1:443", "tcp [2001:db8::1]:443", "tcp 10.0.0.3:443"}},
		{"IPv4", "tcp4", "three.example:443", []string{"tcp4 10.0.0.1:443", "tcp4 10.0.0.3:443"}},
		{"IPv6", "tcp6", "three.example:443", []string{"tcp6 [2001:db8::1]:443"}},
		{"by its ASCII form", "tcp", "Bücher.example:1", []string{"tcp 10.0.0.4:1"}},
		{"an address", "tcp", "10.0.0.2:443", []string{"tcp 10.0.0.2:443"}},
		{"an address as it is", "tcp6", "[FE80::1%eth0]:0443", []string{"tcp6 [FE80::1%eth0]:0443"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a asked
				d := &dialer.Resolve{Resolver: known, Forward: &a}
				_, err := d.DialContext(t.Context(), tt.network, tt.address)
				if diff := cmp.Diff(tt.want, a.list); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("got %v, want the refusal", err)
				}
			})
		})
	}
}

// The connection is that of the first address that has one.
func TestResolveConnects(t *testing.T) {
	a := &asked{up: "10.0.0.2:443", to: serve(t, listen(t), echo)}
	d := &dialer.Resolve{Resolver: names{"api": {"10.0.0.1", "10.0.0.2", "10.0.0.3"}}, Forward: a}
	conn, err := d.DialContext(testContext(t), "tcp", "api:443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exchange(t, conn, "")
	// The third is asked for only if that took 300 ms.
	if want := []string{"tcp 10.0.0.1:443", "tcp 10.0.0.2:443"}; len(a.list) < 2 || !slices.Equal(a.list[:2], want) {
		t.Errorf("asked for %q, want %q", a.list, want)
	}
}

// What is nil resolves as this machine does, and dials directly.
func TestResolveZeroValue(t *testing.T) {
	_, port, _ := net.SplitHostPort(serve(t, listen(t), echo))
	conn, err := new(dialer.Resolve).DialContext(testContext(t), "tcp4", "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exchange(t, conn, "")
}

func TestResolveErrors(t *testing.T) {
	for _, tt := range []struct {
		name, address string
		addrs         []string
		phase         dialer.Phase
		is            error
	}{
		{"no port", "api", nil, dialer.PhaseConfig, nil},
		{"control character", "a\nb:1", nil, dialer.PhaseConfig, nil},
		{"no such name", "none:1", nil, dialer.PhaseDNS, nil},
		{"all refuse", "api:1", []string{"10.0.0.1", "10.0.0.2"}, dialer.PhaseTCP, syscall.ECONNREFUSED},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var a asked
			d := &dialer.Resolve{Resolver: names{"api": tt.addrs}, Forward: &a}
			_, err := d.DialContext(t.Context(), "tcp", tt.address)
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != tt.phase || e.Addr != tt.address || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want phase %s and %v", err, tt.phase, tt.is)
			}
			if len(a.list) != len(tt.addrs) && tt.phase == dialer.PhaseTCP || len(a.list) > 0 && tt.phase != dialer.PhaseTCP {
				t.Errorf("asked for %q", a.list)
			}
		})
	}
	// A lookup that breaks its contract is no direct way to anywhere.
	bad := &dialer.Resolve{Resolver: lookupFunc(func(context.Context, string, string) ([]netip.Addr, error) { return make([]netip.Addr, 1), nil }), Forward: way("x")}
	if _, err := bad.DialContext(t.Context(), "tcp", "a:1"); err == nil || !strings.Contains(err.Error(), "field Resolver") {
		t.Errorf("got %v, want that the Resolver is at fault", err)
	}
	empty := &dialer.Resolve{Resolver: lookupFunc(func(context.Context, string, string) ([]netip.Addr, error) { return nil, nil }), Forward: way("x")}
	var dns *net.DNSError
	if _, err := empty.DialContext(t.Context(), "tcp", "a:1"); !errors.As(err, &dns) || !dns.IsNotFound {
		t.Errorf("got %v, want that there is no address", err)
	}
}

func TestResolveCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := &dialer.Resolve{Resolver: lookupFunc(func(ctx context.Context, _, host string) ([]netip.Addr, error) {
		cancel()
		return nil, &net.DNSError{Err: "operation was canceled", Name: host}
	})}
	if _, err := d.DialContext(ctx, "tcp", "api:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
}

func TestResolveChain(t *testing.T) {
	addr := serve(t, listen(t), echo)
	_, port, _ := net.SplitHostPort(addr)
	d, err := dialer.Chain(&asked{up: addr, to: addr}, &dialer.Resolve{Resolver: names{"api": {"127.0.0.1"}}})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.DialContext(testContext(t), "tcp", "api:"+port)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := dialer.Chain(way("a"), &dialer.Resolve{Forward: way("b")}); err == nil {
		t.Error("a Resolve that has a Forward: got no error")
	}
}

func TestResolveTrace(t *testing.T) {
	var got []dialer.Event
	ctx := dialer.WithTrace(t.Context(), &dialer.Trace{Done: func(e dialer.Event) { got = append(got, e) }})
	d := &dialer.Resolve{Resolver: names{"api": {"10.0.0.1"}}, Forward: way("x")}
	d.DialContext(ctx, "tcp", "api:1")
	d.DialContext(ctx, "tcp", "none:1")
	if len(got) != 2 || got[0].Phase != dialer.PhaseDNS || got[0].Addr != "api:1" || got[0].Err != nil || got[1].Err == nil {
		t.Errorf("got %+v, want two of phase dns, the second with an error", got)
	}
}

// A lookup that dials by the Resolve that waits for it is no lookup.
func TestResolveLoop(t *testing.T) {
	d := &dialer.Resolve{Forward: way("tunnel")}
	d.Resolver = lookupFunc(func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		_, err := d.DialContext(ctx, "tcp", "dns.guest.example:53")
		return nil, err
	})
	if _, err := d.DialContext(testContext(t), "tcp", "node.guest.example:443"); !errors.Is(err, dialer.ErrLoop) {
		t.Errorf("got %v, want ErrLoop", err)
	}
	// Also through Go's own resolver, which looks up in another goroutine.
	d.Resolver = dnsThrough(d, "dns.guest.example:53")
	if _, err := d.DialContext(testContext(t), "tcp", "node.guest.example.:443"); err == nil || !strings.Contains(err.Error(), "through itself") {
		t.Errorf("got %v, want ErrLoop, in the words of package net", err)
	}
}

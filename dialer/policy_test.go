package dialer_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/noproxy"
)

// guest is a cluster behind a tunnel: addresses that only the tunnel reaches.
type guest struct {
	t       *testing.T
	inside  map[string]string // address in the cluster -> where it is
	dnsDown bool

	mu  sync.Mutex // guards log
	log []string   // what was dialed and how
}

const banner = "SSH-2.0-guest\r\n"

func newGuest(t *testing.T) *guest {
	g := &guest{t: t}
	echoes := serve(t, listen(t), echo)
	// The customer's proxy, whose targets speak first: with the 200.
	customer := serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		br := bufio.NewReader(conn)
		head, err := readHead(br)
		if err != nil {
			return
		}
		g.note("customer", strings.Fields(head)[1])
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"+banner)
		io.Copy(conn, br)
	})
	dns := serve(t, listen(t), tcpDNS(map[string][]string{
		"proxy.guest.example.":    {"10.1.0.8"},
		"node.guest.example.":     {"10.1.0.1"},
		"two.guest.example.":      {"10.1.0.6", "10.1.0.7"},
		"dotted.example.":         {"10.1.0.1"},
		"kubernetes.default.svc.": {"172.30.0.1"},
	}, nil))
	g.inside = map[string]string{
		"172.30.0.10:53": dns, "10.1.0.8:3128": customer,
		"10.1.0.1:443": echoes, "10.1.0.7:443": echoes, "172.30.0.1:443": echoes, "172.30.0.5:443": echoes,
		"127.0.0.1:443": echoes, "[::1]:443": echoes,
	}
	return g
}

func (g *guest) note(way, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log = append(g.log, way+" "+address)
}

// taken returns what was noted, but for the lookups.
func (g *guest) taken() (list []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, entry := range g.log {
		if entry != "tunnel 172.30.0.10:53" {
			list = append(list, entry)
		}
	}
	return list
}

// tunnel reaches what is inside, by addresses alone.
func (g *guest) tunnel(ctx context.Context, network, address string) (net.Conn, error) {
	g.note("tunnel", address)
	to, ok := g.inside[address]
	if !ok || g.dnsDown && address == "172.30.0.10:53" {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return new(net.Dialer).DialContext(ctx, "tcp", to)
}

// services is the cluster's API.
func (g *guest) services(ctx context.Context, network, host string) ([]netip.Addr, error) {
	g.note("api", host)
	return names{"webhook.team": {"172.30.0.5"}}.LookupNetIP(ctx, network, host)
}

func (g *guest) policy(management dialer.Dialer) policy {
	return policy{
		Management: management,
		Tunnel:     dialer.Func(g.tunnel),
		Customer:   &dialer.HTTPConnect{Addr: "proxy.guest.example:3128"},
		Cloud:      []string{".cloud.example", "198.51.100.0/24"},
		NoProxy:    ".svc,.guest.example,.example,.team,10.0.0.0/8,localhost",
		Services:   lookupFunc(g.services),
		DNS:        "172.30.0.10:53",
		FellBack:   func(_, address string, _ error) { g.note("fallback", address) },
	}
}

// The sentences of what is known about HyperShift's proxies, a row each.
func TestPolicy(t *testing.T) {
	for _, tt := range []struct {
		name, address string
		dnsDown       bool
		first         string // what the target says first
		want          []string
		is            error // nil: it connects
	}{
		{name: "the cloud's API by the management side", address: "iam.cloud.example:443", want: []string{"management iam.cloud.example:443"}},
		{name: "and by its network", address: "198.51.100.7:443", want: []string{"management 198.51.100.7:443"}},
		{name: "service.namespace by the guest's API", address: "webhook.team:443", want: []string{"api webhook.team", "tunnel 172.30.0.5:443"}},
		{name: "what only looks like one by its DNS", address: "dotted.example:443", want: []string{"api dotted.example", "tunnel 10.1.0.1:443"}},
		{name: "other names by the guest's DNS, over TCP through the tunnel", address: "kubernetes.default.svc:443", want: []string{"tunnel 172.30.0.1:443"}},
		{name: "all addresses are tried, not the first alone", address: "two.guest.example:443", want: []string{"tunnel 10.1.0.6:443", "tunnel 10.1.0.7:443"}},
		{name: "an explicit fallback, that is told of", address: "localhost:443", dnsDown: true, want: []string{"fallback localhost:443", "tunnel 127.0.0.1:443"}},
		{name: "and none where DNS has answered", address: "none.guest.example:443", is: errNotFound},
		{name: "nor where the target refuses", address: "node.guest.example:444", want: []string{"tunnel 10.1.0.1:444"}, is: syscall.ECONNREFUSED},
		{name: "guest no_proxy: the tunnel alone", address: "10.1.0.1:443", want: []string{"tunnel 10.1.0.1:443"}},
		{name: "else the customer's proxy, through the tunnel; the bytes with its 200 are kept", address: "registry.example.com:443", first: banner,
			want: []string{"tunnel 10.1.0.8:3128", "customer registry.example.com:443"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuest(t)
			g.dnsDown = tt.dnsDown
			far := serve(t, listen(t), echo)
			d, err := g.policy(dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
				g.note("management", address)
				return new(net.Dialer).DialContext(ctx, network, far)
			})).Dialer()
			if err != nil {
				t.Fatal(err)
			}
			conn, err := d.DialContext(testContext(t), "tcp4", tt.address)
			if err == nil {
				exchange(t, conn, tt.first)
				conn.Close()
			}
			if !matches(err, tt.is) {
				t.Errorf("got %v, want %v", err, tt.is)
			}
			if diff := cmp.Diff(tt.want, g.taken()); diff != "" {
				t.Errorf("ways (-want +got)\n%s", diff)
			}
		})
	}
}

var errNotFound = errors.New("not found")

func matches(err, want error) bool {
	var dns *net.DNSError
	if want == errNotFound {
		return errors.As(err, &dns) && dns.IsNotFound
	}
	return errors.Is(err, want)
}

// The management side may need a proxy of its own to reach the cloud.
func TestPolicyManagementProxy(t *testing.T) {
	g := newGuest(t)
	proxy := serve(t, listen(t), (&proxytest.HTTP{Dial: toEcho(t), Log: func(r proxytest.Request) { g.note("proxy", r.Target) }}).Handle)
	d, err := g.policy(&dialer.HTTPConnect{Addr: proxy}).Dialer()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.DialContext(testContext(t), "tcp", "iam.cloud.example:443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exchange(t, conn, "")
	if diff := cmp.Diff([]string{"proxy iam.cloud.example:443"}, g.taken()); diff != "" {
		t.Errorf("ways (-want +got)\n%s", diff)
	}
}

// Circular DNS: what looks names up needs a name, to be looked up the same way.
func TestPolicyCircularDNS(t *testing.T) {
	inside := &dialer.Resolve{Forward: way("tunnel")}
	inside.Resolver = dialer.LookupDNS(inside, "dns.guest.example:53")
	if _, err := inside.DialContext(testContext(t), "tcp", "node.guest.example:443"); !errors.Is(err, dialer.ErrLoop) {
		t.Errorf("got %v, want ErrLoop", err)
	}
	// Also through Go's own resolver, which looks up in another goroutine.
	inside.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return inside.DialContext(ctx, "tcp", "dns.guest.example:53")
	}}
	_, err := inside.DialContext(testContext(t), "tcp", "node.guest.example.:443")
	if err == nil || !strings.Contains(err.Error(), "through itself") {
		t.Errorf("got %v, want ErrLoop, in the words of package net", err)
	}
	// By its address, the server is reached.
	inside.Resolver = dialer.LookupDNS(inside, "172.30.0.10:53")
	if got := wayOf(t, inside, "node.guest.example:443"); got != "tunnel" {
		t.Errorf("got %s, want tunnel", got)
	}
}

func TestPatternsFromRules(t *testing.T) {
	for rules, want := range map[string]string{"a.example": "routed", "b.example": "default"} {
		r := &dialer.Router{Routes: []dialer.Route{{Match: dialer.PatternsFromRules(noproxy.Parse(rules)), Dialer: way("routed")}}, Default: way("default")}
		if got := wayOf(t, r, "x.a.example:443"); got != want {
			t.Errorf("%s: got %s, want %s", rules, got, want)
		}
	}
	none := dialer.PatternsFromRules(nil)
	r := &dialer.Router{Routes: []dialer.Route{{Match: none, Dialer: way("routed")}}, Default: way("default")}
	if got := wayOf(t, r, "localhost:1"); got != "default" || none.String() != "" {
		t.Errorf("nil rules: got %s and %q, want the default and none", got, none)
	}
}

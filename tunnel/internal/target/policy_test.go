package target_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel/internal/target"
)

// config is a Config whose DialTarget compiles it, and dials.
type config struct{ target.Config }

func (c *config) DialTarget(ctx context.Context, network, address string) (net.Conn, error) {
	p, err := c.Compile()
	if err != nil {
		return nil, err
	}
	conn, dialErr := p.Dial(ctx, network, address)
	if dialErr != nil {
		return nil, dialErr
	}
	return conn, nil
}

// configThrough returns c with n below it.
func configThrough(n *targettest.Network, c target.Config) *config {
	c.Resolver, c.Dial = n, n.DialContext
	return &config{c}
}

func reasonOf(err error) target.Reason {
	var e *target.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Reason
}

func TestTargets(t *testing.T) {
	hosts := map[string]string{
		"kubernetes.default.svc":  "10.96.0.1",
		"kubernetes.default.svc.": "10.96.0.1",
		"node":                    "10.0.0.7",
		"mixed":                   "127.0.0.1 10.0.0.7 ::1 192.0.2.7",
		"mapped":                  "::ffff:10.0.0.7 10.0.0.7",
		"xn--bcher-kva.example":   "192.0.2.8",
		"localhost":               "127.0.0.1",
		"v6":                      "2001:db8::7",
	}
	const denied, bad, notFound = target.Denied, target.Malformed, target.NotFound
	for _, tt := range []struct {
		name   string
		allow  string
		target string
		want   string // address that is dialed
		code   target.Reason
	}{
		{"default", "", "kubernetes.default.svc:443", "10.96.0.1:443", 0},
		{"default, another port", "", "kubernetes.default.svc:6443", "", denied},
		{"default, another name", "", "node:443", "", denied},
		{"default, its address", "", "10.96.0.1:443", "", denied},
		{"case", "", "Kubernetes.DEFAULT.svc:443", "10.96.0.1:443", 0},
		{"case of the pattern", "Node:22", "node:22", "10.0.0.7:22", 0},
		{"final dot", "", "kubernetes.default.svc.:443", "10.96.0.1:443", 0},
		{"final dot of the pattern", "node.:22", "node:22", "10.0.0.7:22", 0},
		{"two final dots", "", "kubernetes.default.svc..:443", "", bad},
		{"IDN", "bücher.example:443", "BÜCHER.example:443", "192.0.2.8:443", 0},
		{"IDN, ASCII pattern", "xn--bcher-kva.example:443", "bücher.example:443", "192.0.2.8:443", 0},
		{"IDN, ASCII target", "bücher.example:443", "XN--bcher-kva.example:443", "192.0.2.8:443", 0},
		{"below", "*.svc:443", "kubernetes.default.svc:443", "10.96.0.1:443", 0},
		{"below, not itself", "*.default.svc:443", "default.svc:443", "", denied},
		{"below, not a longer label", "*.example:443", "badexample:443", "", denied},
		{"all names", "*:22", "node:22", "10.0.0.7:22", 0},
		{"all names, no address", "*:22", "10.0.0.7:22", "", denied},
		{"all names, no loopback", "*:22", "localhost:22", "", denied},
		{"special ones skipped", "*:22", "mixed:22", "10.0.0.7:22", 0},
		{"unknown name", "*:22", "nowhere:22", "", notFound},
		{"address", "10.0.0.7:22", "10.0.0.7:22", "10.0.0.7:22", 0},
		{"address by name", "10.0.0.7:22", "node:22", "10.0.0.7:22", 0},
		{"address of many by name", "192.0.2.7:22", "mixed:22", "192.0.2.7:22", 0},
		{"another address", "10.0.0.8:22", "node:22", "", denied},
		{"network", "10.0.0.0/8:22", "10.0.0.7:22", "10.0.0.7:22", 0},
		{"network, another port", "10.0.0.0/8:22", "10.0.0.7:23", "", denied},
		{"network, outside", "10.0.0.0/8:22", "11.0.0.7:22", "", denied},
		{"network, mapped", "10.0.0.0/8:22", "[::ffff:10.0.0.7]:22", "10.0.0.7:22", 0},
		{"mapped by name, once", "10.0.0.0/8:22", "mapped:22", "10.0.0.7:22", 0},
		{"IPv6 address", "[2001:db8::7]:22", "[2001:DB8:0::7]:22", "[2001:db8::7]:22", 0},
		{"IPv6 network", "[2001:db8::/32]:22", "v6:22", "[2001:db8::7]:22", 0},
		{"loopback network", "127.0.0.0/8:22", "localhost:22", "127.0.0.1:22", 0},
		{"wide network, no loopback", "0.0.0.0/0:22", "localhost:22", "", denied},
		{"wide network", "0.0.0.0/0:22", "10.0.0.7:22", "10.0.0.7:22", 0},
		{"port range", "10.0.0.7:1-1024", "10.0.0.7:1024", "10.0.0.7:1024", 0},
		{"port range, above", "10.0.0.7:1-1024", "10.0.0.7:1025", "", denied},
		{"port range, below", "10.0.0.7:2-1024", "10.0.0.7:1", "", denied},
		{"all ports", "10.0.0.7:*", "10.0.0.7:65535", "10.0.0.7:65535", 0},
		{"name on a range", "node:20-30", "node:22", "10.0.0.7:22", 0},
		{"second pattern", "v6:22,node:22", "node:22", "10.0.0.7:22", 0},
		{"no port", "*:443", "node", "", bad},
		{"no host", "*:443", ":443", "", bad},
		{"port 0", "10.0.0.7:*", "10.0.0.7:0", "", bad},
		{"port by name", "*:*", "node:https", "", bad},
		{"port with a zero", "*:*", "node:0443", "", bad},
		{"IPv6 without brackets", "*:443", "2001:db8::7:443", "", bad},
		{"asterisk", "*:443", "*:443", "", bad},
		{"empty label", "*:443", "a..b:443", "", bad},
		{"long label", "*:443", strings.Repeat("a", 64) + ":443", "", bad},
		{"long name", "*:443", strings.Repeat("a.", 127) + "a:443", "", bad},
		{"endless", "*:443", strings.Repeat("\u00fc", 3000) + ":443", "", bad},
		{"zone", "[fe80::/10]:443", "[fe80::1%eth0]:443", "", bad},
		{"line break", "*:443", "a\nb:443", "", bad},
		{"URL", "*:443", "https://node:443", "", bad},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &targettest.Network{Hosts: hosts}
			targets := configThrough(n, target.Config{})
			if tt.allow != "" {
				targets.Allow = strings.Split(tt.allow, ",")
			}
			conn, err := targets.DialTarget(t.Context(), "tcp", tt.target)
			if err == nil {
				conn.Close()
			}
			if got := reasonOf(err); got != tt.code || (err == nil) != (tt.code == 0) {
				t.Errorf("got %v, want code %v", err, tt.code)
			}
			if got := strings.Join(n.Dialed, " "); got != tt.want {
				t.Errorf("got %q dialed, want %q", got, tt.want)
			}
			if len(n.Lookups) > 1 {
				t.Errorf("got lookups of %q, want one at most", n.Lookups)
			}
		})
	}
}

// A name that its pattern's port denies is not told to a name server, and one
// with a final dot keeps it, so that no search list completes it.
func TestTargetLookups(t *testing.T) {
	for _, tt := range []struct{ name, allow, target, want string }{
		{"denied", "node:443", "secret.example:443", ""},
		{"denied, port of no network", "10.0.0.0/8:22", "secret.example:443", ""},
		{"an address", "10.0.0.0/8:22", "10.0.0.1:22", ""},
		{"a network may allow it", "10.0.0.0/8:22", "node:22", "node"},
		{"final dot", "node.example:443", "Node.example.:443", "node.example."},
		{"alias", "", "api.example:443", "node.example."},
		{"alias of an address", "", "address.example:443", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &targettest.Network{}
			targets := configThrough(n, target.Config{Allow: []string{tt.allow}, Aliases: map[string]string{
				"api.example:443":     "node.example.:443",
				"address.example:443": "10.0.0.1:443",
			}})
			if tt.allow == "" {
				targets.Allow = nil
			}
			if conn, err := targets.DialTarget(t.Context(), "tcp", tt.target); err == nil {
				conn.Close()
			}
			if got := strings.Join(n.Lookups, " "); got != tt.want {
				t.Errorf("got lookups of %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTargetAliases(t *testing.T) {
	hosts := map[string]string{"node": "10.0.0.7", "lan": "127.0.0.1 192.168.0.7", "evil": "169.254.169.254"}
	for _, tt := range []struct {
		name, from, to, target string
		want                   string // the first address that is dialed, "" for denied
	}{
		{"address", "kubernetes.default.svc:443", "10.96.0.1:443", "kubernetes.default.svc:443", "10.96.0.1:443"},
		{"another port", "api:443", "10.96.0.1:6443", "API.:443", "10.96.0.1:6443"},
		{"spelling of the alias", "API.:443", "10.96.0.1:6443", "api:443", "10.96.0.1:6443"},
		{"port not aliased", "api:443", "10.96.0.1:6443", "api:6443", ""},
		{"loopback", "api:443", "127.0.0.1:6443", "api:443", "127.0.0.1:6443"},
		{"IPv6 loopback", "api:443", "[::1]:6443", "api:443", "[::1]:6443"},
		{"localhost", "api:443", "localhost:6443", "api:443", "127.0.0.1:6443"},
		{"its address is not allowed", "api:443", "127.0.0.1:6443", "127.0.0.1:6443", ""},
		{"its name is not allowed", "api:443", "node:6443", "node:6443", ""},
		{"name", "api:443", "node:6443", "api:443", "10.0.0.7:6443"},
		{"name, special one skipped", "api:443", "lan:6443", "api:443", "192.168.0.7:6443"},
		{"name that leads to metadata", "api:443", "evil:80", "api:443", ""},
		{"address instead of an address", "192.0.2.1:443", "10.0.0.9:443", "192.0.2.1:443", "10.0.0.9:443"},
		{"mapped form of it", "192.0.2.1:443", "10.0.0.9:443", "[::ffff:192.0.2.1]:443", "10.0.0.9:443"},
		{"no alias of an alias", "api:443", "api:443", "api:443", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &targettest.Network{Hosts: hosts}
			targets := configThrough(n, target.Config{Aliases: map[string]string{tt.from: tt.to}})
			conn, err := targets.DialTarget(t.Context(), "tcp", tt.target)
			if err == nil {
				conn.Close()
			} else if tt.want != "" {
				t.Fatal(err)
			}
			if got := strings.Join(n.Dialed, " "); got != tt.want {
				t.Errorf("got %q dialed, want %q", got, tt.want)
			}
		})
	}
}

// What is compiled is the agent's own.
func TestTargetsAreCopied(t *testing.T) {
	n := &targettest.Network{Hosts: map[string]string{"*": "10.0.0.7"}}
	targets := configThrough(n, target.Config{Allow: []string{"b:1", "a:1"}, Aliases: map[string]string{"c:1": "10.0.0.8:1"}})
	policy, err := targets.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"b:1", "a:1"}; !slices.Equal(targets.Allow, want) {
		t.Errorf("got %q after it was compiled, want %q", targets.Allow, want)
	}
	targets.Allow[0], targets.Aliases["c:1"] = "c:1", "10.0.0.9:1"
	for target, want := range map[string]string{"b:1": "10.0.0.7:1", "c:1": "10.0.0.8:1"} {
		n.Dialed = nil
		conn, err := policy.Dial(t.Context(), "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if got := strings.Join(n.Dialed, " "); got != want {
			t.Errorf("%s: got %q dialed, want %q", target, got, want)
		}
	}
}

// The real resolver and dialer: nil is the standard library's.
func TestTargetsDefaults(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, tt := range []struct{ name, to string }{{"address", "127.0.0.1:" + port}, {"localhost", "localhost:" + port}} {
		t.Run(tt.name, func(t *testing.T) {
			targets := config{target.Config{Aliases: map[string]string{"api:443": tt.to}}}
			conn, err := targets.DialTarget(t.Context(), "tcp", "api:443")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got, want := conn.RemoteAddr().String(), l.Addr().String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	targets := config{target.Config{Allow: []string{"127.0.0.1:*"}}}
	conn, err := targets.DialTarget(t.Context(), "tcp", "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	l.Close()
	if _, err = targets.DialTarget(t.Context(), "tcp", "localhost:"+port); reasonOf(err) != target.Refused || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want it refused", err)
	}
}

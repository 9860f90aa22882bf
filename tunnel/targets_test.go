package tunnel_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// targetsThrough returns t with n below it.
func targetsThrough(n *targettest.Network, t tunnel.Targets) *tunnel.Targets {
	t.Resolver, t.Dial = n, n.DialContext
	return &t
}

func codeOf(err error) tunnel.Code {
	var e *tunnel.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code
}

func TestTargetsConfig(t *testing.T) {
	for _, tt := range []struct {
		name    string
		targets tunnel.Targets
		want    string
	}{
		{"timeout", tunnel.Targets{Timeout: -1}, "field Timeout is negative"},
		{"empty pattern", tunnel.Targets{Allow: []string{"a:1", ""}}, `field Allow, entry "": not host:port`},
		{"no port", tunnel.Targets{Allow: []string{"a"}}, "not host:port"},
		{"IPv6 without brackets", tunnel.Targets{Allow: []string{"2001:db8::/32:443"}}, "brackets"},
		{"brackets in the wrong place", tunnel.Targets{Allow: []string{"[2001:db8::]/32:443"}}, "not host:port"},
		{"no host", tunnel.Targets{Allow: []string{":443"}}, `field Allow, entry ":443"`},
		{"empty port", tunnel.Targets{Allow: []string{"a:"}}, "the port"},
		{"port 0", tunnel.Targets{Allow: []string{"a:0"}}, "the port"},
		{"port too high", tunnel.Targets{Allow: []string{"a:65536"}}, "the port"},
		{"half a range", tunnel.Targets{Allow: []string{"a:1-"}}, "the port"},
		{"range backwards", tunnel.Targets{Allow: []string{"a:2-1"}}, "above the last"},
		{"host bits", tunnel.Targets{Allow: []string{"10.1.0.0/8:443"}}, "write 10.0.0.0/8"},
		{"length too long", tunnel.Targets{Allow: []string{"10.0.0.0/33:443"}}, "not a network"},
		{"network of a name", tunnel.Targets{Allow: []string{"a/8:443"}}, "not a network"},
		{"mapped network", tunnel.Targets{Allow: []string{"[::ffff:10.0.0.0/104]:443"}}, "IPv4 network"},
		{"mapped address", tunnel.Targets{Allow: []string{"[::ffff:10.0.0.1]:443"}}, "IPv4 one as such"},
		{"zone", tunnel.Targets{Allow: []string{"[fe80::1%eth0]:443"}}, "without a zone"},
		{"short address", tunnel.Targets{Allow: []string{"127.1:443"}}, "no name ends in a number"},
		{"asterisk inside", tunnel.Targets{Allow: []string{"a.*.svc:443"}}, `'*'`},
		{"asterisk of a label", tunnel.Targets{Allow: []string{"a*.svc:443"}}, `'*'`},
		{"asterisk and dot", tunnel.Targets{Allow: []string{"*.:443"}}, "a label"},
		{"dot first", tunnel.Targets{Allow: []string{".svc:443"}}, "a label"},
		{"space", tunnel.Targets{Allow: []string{" a:443"}}, `' '`},
		{"IDN", tunnel.Targets{Allow: []string{"a\u2488.com:443"}}, "internationalised"},
		{"localhost", tunnel.Targets{Allow: []string{"LocalHost:443"}}, "write 127.0.0.1"},
		{"below localhost", tunnel.Targets{Allow: []string{"*.localhost:443"}}, "write 127.0.0.1"},
		{"a name below localhost", tunnel.Targets{Allow: []string{"a.localhost:443"}}, "write 127.0.0.1"},
		{"alias to a zone", tunnel.Targets{Aliases: map[string]string{"a:1": "[fe80::1%eth0]:1"}}, "zone"},
		{"endless", tunnel.Targets{Allow: []string{strings.Repeat("a", 2000) + ":1"}}, "longer than"},
		{"alias of nothing", tunnel.Targets{Aliases: map[string]string{"": "10.0.0.1:1"}}, `field Aliases, entry "": not host:port`},
		{"alias to nothing", tunnel.Targets{Aliases: map[string]string{"a:1": ""}}, `field Aliases, entry "a:1": "": not host:port`},
		{"alias of a pattern", tunnel.Targets{Aliases: map[string]string{"*:1": "a:1"}}, `'*'`},
		{"alias to an odd address", tunnel.Targets{Aliases: map[string]string{"a:1": "0x7f.1:1"}}, "no name ends in a number"},
		{"two of one", tunnel.Targets{Aliases: map[string]string{"a:1": "b:1", "A:1": "c:1"}}, `entry "a:1": the target has two aliases`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.targets.DialTarget(t.Context(), "tcp", "a:1")
			if codeOf(err) != tunnel.CodeConfig || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "tunnel: config: field ") {
				t.Errorf("got %v, want a configuration error with %q", err, tt.want)
			}
		})
	}
}

func TestTargetErrors(t *testing.T) {
	dial := func(err error) *targettest.Network {
		return &targettest.Network{Hosts: map[string]string{"*": targettest.Canary}, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: targettest.CanaryAddr, Err: err}
		}}
	}
	errno := func(no syscall.Errno) *targettest.Network { return dial(os.NewSyscallError("connect", no)) }
	for _, tt := range []struct {
		name string
		n    *targettest.Network
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
		{"another", dial(errors.New("to " + targettest.Canary)), tunnel.CodeInternal, nil, "the connection failed"},
		{"special", &targettest.Network{Hosts: map[string]string{"*": "127.0.0.1"}}, tunnel.CodeDenied, syscall.EACCES, "does not allow"},
		{"no addresses", &targettest.Network{Hosts: map[string]string{"*": ""}}, tunnel.CodeNotFound, nil, "no such host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := targetsThrough(tt.n, tunnel.Targets{Allow: []string{"name:443"}}).DialTarget(t.Context(), "tcp", "name:443")
			checkTargetError(t, err, tt.code, tt.is, tt.text)
			if op := new(net.OpError); tt.n.Dial != nil && (!errors.As(err, &op) || op.Addr != targettest.CanaryAddr) {
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
	if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), targettest.Canary) {
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
		{"no such host", &net.DNSError{Err: "no such host", Server: targettest.Canary, IsNotFound: true}, tunnel.CodeNotFound, "no such host"},
		{"server failure", &net.DNSError{Err: "server misbehaving", Server: targettest.Canary}, tunnel.CodeNotFound, "the name server failed"},
		{"timeout", &net.DNSError{Err: "i/o timeout", Server: targettest.Canary, IsTimeout: true}, tunnel.CodeTimeout, "the name server did not answer"},
		{"refused", &net.OpError{Op: "dial", Addr: targettest.CanaryAddr, Err: syscall.ECONNREFUSED}, tunnel.CodeNotFound, "no such host"},
		{"another", errors.New(targettest.Canary), tunnel.CodeNotFound, "no such host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			targets := tunnel.Targets{Allow: []string{"name:443"}, Resolver: targettest.Resolver(func(context.Context, string) ([]netip.Addr, error) { return nil, tt.err })}
			_, err := targets.DialTarget(t.Context(), "tcp", "name:443")
			checkTargetError(t, err, tt.code, tt.err, tt.text)
		})
	}
}

func TestTargetBadRequests(t *testing.T) {
	n := &targettest.Network{}
	for _, tt := range []struct{ network, address, shown, text string }{
		{"udp", "name:443", "name:443", "unknown network udp"},
		{"", "name:443", "name:443", "unknown network"},
		{"unix", "/run/x", "/run/x", "unknown network unix"},
		{"tcp", "a\x1b[2J\nb:443", "a?[2J b:443", "not host:port"},
		{"tcp", strings.Repeat("x", 5000) + ":443", strings.Repeat("x", 297) + "...", "longer than an address can be"},
	} {
		_, err := targetsThrough(n, tunnel.Targets{Allow: []string{"*:*"}}).DialTarget(t.Context(), tt.network, tt.address)
		var e *tunnel.Error
		if !errors.As(err, &e) || e.Code != tunnel.CodeBadRequest || e.Addr != tt.shown || !strings.Contains(err.Error(), tt.text) || len(n.Lookups)+len(n.Dialed) > 0 {
			t.Errorf("%s %q: got %v, %q and %q; want a bad request for %q", tt.network, tt.address, err, n.Lookups, n.Dialed, tt.shown)
		}
	}
}

// However a dial hangs, it ends with the Timeout, or the caller's context.
func TestTargetTimes(t *testing.T) {
	hangLookup := targettest.Resolver(func(ctx context.Context, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, &net.DNSError{Err: ctx.Err().Error(), Server: targettest.Canary, IsTemporary: true}
	})
	for _, kind := range []struct {
		name  string
		hosts string // empty: the lookup hangs
	}{{"lookup", ""}, {"dial", targettest.Canary}, {"two addresses", targettest.Canary + " 192.0.2.1"}} {
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
					n := &targettest.Network{Hosts: map[string]string{"*": kind.hosts}, Dial: targettest.Hang}
					targets := targetsThrough(n, tunnel.Targets{Allow: []string{"name:443"}, Timeout: tt.timeout})
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

package dialer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http/httpproxy"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

func TestConfigErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  dialer.Config
		want []string
	}{
		{"scheme", dialer.Config{HTTPSProxy: "ftp://proxy", HTTPProxy: "ftp://proxy"}, []string{"(HTTPS_PROXY)", `"ftp"`}},
		{"port", dialer.Config{HTTPProxy: "http://proxy:99999", AllProxy: "http://proxy:99999"}, []string{"(HTTP_PROXY)", "1 to 65535"}},
		{"escape", dialer.Config{HTTPSProxy: "http://u:%zz@proxy", AllProxy: "x y"}, []string{"(HTTPS_PROXY)", "%25"}},
		{"white space", dialer.Config{HTTPSProxy: " http://proxy", HTTPProxy: "a b"}, []string{"(HTTPS_PROXY)", "not a URL"}},
		{"all", dialer.Config{AllProxy: "socks4://proxy"}, []string{"(ALL_PROXY)", "socks4 is not supported"}},
		{"each", dialer.Config{HTTPSProxy: "a b", HTTPProxy: "socks4://x", AllProxy: "socks://x"}, []string{"(HTTPS_PROXY)", "(HTTP_PROXY)", "socks4"}},
		{"CGI as well", dialer.Config{HTTPProxy: "ftp://proxy", AllProxy: "ftp://proxy", CGI: true}, []string{"(HTTP_PROXY)", "(ALL_PROXY)"}},
		{"password", dialer.Config{AllProxy: "http://user:canary/x@proxy"}, []string{"(ALL_PROXY)", "percent-encode"}},
		{"password without scheme", dialer.Config{AllProxy: "user:canary x@proxy"}, []string{"(ALL_PROXY)", "no scheme"}},
		{"password of socks5", dialer.Config{AllProxy: "socks5://:canary@proxy"}, []string{"(ALL_PROXY)", "user name is empty"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := tt.cfg.Dialer(nil)
			var e *dialer.Error
			if d != nil || !errors.As(err, &e) || e.Phase != dialer.PhaseConfig {
				t.Fatalf("got %v, want an *Error of the config phase", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("got %q", err)
			}
		})
	}
}

// A proxy that can't be used is the error of the dials that would use it, and of no other.
func TestConfigUnusable(t *testing.T) {
	const good, bad, web, other, local = "192.0.2.1:3128", "http://user:canary@a b", "192.0.2.2:80", "192.0.2.2:443", "127.0.0.1:443"
	opts := &dialer.Options{Forward: dialer.Func(func(_ context.Context, _, address string) (net.Conn, error) { return nil, way(address) })}
	for _, tt := range []struct {
		name string
		cfg  dialer.Config
		want map[string]string // what is dialed for an address, or the variable that the error names
	}{
		{"ALL_PROXY beside both", dialer.Config{HTTPProxy: good, HTTPSProxy: good, AllProxy: bad}, map[string]string{web: good, other: good, local: local}},
		{"ALL_PROXY beside HTTPS_PROXY", dialer.Config{HTTPSProxy: good, AllProxy: bad}, map[string]string{web: "ALL_PROXY", other: good, local: local}},
		{"ALL_PROXY beside HTTP_PROXY", dialer.Config{HTTPProxy: good, AllProxy: bad}, map[string]string{web: good, other: "ALL_PROXY", local: local}},
		{"HTTP_PROXY", dialer.Config{HTTPProxy: bad}, map[string]string{web: "HTTP_PROXY", other: other, local: local}},
		{"HTTP_PROXY beside HTTPS_PROXY", dialer.Config{HTTPProxy: bad, HTTPSProxy: good}, map[string]string{web: "HTTP_PROXY", other: good, local: local}},
		{"HTTP_PROXY beside ALL_PROXY", dialer.Config{HTTPProxy: bad, AllProxy: good}, map[string]string{web: "HTTP_PROXY", other: good}},
		{"HTTPS_PROXY", dialer.Config{HTTPSProxy: bad}, map[string]string{web: web, other: "HTTPS_PROXY", local: local}},
		{"HTTPS_PROXY beside HTTP_PROXY", dialer.Config{HTTPSProxy: bad, HTTPProxy: good}, map[string]string{web: good, other: "HTTPS_PROXY", local: local}},
		{"HTTPS_PROXY for what NO_PROXY has", dialer.Config{HTTPSProxy: bad, NoProxy: "192.0.2.2"}, map[string]string{other: other, "192.0.2.3:443": "HTTPS_PROXY"}},
		{"HTTP_PROXY of a client", dialer.Config{HTTPProxy: bad, HTTPSProxy: good, CGI: true}, map[string]string{web: "REQUEST_METHOD", other: good}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := tt.cfg.Dialer(opts)
			if err != nil {
				t.Fatal(err)
			}
			for address, want := range tt.want {
				_, err := d.DialContext(testContext(t), "tcp", address)
				if _, _, isAddress := net.SplitHostPort(want); isAddress == nil {
					if got := wayOf(t, d, address); got != want {
						t.Errorf("%s: got %s dialed, want %s", address, got, want)
					}
					continue
				}
				checkConfigError(t, err, want)
				if e, ok := err.(*dialer.Error); !ok || e.Addr != address || strings.Contains(err.Error(), "canary") {
					t.Errorf("got %v, want %s in it, and no secret", err, address)
				}
			}
		})
	}
}

// fleet is three proxies and a way to say which of them a dial went through.
type fleet struct{ web, other, all, way string }

func newFleet(t *testing.T) *fleet {
	f := &fleet{}
	proxy := func(name string) string {
		p := &proxytest.HTTP{Log: func(proxytest.Request) { f.way = name }, Dial: toEcho(t)}
		return serve(t, listen(t), p.Handle)
	}
	f.web, f.other = proxy("web"), proxy("other")
	socks := &proxytest.SOCKS5{Username: "u", Password: "p", Log: func(proxytest.Request) { f.way = "all" }, Dial: toEcho(t)}
	f.all = "socks5h://u:p@" + serve(t, listen(t), socks.Handle)
	return f
}

// dial returns which way a dial went: "direct" if through no proxy.
func (f *fleet) dial(t *testing.T, d dialer.Dialer, address string) string {
	t.Helper()
	f.way = "direct"
	conn, err := d.DialContext(testContext(t), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exchange(t, conn, "")
	return f.way
}

func TestConfigRoutes(t *testing.T) {
	f := newFleet(t)
	local := serve(t, listen(t), echo)
	const port80 = "192.0.2.1:80"
	for _, tt := range []struct {
		name    string
		cfg     dialer.Config
		address string
		want    string
	}{
		{"https", dialer.Config{HTTPProxy: f.web, HTTPSProxy: "http://" + f.other}, "192.0.2.1:443", "other"},
		{"API server", dialer.Config{HTTPProxy: f.web, HTTPSProxy: f.other}, target, "other"},
		{"http", dialer.Config{HTTPProxy: f.web, HTTPSProxy: f.other}, port80, "web"},
		{"http, leading zero", dialer.Config{HTTPProxy: f.web, HTTPSProxy: f.other}, "192.0.2.1:080", "web"},
		{"no_proxy of another port", dialer.Config{HTTPSProxy: f.other, NoProxy: "192.0.2.10:443"}, target, "other"},
		{"no proxy", dialer.Config{}, local, "direct"},
		{"loopback", dialer.Config{HTTPSProxy: f.other, HTTPProxy: f.web, AllProxy: f.all}, local, "direct"},
		{"CGI, not http", dialer.Config{HTTPSProxy: f.other, HTTPProxy: f.web, CGI: true}, target, "other"},
		{"all, http", dialer.Config{AllProxy: f.all}, port80, "all"},
		{"all, https", dialer.Config{AllProxy: f.all}, target, "all"},
		{"all, beside http", dialer.Config{AllProxy: f.all, HTTPProxy: f.web}, target, "all"},
		{"all, before http", dialer.Config{AllProxy: f.all, HTTPProxy: f.web}, port80, "web"},
		{"all, before https", dialer.Config{AllProxy: f.all, HTTPSProxy: f.other}, target, "other"},
		{"all, beside https", dialer.Config{AllProxy: f.all, HTTPSProxy: f.other}, port80, "all"},
		{"all, CGI", dialer.Config{AllProxy: f.all, CGI: true}, port80, "all"},
		{"socks5 for https", dialer.Config{HTTPSProxy: f.all}, target, "all"},
		{"socks5 for http", dialer.Config{HTTPProxy: f.all}, port80, "all"},
		{"mapped IPv4", dialer.Config{HTTPSProxy: f.other, NoProxy: "192.0.2.1"}, "[::ffff:192.0.2.10]:6443", "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := tt.cfg.Dialer(nil)
			if err != nil {
				t.Fatal(err)
			}
			tt.cfg = dialer.Config{} // it may be changed afterwards
			if got := f.dial(t, d, tt.address); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestConfigDialErrors(t *testing.T) {
	cfg := dialer.Config{HTTPProxy: "http://192.0.2.1:3128", AllProxy: "http://192.0.2.1:3128", CGI: true}
	d, err := cfg.Dialer(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, address, want string }{
		{"CGI", "192.0.2.1:80", "REQUEST_METHOD"},
		{"CGI, leading zero", "192.0.2.1:080", "REQUEST_METHOD"},
		{"no port", "nonsense", "not host:port"},
		{"port by name", "localhost:http", "1 to 65535"},
		{"no host", ":443", "no host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := d.DialContext(testContext(t), "tcp", tt.address)
			checkConfigError(t, err, tt.want)
		})
	}
}

// Options are for each proxy, and Forward for what needs none.
func TestConfigOptions(t *testing.T) {
	f := newFleet(t)
	var headers, forwarded int
	opts := &dialer.Options{
		Header: func(context.Context, string) (http.Header, error) {
			headers++
			return nil, nil
		},
		Forward: dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
			forwarded++
			return dialer.Direct{}.DialContext(ctx, network, address)
		}),
	}
	cfg := dialer.Config{HTTPProxy: f.web, HTTPSProxy: f.other, AllProxy: f.all}
	d, err := cfg.Dialer(opts)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{f.dial(t, d, target), f.dial(t, d, "192.0.2.1:80"), f.dial(t, d, serve(t, listen(t), echo))}
	if diff := cmp.Diff([]string{"other", "web", "direct"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if headers != 2 || forwarded != 3 {
		t.Errorf("Header was called %d times, Forward %d; want 2 and 3", headers, forwarded)
	}
}

// What is dialed in the end, with a Forward that only says what it was asked.
func TestConfigForward(t *testing.T) {
	const proxy = "192.0.2.1:3128"
	opts := &dialer.Options{Forward: dialer.Func(func(_ context.Context, _, address string) (net.Conn, error) { return nil, way(address) })}
	for _, tt := range []struct {
		name          string
		cfg           dialer.Config
		address, want string
	}{
		{"no proxy", dialer.Config{}, target, target},
		{"no proxy, http", dialer.Config{}, "192.0.2.2:80", "192.0.2.2:80"},
		{"other proxy", dialer.Config{HTTPProxy: proxy}, target, target},
		{"proxy", dialer.Config{HTTPSProxy: proxy}, target, proxy},
		{"localhost", dialer.Config{HTTPSProxy: proxy}, "localhost:443", "localhost:443"},
		{"no_proxy with port", dialer.Config{HTTPSProxy: proxy, NoProxy: target}, target, target},
		{"no_proxy with port, leading zero", dialer.Config{HTTPSProxy: proxy, NoProxy: target}, "192.0.2.10:06443", "192.0.2.10:06443"},
		{"no_proxy with another port", dialer.Config{HTTPSProxy: proxy, NoProxy: target}, "192.0.2.10:443", proxy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := tt.cfg.Dialer(opts)
			if err != nil {
				t.Fatal(err)
			}
			if got := wayOf(t, d, tt.address); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestConfigText(t *testing.T) {
	cfg := dialer.Config{
		HTTPProxy:  "http://user:canary@web",
		HTTPSProxy: "user:canary@other:3128",
		AllProxy:   "socks5://user:canary/@x",
		NoProxy:    "10.0.0.0/8,\n.svc",
		CGI:        true,
	}
	want := "HTTPProxy=http://web:80 HTTPSProxy=http://other:3128 AllProxy=(unusable) NoProxy=10.0.0.0/8, .svc CGI=true"
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{cfg, &cfg} {
			if got := fmt.Sprintf(verb, v); got != want {
				t.Errorf("%s of %T: got %q, want %q", verb, v, got, want)
			}
		}
	}
	if got, want := (dialer.Config{}).String(), "HTTPProxy= HTTPSProxy= AllProxy= NoProxy= CGI=false"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FromConfig is the same for the Config of golang.org/x/net.
func TestFromConfig(t *testing.T) {
	f := newFleet(t)
	cfg := &httpproxy.Config{HTTPProxy: f.web, HTTPSProxy: f.other, NoProxy: "127.0.0.1"}
	d, err := dialer.FromConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{f.dial(t, d, target), f.dial(t, d, "192.0.2.1:80"), f.dial(t, d, serve(t, listen(t), echo))}
	if diff := cmp.Diff([]string{"other", "web", "direct"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	cfg.CGI = true
	if d, err = dialer.FromConfig(cfg); err != nil {
		t.Fatal(err)
	}
	_, err = d.DialContext(testContext(t), "tcp", "192.0.2.1:80")
	checkConfigError(t, err, "REQUEST_METHOD")
	_, err = dialer.FromConfig(&httpproxy.Config{HTTPProxy: "ftp://proxy", HTTPSProxy: "ftp://proxy"})
	checkConfigError(t, err, "(HTTP_PROXY)")
}

// clearProxies empties the variables that are read.
func clearProxies(t *testing.T) {
	t.Helper()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"} {
		t.Setenv(name, "")
		t.Setenv(strings.ToLower(name), "")
	}
	t.Setenv("REQUEST_METHOD", "")
}

func TestConfigFromEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		want dialer.Config
	}{
		{"nothing", nil, dialer.Config{}},
		{"upper case", map[string]string{"HTTP_PROXY": "h", "HTTPS_PROXY": "s", "ALL_PROXY": "a", "NO_PROXY": "n"}, dialer.Config{HTTPProxy: "h", HTTPSProxy: "s", AllProxy: "a", NoProxy: "n"}},
		{"lower case", map[string]string{"http_proxy": "h", "https_proxy": "s", "all_proxy": "a", "no_proxy": "n"}, dialer.Config{HTTPProxy: "h", HTTPSProxy: "s", AllProxy: "a", NoProxy: "n"}},
		{
			"both, lower case counts",
			map[string]string{"http_proxy": "h", "HTTP_PROXY": "H", "https_proxy": "s", "HTTPS_PROXY": "S", "all_proxy": "a", "ALL_PROXY": "A", "no_proxy": "n", "NO_PROXY": "N"},
			dialer.Config{HTTPProxy: "h", HTTPSProxy: "s", AllProxy: "a", NoProxy: "n"},
		},
		{"CGI", map[string]string{"HTTP_PROXY": "h", "REQUEST_METHOD": "GET"}, dialer.Config{HTTPProxy: "h", CGI: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clearProxies(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			// Not with cmp, which prints by way of String.
			if got := *dialer.ConfigFromEnvironment(); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestFromEnvironment(t *testing.T) {
	used := false
	p := &proxytest.HTTP{Log: func(proxytest.Request) { used = true }, Dial: toEcho(t)}
	clearProxies(t)
	t.Setenv("ALL_PROXY", "http://"+serve(t, listen(t), p.Handle))
	t.Setenv("NO_PROXY", ".example.com")
	d, err := dialer.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ALL_PROXY", "ftp://proxy")
	_, err = dialer.FromEnvironment()
	checkConfigError(t, err, "(ALL_PROXY)")
	conn, err := d.DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if !used {
		t.Error("the proxy was not used")
	}
	// What no_proxy lists is dialed here, and so fails here.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.DialContext(ctx, "tcp", net.JoinHostPort("api.example.com", "6443"))
	var e *dialer.Error
	if !errors.As(err, &e) || e.Op != "direct" || !errors.Is(err, context.Canceled) {
		t.Errorf("got %#v, want the error of a direct dial", err)
	}
}

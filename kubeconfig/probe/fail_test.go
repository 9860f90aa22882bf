package probe_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// script serves connections on loopback, and returns its host:port.
func script(t *testing.T, config *tls.Config, handle proxyFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	s := proxytest.Serve(l, handle)
	t.Cleanup(s.Close)
	return s.Addr()
}

// says answers a request's head with text.
func says(text string) proxyFunc {
	return func(_ context.Context, conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			io.WriteString(conn, text)
		}
	}
}

// blurts says text before it is asked.
func blurts(text string) proxyFunc {
	return func(_ context.Context, conn net.Conn) {
		io.WriteString(conn, text)
		io.Copy(io.Discard, conn)
	}
}

// waits answers who begins with hello, and lets others wait.
func waits(hello, answer string) proxyFunc {
	return func(_ context.Context, conn net.Conn) {
		b := make([]byte, 512)
		if n, _ := conn.Read(b); strings.HasPrefix(string(b[:n]), hello) {
			io.WriteString(conn, answer)
			return
		}
		io.Copy(io.Discard, conn)
	}
}

// refusesTicket is a tunnel's gateway.
func refusesTicket(_ context.Context, conn net.Conn) {
	b := make([]byte, 512)
	for _, answer := range []string{"\x05\x02", "\x01\x02"} {
		conn.Read(b)
		io.WriteString(conn, answer)
	}
}

func mute(_ context.Context, conn net.Conn) { io.Copy(io.Discard, conn) }

func hangsUp(_ context.Context, conn net.Conn) { conn.Read(make([]byte, 1)) }

// closedPort is an address at which nothing listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr().String()
}

type change = func(t *testing.T, api *probed, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo)

// probeTest changes a good kubeconfig of an API server so that it fails.
type probeTest struct {
	name   string
	change change
	want   failure
}

func runProbeTests(t *testing.T, tests []probeTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			api := newProbed(t, nil)
			config := api.config(t)
			test.change(t, api, config.Clusters["c1"], config.AuthInfos["c1-admin"])
			checkFailure(t, probe.Run(probeContext(t), config), test.want)
		})
	}
}

// byProxy is a change of proxy-url.
func byProxy(scheme string, tlsConfig *tls.Config, handle proxyFunc) change {
	return func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.ProxyURL = scheme + "://" + script(t, tlsConfig, handle)
	}
}

func withLogin(scheme string, handle proxyFunc) change {
	return func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.ProxyURL = (&url.URL{Scheme: scheme, User: url.UserPassword("u", "p4ss"), Host: script(t, nil, handle)}).String()
	}
}

func server(addr func(*testing.T) string) change {
	return func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.Server = "https://" + addr(t)
	}
}

func scripted(handle proxyFunc) func(t *testing.T) string {
	return func(t *testing.T) string { return script(t, nil, handle) }
}

const noLength = "Content-Length: 0\r\n\r\n"

func TestProbeProxyFails(t *testing.T) {
	runProbeTests(t, []probeTest{
		{"nothing listens", func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = "http://" + closedPort(t)
		}, failure{probe.PhaseTCP, "the proxy refuses connections: nothing listens at 127.0.0.1:", "Start the proxy, or correct host and port in proxy-url."}},
		{"http, not https", byProxy("https", nil, says("HTTP/1.1 400 Bad Request\r\n"+noLength)),
			failure{probe.PhaseProxyTLS, "", adviceScheme}},
		{"answers https in plain text", byProxy("https", nil, blurts("220 mail.test ESMTP\r\n")),
			failure{probe.PhaseProxyTLS, "does not speak TLS", "Write http:// or socks5://"}},
		{"https, not http", byProxy("http", &tls.Config{Certificates: []tls.Certificate{pki.NewCAWith(nil, nil).Server("p", "127.0.0.1")}}, mute),
			failure{probe.PhaseConnect, "the proxy closed the connection", adviceScheme}},
		{"socks5, not http", byProxy("http", nil, (&proxytest.SOCKS5{}).Handle),
			failure{probe.PhaseConnect, "speaks SOCKS5, and proxy-url begins with http://", "Write socks5:// in place of http:// in the kubeconfig's proxy-url"}},
		{"socks5 that waits, not http", byProxy("http", nil, waits("\x05", "\x05\xff")),
			failure{probe.PhaseConnect, "speaks SOCKS5, and proxy-url begins with http://", "Write socks5:// in place"}},
		{"http, not socks5", byProxy("socks5", nil, blurts("HTTP/1.1 400 Bad Request\r\n"+noLength)),
			failure{probe.PhaseConnect, "speaks HTTP, and proxy-url begins with socks5://", "Write http:// in place of socks5://"}},
		{"http that waits, not socks5", byProxy("socks5", nil, waits("O", "HTTP/1.1 400 Bad Request\r\n")),
			failure{probe.PhaseConnect, "speaks HTTP, and proxy-url begins with socks5://", "Write http:// in place of socks5:// in the kubeconfig's proxy-url"}},
		{"CA", byProxy("https", &tls.Config{Certificates: []tls.Certificate{pki.NewCAWith(nil, func(c *x509.Certificate) { c.Subject.CommonName = "office" }).Server("p", "127.0.0.1")}}, mute),
			failure{probe.PhaseProxyTLS, `issued by "office"`, "set it as certificateAuthorityData in proxyTLS of the kubeconfig's clusters[].cluster.extensions (causewayproject.github.io/route)."}},
		{"407 without a login", byProxy("http", nil, (&proxytest.HTTP{Username: "u", Password: "p"}).Handle),
			failure{probe.PhaseProxyAuth, "the proxy answered 407: it wants a user name and password, and proxy-url has none", "Set user name and password in the kubeconfig's proxy-url"}},
		{"407 with a wrong login", withLogin("http", (&proxytest.HTTP{Username: "u", Password: "p"}).Handle),
			failure{probe.PhaseProxyAuth, "the proxy answered 407: it refused the user name and password", "Correct user name and password in the kubeconfig's proxy-url"}},
		{"407 of a gateway, the ticket ended", withLogin("http", gateway407("the ticket ended at 2026-01-02 15:04:05 UTC; make a new one with: causeway ticket default/prod")),
			failure{probe.PhaseProxyAuth, "407 Proxy Authentication Required: the ticket ended at 2026-01-02 15:04:05 UTC; make a new one with: causeway ticket default/prod", adviceTicket}},
		{"407 of a gateway, the ticket was revoked", withLogin("http", gateway407("the ticket was revoked")),
			failure{probe.PhaseProxyAuth, "the tunnel's gateway refuses the login: the proxy answered 407 Proxy Authentication Required: the ticket was revoked", adviceTicket}},
		{"407 of a gateway, another password", withLogin("http", gateway407("the credentials are missing or wrong")),
			failure{probe.PhaseProxyAuth, "407 Proxy Authentication Required: the credentials are missing or wrong", adviceTicket}},
		{"407 of a gateway without a body", withLogin("http", says("HTTP/1.1 407 Proxy Authentication Required: the ticket was revoked\r\nProxy-Status: causeway; error=http_request_denied\r\n"+noLength)),
			failure{probe.PhaseProxyAuth, "407 Proxy Authentication Required: the ticket was revoked", adviceTicket}},
		{"407 with a body of another proxy", withLogin("http", says("HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"p\"\r\nContent-Length: 5\r\n\r\nwords")),
			failure{probe.PhaseProxyAuth, "the proxy answered 407: it refused the user name and password", "Correct user name and password"}},
		{"401 of tinyproxy without a login", byProxy("http", nil, says("HTTP/1.1 401 Unauthorized\r\n"+noLength)),
			failure{probe.PhaseProxyAuth, "the proxy answered 401: it wants a user name and password, and proxy-url has none", "kubectl config set-cluster NAME --proxy-url=http://USER:PASSWORD@HOST:PORT"}},
		{"407 of a gateway without a login", byProxy("http", nil, gateway407("the credentials are missing or wrong")),
			failure{probe.PhaseProxyAuth, "the tunnel's gateway answered 407: it wants a ticket or a user name and password, and proxy-url has none", "causeway ticket CLUSTER"}},
		{"407 with a login in the extension", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			byProxy("http", nil, (&proxytest.HTTP{Username: "u", Password: "p"}).Handle)(t, api, c, u)
			setExtension(t, c, map[string]any{"header": map[string][]string{"proxy-authorization": {"Basic eDp5"}}})
		}, failure{probe.PhaseProxyAuth, "the proxy answered 407: it refused the user name and password", "Correct user name and password"}},
		{"401 of tinyproxy", withLogin("http", says("HTTP/1.1 401 Unauthorized\r\n"+noLength)),
			failure{probe.PhaseProxyAuth, "the proxy answered 401: it refused the user name and password", "Correct user name and password"}},
		{"NTLM", withLogin("http", says("HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM\r\n"+noLength)),
			failure{probe.PhaseProxyAuth, "a login by Negotiate, NTLM", "Ask the proxy's operator for Basic"}},
		{"socks5 without a login", byProxy("socks5", nil, (&proxytest.SOCKS5{Username: "u", Password: "p"}).Handle),
			failure{probe.PhaseProxyAuth, "the proxy wants a user name and password, and proxy-url has none", "Set user name and password in the kubeconfig's proxy-url"}},
		{"socks5 with a wrong login", withLogin("socks5", (&proxytest.SOCKS5{Username: "u", Password: "p"}).Handle),
			failure{probe.PhaseProxyAuth, "the proxy refuses the user name and password", "Correct user name and password"}},
		{"a ticket that ended, by SOCKS5", withLogin("socks5", refusesTicket),
			failure{probe.PhaseProxyAuth, "if it is a tunnel's gateway, the ticket has ended", "Make a new ticket (causeway ticket CLUSTER), or correct user name and password in the kubeconfig's proxy-url"}},
		{"hangs up", byProxy("http", nil, hangsUp),
			failure{probe.PhaseConnect, "the proxy closed the connection without an answer", "rules"}},
	})
}

const adviceTicket = "Make a new ticket"

// gateway407 is the answer of the tunnel's gateway with detail, as HTTP/2 has it: the
// reason is only in the body.
func gateway407(detail string) proxyFunc {
	body := "Proxy Authentication Required: " + detail + "\n"
	return says(fmt.Sprintf("HTTP/1.1 407 No\r\nProxy-Status: causeway; error=http_request_denied\r\nProxy-Authenticate: Basic realm=\"tunnel\"\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
}

// The text of a gateway is foreign: it is bounded, and no line breaks.
func TestProbeGatewayText(t *testing.T) {
	api := newProbed(t, nil)
	config := api.config(t)
	withLogin("http", gateway407("first\rsecond\x1b[31m\x00"+strings.Repeat("x", 3000)))(t, api, config.Clusters["c1"], nil)
	steps := probe.Run(probeContext(t), config).Steps
	cause := steps[len(steps)-1].Cause
	if !strings.Contains(cause, "first second?[31m?xxx") || len(cause) > 700 || strings.ContainsFunc(cause, unicode.IsControl) {
		t.Errorf("got %q, want at most 700 bytes, all printable", cause)
	}
}

const adviceScheme = "Correct the scheme and port in proxy-url"

func TestProbeConnectFails(t *testing.T) {
	http1 := func(status, header string) change {
		return byProxy("http", nil, says("HTTP/1.1 "+status+"\r\n"+header+noLength))
	}
	socks := func(code byte) change {
		return byProxy("socks5", nil, func(_ context.Context, conn net.Conn) {
			io.ReadFull(conn, make([]byte, 3))
			conn.Write([]byte{5, 0})
			conn.Read(make([]byte, 512))
			conn.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
		})
	}
	connect := probe.PhaseConnect
	runProbeTests(t, []probeTest{
		{"squid's rules", http1("403 Forbidden", "X-Squid-Error: ERR_ACCESS_DENIED 0\r\n"), failure{connect, "does not allow CONNECT to 127.0.0.1:", "(squid: acl SSL_ports port "}},
		{"a block page", http1("403 Forbidden", "Content-Type: text/html\r\n"), failure{connect, "(with a web page)", "Allow CONNECT to 127.0.0.1:"}},
		{"no CONNECT", http1("405 Method Not Allowed", ""), failure{connect, "does not do CONNECT", "Point proxy-url to a forward proxy"}},
		{"a web server", http1("400 Bad Request", ""), failure{connect, "does not do CONNECT", "Point proxy-url to a forward proxy"}},
		{"our SOCKS5 door", http1("400 Bad Request: this is a SOCKS5 proxy", ""), failure{connect, "this is a SOCKS5 proxy", "Write socks5:// in place of http://"}},
		{"a portal", http1("302 Found", "Location: https://login.test/\r\n"), failure{connect, "sends elsewhere", "log in"}},
		{"too many", http1("429 Too Many Requests", ""), failure{connect, "limits its clients", "Wait"}},
		{"too many of all", http1("503 limit", "Proxy-Status: causeway; error=connection_limit_reached\r\n"), failure{connect, "limits its clients", "--limits"}},
		{"squid finds no name", http1("503 Service Unavailable", "X-Squid-Error: ERR_DNS_FAIL 0\r\n"), failure{connect, "the proxy finds no address", "mend the proxy's DNS"}},
		{"squid is refused", http1("503 Service Unavailable", "X-Squid-Error: ERR_CONNECT_FAIL 111\r\n"), failure{connect, "the proxy reaches nothing at", "Correct host and port in server"}},
		{"bad gateway", http1("502 Bad Gateway", ""), failure{connect, "the proxy can't reach 127.0.0.1:", "from the proxy's host"}},
		{"no agent", http1("503 no agent", "Proxy-Status: causeway; error=destination_unavailable; details=\"no agent is connected\"\r\n"),
			failure{connect, "the tunnel's gateway has no way into the cluster", "Start the tunnel's agent"}},
		{"gateway's policy", http1("403 no", "Proxy-Status: causeway; error=destination_ip_prohibited\r\n"), failure{connect, "the tunnel does not allow", "to --allow of causeway-agent"}},
		{"gateway, another cluster's ticket", http1("403 no", "Proxy-Status: causeway; error=http_request_denied\r\n"), failure{connect, "does not let it in", "causeway ticket CLUSTER"}},
		{"gateway, the target refuses", http1("502 no", "Proxy-Status: causeway; error=connection_refused\r\n"), failure{connect, "the tunnel's agent is connected, and does not reach 127.0.0.1:", "from the agent's host"}},
		{"gateway, no such name", http1("502 no", "Proxy-Status: causeway; error=dns_error\r\n"), failure{connect, "the tunnel's agent is connected, and does not reach", "from the agent's host"}},
		{"RFC 9209", http1("504 Gateway Timeout", "Proxy-Status: a; error=dns_error, b; details=\"x, \\\"c; error=connection_refused\"; error=connection_timeout\r\n"), failure{connect, "the proxy gets no answer", "Open the firewall from the proxy"}},
		{"teapot", http1("418 I'm a teapot", ""), failure{connect, "418", "Ask the proxy's operator"}},
		{"socks5: general", socks(1), failure{connect, "the proxy can't reach", "from the proxy's host"}},
		{"socks5: rules", socks(2), failure{connect, "does not allow connections to 127.0.0.1:", "in the proxy's rules"}},
		{"socks5: network", socks(3), failure{connect, "the proxy has no route", "start the tunnel's agent"}},
		{"socks5: host", socks(4), failure{connect, "the proxy has no route", "a proxy in the cluster's network"}},
		{"socks5: refused", socks(5), failure{connect, "the proxy reaches nothing", "Correct host and port in server"}},
		{"socks5: TTL", socks(6), failure{connect, "the proxy gets no answer", "Open the firewall"}},
		{"socks5: command", socks(7), failure{connect, "command not supported", "Use another proxy"}},
		{"socks5: a name", func(t *testing.T, a *probed, c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			socks(4)(t, a, c, u)
			c.Server = "https://api.test:6443"
		}, failure{connect, "or finds no address for its name", "mend the proxy's DNS"}},
	})
}

// A gateway that does not understand the request is no failure of its tunnel.
func TestStepTunnel(t *testing.T) {
	for _, tt := range []struct {
		status, kind string
		want         bool
	}{
		{"503 Service Unavailable: no agent", "destination_unavailable", true},
		{"400 Bad Request: this door speaks TLS", "http_request_error", false},
	} {
		api := newProbed(t, nil)
		config := api.config(t)
		byProxy("http", nil, says("HTTP/1.1 "+tt.status+"\r\nProxy-Status: causeway; error="+tt.kind+"\r\n"+noLength))(t, api, config.Clusters["c1"], nil)
		r := probe.Run(probeContext(t), config)
		if got := r.Failed(); got == nil || got.Phase != probe.PhaseConnect || got.Tunnel != tt.want {
			t.Errorf("%s: got %+v, want Tunnel %v", tt.status, got, tt.want)
		}
	}
}

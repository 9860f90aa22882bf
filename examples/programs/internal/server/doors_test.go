package server

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/internal/test/pki"
)

// command runs a command beside the server, and returns what it prints.
func output(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), args, strings.NewReader(stdin), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

// through dials api:443 through a proxy and has a word sent back.
func through(t testing.TB, proxy string, config *tls.Config) error {
	t.Helper()
	u, err := dialer.ParseURL(proxy)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dialer.FromURL(u, &dialer.Options{TLSConfig: config})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.DialContext(t.Context(), "tcp", "api:443")
	if err != nil {
		return err
	}
	defer conn.Close()
	say(t, conn, "hello")
	return nil
}

func with(user *url.Userinfo, proxy string) string {
	u, _ := url.Parse(proxy)
	u.User = user
	return u.String()
}

// TestDoors: a client with a ticket or a certificate gets through, and no other.
func TestDoors(t *testing.T) {
	dir := t.TempDir()
	ca := pki.NewCA("doors")
	for name, pair := range map[string]tls.Certificate{"door": ca.Server("127.0.0.1"), "client": ca.Client(cluster)} {
		cert, key := pki.PEM(pair)
		for ext, data := range map[string][]byte{".crt": cert, ".key": key} {
			if err := os.WriteFile(filepath.Join(dir, name+ext), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startServer(t, dir, "--connect", "127.0.0.1:0",
		"--connect-tls", "127.0.0.1:0", "--door-cert", filepath.Join(dir, "door.crt"), "--door-key", filepath.Join(dir, "door.key"),
		"--door-client-ca", filepath.Join(dir, "ca.crt"))
	inv := newInvitation(t, dir, "--server", address(p, "listen"))
	receive(t, "agent", startAgent(t, inv, echo(t), nil).connected)
	plain, secure := "http://"+address(p, "connect"), "https://"+address(p, "connect-tls")
	ticket := output(t, "", "ticket", cluster, "--state", dir, "--gateway", plain)
	parsed, err := url.Parse(ticket)
	if err != nil {
		t.Fatal(err)
	}
	other, err := url.Parse(output(t, "", "ticket", "default/other", "--state", dir, "--gateway", plain))
	if err != nil {
		t.Fatal(err)
	}
	bare := &tls.Config{RootCAs: ca.Pool()}
	shown := &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Client(cluster)}}
	stranger := &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Client("default/other")}}
	for _, tt := range []struct {
		name, proxy string
		config      *tls.Config
		want        int // status; zero is success
	}{
		{"ticket", ticket, nil, 0},
		{"no ticket", plain, nil, 407},
		{"another cluster's ticket", with(other.User, plain), nil, 503},
		{"TLS, ticket", with(parsed.User, secure), bare, 0},
		{"TLS, certificate", secure, shown, 0},
		{"TLS, another cluster's certificate", secure, stranger, 503},
		{"TLS, nobody's certificate", secure, &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Client("")}}, 407},
		{"TLS, nothing", secure, bare, 407},
	} {
		var refusal *dialer.Refusal
		switch err := through(t, tt.proxy, tt.config); {
		case tt.want == 0 && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != 0 && (!errors.As(err, &refusal) || refusal.StatusCode != tt.want):
			t.Errorf("%s: got %v, want %d", tt.name, err, tt.want)
		}
	}
	clitest.CheckMetrics(t, "http://"+address(p, "status")+"/metrics",
		`causeway_tunnel_cluster_sessions{cluster="default/prod"} 1`, `causeway_tunnel_enrollments_total 1`,
		`causeway_tunnel_dials_total{code="no_agent"} 2`, "causeway_tunnel_authority_expiry_timestamp_seconds ",
		`causeway_certificate_expiry_timestamp_seconds{listener="connect-tls"} `,
		`causeway_gateway_failures_total{door="connect",listener="connect",phase="authenticate",side=""} 1`,
		`causeway_gateway_failures_total{door="connect",listener="connect-tls",phase="authenticate",side=""} 2`,
		`causeway_gateway_handshakes{listener="connect",state="waiting"} 0`,
		`causeway_gateway_dial_duration_seconds_count{door="connect",listener="connect-tls",result="ok"} 2`)
	second := output(t, "", "ticket", cluster, "--state", dir, "--gateway", plain)
	name := strings.SplitN(second, ":", 3)[1][len("//"):]
	if said, want := output(t, second, "ticket", "--revoke", "--state", dir), "the ticket of "+name+" for "+cluster+" is revoked"; !strings.Contains(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
	deadline := time.Now().Add(20 * time.Second)
	for err = nil; err == nil; err = through(t, second, nil) {
		if time.Now().After(deadline) {
			t.Fatal("the ticket that was revoked is still good")
		}
	}
	if !strings.Contains(err.Error(), "the ticket was revoked; make a new one with: causeway ticket "+cluster) {
		t.Errorf("got %v of a ticket that was revoked", err)
	}
	if err := through(t, ticket, nil); err != nil {
		t.Errorf("the ticket that was not revoked: %v", err)
	}
	output(t, "", "ticket", "--revoke-all", "--state", dir)
	for err = nil; err == nil; err = through(t, ticket, nil) {
		if time.Now().After(deadline) {
			t.Fatal("the ticket is still good")
		}
	}
	if want := "the ticket was revoked; make a new one with: causeway ticket " + cluster; !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	again := output(t, "", "ticket", cluster, "--state", dir, "--gateway", plain)
	for err = through(t, again, nil); err != nil; err = through(t, again, nil) {
		if time.Now().After(deadline) {
			t.Fatalf("a ticket of the new key is refused: %v", err)
		}
	}
	output(t, "", "revoke", cluster, "--all", "--state", dir)
	p.Await(`msg=disconnected .*revoked`)
	// Not by a 407 in the text: the door's port may have one, too.
	var refusal *dialer.Refusal
	if err := through(t, again, nil); !errors.As(err, &refusal) || refusal.StatusCode != 407 || !strings.Contains(err.Error(), "the ticket was revoked") {
		t.Errorf("got %v of a ticket from before the cluster's revocation, want that it was revoked", err)
	}
	later := output(t, "", "ticket", cluster, "--state", dir, "--gateway", plain)
	if err := through(t, later, nil); !errors.As(err, &refusal) || refusal.StatusCode != 503 {
		t.Errorf("got %v of a ticket from after the revocation, want 503: it counts, and there is no agent", err)
	}
}

// What kubeconfig prints leads to the same cluster and user by the gateway.
func TestKubeconfigCommand(t *testing.T) {
	const given = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443", certificate-authority-data: Y2E=}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`
	out := output(t, given, "kubeconfig", cluster, "--state", newState(t), "--gateway", "http://127.0.0.1:3128", "--user", "me")
	config, err := clientcmd.Load([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	c := config.Clusters["c"]
	u, err := url.Parse(c.ProxyURL)
	if err != nil {
		t.Fatal(err)
	}
	if password, _ := u.User.Password(); u.Host != "127.0.0.1:3128" || u.User.Username() != "me" || password == "" {
		t.Errorf("got proxy-url %q", c.ProxyURL)
	}
	if c.Server != "https://kubernetes.default.svc:443" || string(c.CertificateAuthorityData) != "ca" || config.AuthInfos["u"].Token != "t" {
		t.Errorf("got %s", out)
	}
	in := strings.NewReader(strings.Replace(given, ":6443", ":6443/k8s/clusters/c-1", 1))
	err = run(t.Context(), []string{"kubeconfig", cluster, "--state", newState(t), "--gateway", "http://127.0.0.1:3128"}, in, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `server has the path "/k8s/clusters/c-1"`) {
		t.Errorf("got %v of a server with a path, want it refused", err)
	}
}

// Who asked in vain is in the status, on the page and in the log: by name with a ticket, by
// address at --forward.
func TestWhoAskedInVain(t *testing.T) {
	dir := t.TempDir()
	p := startServer(t, dir, "--connect", "127.0.0.1:0")
	ticket := output(t, "", "ticket", "default/never", "--state", dir, "--gateway", "http://"+address(p, "connect"), "--user", "ann")
	if err := through(t, ticket, nil); err == nil {
		t.Fatal("got a connection")
	}
	p.Await(`door=connect client=ann cluster=default/never target=api:443 phase=dial .* side=tunnel`)
	conn, err := net.Dial("tcp", address(p, "forward"))
	for errors.Is(err, syscall.ECONNRESET) { // the server was quicker than Dial
		conn, err = net.Dial("tcp", address(p, "forward"))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.Copy(io.Discard, conn)
	page := "http://" + address(p, "status")
	for _, path := range []string{"/", "/status", "/metrics", "/readyz?cluster=default/prod"} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, page+path, nil)
		r.Host = "evil.test"
		if res, err := http.DefaultClient.Do(r); err != nil {
			t.Error(err)
		} else if res.Body.Close(); res.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s: got %d by another name, want 421", path, res.StatusCode)
		}
	}
	for path, wants := range map[string][]string{
		"/status":                       {`"caller": "ann"`, `"caller": "127.0.0.1"`, `"side": "tunnel"`},
		"/?q=":                          {"no agent is connected", "<small>causeway "},
		"/live?cluster=default%2Fnever": {`data-label="Who asked">ann<`},
	} {
		for _, want := range wants {
			awaitBody(t, page+path, want)
		}
	}
}

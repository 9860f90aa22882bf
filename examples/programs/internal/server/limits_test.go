//go:build unix

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

func writeFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil { // the server may be reading
		t.Fatal(err)
	}
	return path
}

// dialThrough dials api:443 through a proxy.
func dialThrough(t testing.TB, proxy string) (net.Conn, error) {
	t.Helper()
	u, err := dialer.ParseURL(proxy)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dialer.FromURL(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.DialContext(t.Context(), "tcp", "api:443")
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// The file's limits count at the doors and at --forward, what is wrong in a new one
// changes nothing, and a client learns why.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, t.TempDir(), "limits.yaml", "client: {connections: 1}")
	p := startServer(t, dir, "--connect", "127.0.0.1:0", "--limits", file)
	receive(t, "agent", startAgent(t, newInvitation(t, dir, "--server", address(p, "listen")), echo(t), nil).connected)
	ticket := output(t, "", "ticket", cluster, "--state", dir, "--user", "ann", "--gateway", "http://"+address(p, "connect"))
	other := output(t, "", "ticket", cluster, "--state", dir, "--user", "bob", "--gateway", "http://"+address(p, "connect"))
	conn, err := dialThrough(t, ticket)
	if err != nil {
		t.Fatal(err)
	}
	_, err = dialThrough(t, ticket)
	if e, ok := errors.AsType[*dialer.Refusal](err); !ok || e.StatusCode != 429 || !strings.Contains(err.Error(), `client "ann": connections: at most 1`) {
		t.Errorf("got %v, want 429 and why", err)
	}
	p.Await(`msg="door failed".*client=ann.*phase=limit.*limit: client`)
	if _, err := dialThrough(t, other); err != nil {
		t.Errorf("another client: %v", err)
	}
	say(t, conn, "hello")

	writeFile(t, filepath.Dir(file), "limits.yaml", "clients: {ann: {bytesPerDay: 2Gi}}")
	p.Await(`level=WARN msg="limits: those before stay" error=.*bytesPerDay.*want connections, dialsPerSecond or bytesPerSecond`)
	if _, err := dialThrough(t, ticket); err == nil {
		t.Error("a file with a mistake has taken the limits away")
	}
	writeFile(t, filepath.Dir(file), "limits.yaml", "clients: {ann: {connections: 2}}\nclusters: {"+cluster+": {connections: 3}, DEFAULT/prod: {}, default/dev: {}}")
	p.Await(`level=WARN msg="limits: no agent was invited" cluster="DEFAULT/prod, default/dev"`)
	p.Await(`level=INFO msg=limits file=` + file)
	if _, err := dialThrough(t, ticket); err != nil {
		t.Errorf("the second connection: %v", err)
	}
	if forwarded, err := net.Dial("tcp", address(p, "forward")); err == nil { // else the server was quicker than Dial
		defer forwarded.Close()
		if _, err := forwarded.Read(make([]byte, 1)); err == nil {
			t.Error("--forward leads to a cluster with three connections")
		}
	}
	p.Await(`door=forward .*phase=limit .*limit: cluster`)
	clitest.CheckMetrics(t, "http://"+address(p, "status")+"/metrics",
		`causeway_limit_refusals_total{kind="client",limit="connections"} 2`, `causeway_limit_refusals_total{kind="cluster",limit="connections"} 1`,
		`causeway_limit_wait_seconds_total{kind="total"} 0`)
}

func TestLimitsMistake(t *testing.T) {
	file := writeFile(t, t.TempDir(), "limits.yaml", "client: {connections: -1}")
	for path, want := range map[string]string{file: "client.connections: got \"-1\", want a whole number, 1 to 1000000000", file + ".none": "no such file"} {
		err := run(t.Context(), []string{"--state", t.TempDir(), "--limits", path}, nil, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "--limits: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// SIGHUP has the files read at once.
func TestHangup(t *testing.T) {
	file := writeFile(t, t.TempDir(), "limits.yaml", "{}")
	p := startServer(t, t.TempDir(), "--limits", file, "--watch", "1h")
	address(p, "listen")
	writeFile(t, filepath.Dir(file), "limits.yaml", "total: {connections: 5}")
	p.HangUpUntil("msg=limits file=")
}

// The files of a door are followed; what can't be used changes nothing.
func TestDoorFilesAreFollowed(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	first, second := pki.NewCA("first"), pki.NewCA("second")
	write := func(ca *pki.CA) {
		cert, key := pki.PEM(ca.Server("127.0.0.1"))
		writeFile(t, files, "door.key", string(key)) // in between, the two don't match
		writeFile(t, files, "door.crt", string(cert))
		writeFile(t, files, "ca.crt", string(ca.CertPEM()))
	}
	write(first)
	p := startServer(t, dir, "--connect-tls", "127.0.0.1:0", "--door-cert", filepath.Join(files, "door.crt"),
		"--door-key", filepath.Join(files, "door.key"), "--door-client-ca", filepath.Join(files, "ca.crt"))
	receive(t, "agent", startAgent(t, newInvitation(t, dir, "--server", address(p, "listen")), echo(t), nil).connected)
	door := "https://" + address(p, "connect-tls")
	dial := func(ca *pki.CA) error {
		return through(t, door, &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Client(cluster)}})
	}
	if err := dial(first); err != nil {
		t.Fatal(err)
	}
	writeFile(t, files, "door.crt", "nonsense")
	writeFile(t, files, "ca.crt", "nonsense")
	if err := dial(first); err != nil {
		t.Errorf("with files that can't be used: %v", err)
	}
	p.Await(`level=WARN msg="certificate: the one before stays" for=connect-tls error="tls: failed to find any PEM data`)
	p.Await(`level=WARN msg="client authorities: those before stay" error="--door-client-ca: there is no certificate in it"`)
	for _, name := range []string{"ca.crt", "door.crt"} {
		if err := errors.Join(os.Remove(filepath.Join(files, name)), syscall.Mkfifo(filepath.Join(files, name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	p.Await(`level=WARN msg="client authorities: those before stay" error=.*ca.crt is no file`)
	if err := dial(first); err != nil {
		t.Errorf("with a pipe: %v", err)
	}
	if err := errors.Join(os.Remove(filepath.Join(files, "ca.crt")), os.Remove(filepath.Join(files, "door.crt"))); err != nil {
		t.Fatal(err)
	}
	old := newStreams(t, door, &tls.Config{RootCAs: first.Pool(), Certificates: []tls.Certificate{first.Client(cluster)}})
	if status := old.connect(t); status != 200 {
		t.Errorf("got %d on a connection of HTTP/2", status)
	}
	write(second)
	p.Await(`level=INFO msg="certificate renewed" for=connect-tls until=20`)
	p.Await(`msg="client authorities" file=`)
	if status := old.connect(t); status != 407 {
		t.Errorf("got %d on a connection of HTTP/2 whose authority counts no more, want 407", status)
	}
	if err := dial(second); err != nil {
		t.Errorf("with the next files: %v", err)
	}
	if err := dial(first); err == nil {
		t.Error("the first authority still counts")
	}
	yesterday := time.Now().AddDate(0, 0, -1)
	cert, key := pki.PEM(second.ClientFor("door", yesterday.AddDate(0, 0, -1), yesterday))
	writeFile(t, files, "door.key", string(key))
	writeFile(t, files, "door.crt", string(cert))
	p.Await(`level=WARN msg="certificate renewed, by one that has expired" for=connect-tls until=` + yesterday.UTC().Format("2006-01-02"))
	if err := dial(second); err == nil {
		t.Error("the client takes a certificate that has expired")
	}
	for _, want := range []string{"The certificate of --connect-tls has expired, on ", "Client of --connect-tls: handshake"} {
		awaitBody(t, "http://"+address(p, "status")+"/", want)
	}
}

// streams is a client's connection of HTTP/2.
type streams struct{ *http.ClientConn }

func newStreams(t *testing.T, door string, config *tls.Config) streams {
	u, err := url.Parse(door)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(true)
	conn, err := transport.NewClientConn(t.Context(), "https", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return streams{conn}
}

// connect returns the answer's status.
func (s streams) connect(t *testing.T) int {
	in, out := io.Pipe()
	defer out.Close()
	answer, err := s.RoundTrip((&http.Request{Method: http.MethodConnect, URL: &url.URL{Host: "api:443"}, Host: "api:443", Header: http.Header{}, Body: in, ContentLength: -1}).WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// Tickets that nobody has named are clients of their own.
func TestTicketsAreClients(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, t.TempDir(), "limits.yaml", "client: {connections: 1}")
	p := startServer(t, dir, "--connect", "127.0.0.1:0", "--limits", file)
	receive(t, "agent", startAgent(t, newInvitation(t, dir, "--server", address(p, "listen")), echo(t), nil).connected)
	const given = "{contexts: [{name: x, context: {cluster: c}}], current-context: x, clusters: [{name: c, cluster: {server: https://x}}]}"
	gateway := []string{cluster, "--state", dir, "--gateway", "http://" + address(p, "connect")}
	ticket := func(more ...string) string {
		return output(t, "", append(append([]string{"ticket"}, gateway...), more...)...)
	}
	config, err := clientcmd.Load([]byte(output(t, given, append([]string{"kubeconfig"}, gateway...)...)))
	if err != nil {
		t.Fatal(err)
	}
	for _, proxy := range []string{ticket(), ticket(), config.Clusters["c"].ProxyURL} {
		if _, err := dialThrough(t, proxy); err != nil {
			t.Errorf("the first connection of %s: %v", strings.SplitN(proxy, ":", 3)[1], err)
		}
		_, err := dialThrough(t, proxy)
		if err == nil || !strings.Contains(err.Error(), `limit: client "ticket-`) {
			t.Errorf("the second connection: got %v", err)
		}
	}
	if _, err := dialThrough(t, ticket("--user", "ann")); err != nil {
		t.Error(err)
	}
	if _, err := dialThrough(t, ticket("--user", "ann")); err == nil || !strings.Contains(err.Error(), `client "ann"`) {
		t.Errorf("a second ticket of ann: got %v", err)
	}
}

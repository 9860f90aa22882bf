package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel/egress"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bench is a gateway, a target behind it, and a sidecar.
type bench struct {
	t           *testing.T
	target      string
	address     string // the gateway's
	scheme      string
	tickets     gateway.Tickets
	credentials string
	dir         string
	log         bytes.Buffer
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, scheme: "http://", credentials: t.TempDir(), dir: t.TempDir()}
	l := listen(t, "127.0.0.1:0")
	s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) { io.Copy(conn, conn) })
	t.Cleanup(s.Close)
	b.target, b.address = s.Addr(), "127.0.0.1:0"
	return b
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// runUntilEnd runs a function until the test's end, or until stop is called.
func runUntilEnd(t *testing.T, run func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

func (b *bench) newGateway() *gateway.Gateway {
	return &gateway.Gateway{Grace: -1, Authenticate: b.tickets.Authenticate, Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		if r.Cluster != "default/prod" {
			b.t.Errorf("got the cluster %q", r.Cluster)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", b.target)
	}}
}

func (b *bench) serveGateway(g *gateway.Gateway) (stop func()) {
	b.t.Helper()
	l := listen(b.t, b.address)
	b.address = l.Addr().String()
	return runUntilEnd(b.t, func(ctx context.Context) error { return g.ServeConnect(ctx, l) })
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.credentials, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) writeTicket() {
	b.t.Helper()
	user, password, err := b.tickets.Issue(gateway.Identity{Name: "kube-apiserver", Cluster: "default/prod"}, time.Hour)
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("username", user)
	b.write("password", password+"\n")
}

// serve runs the sidecar's command until it listens.
func (b *bench) serve() (stop func()) {
	b.t.Helper()
	cmd := serveCommand()
	cmd.SetArgs([]string{"default/prod", "--gateway", b.scheme + b.address, "--credentials", b.credentials, "--dir", b.dir})
	cmd.SetErr(&b.log)
	stop = runUntilEnd(b.t, cmd.ExecuteContext)
	for checkListens(b.t.Context(), b.dir) != nil {
		time.Sleep(time.Millisecond) // as a startup probe does
	}
	return stop
}

// dial goes the way that the written configuration names.
func (b *bench) dial() error {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, egress.ConfigName))
	if err != nil {
		return err
	}
	socket := filepath.Join(b.dir, egress.SocketName)
	if want, err := egress.Configuration(socket); err != nil || !bytes.Equal(text, want) {
		b.t.Errorf("got the configuration %s, want %s (%v)", text, want, err)
	}
	d := &dialer.HTTPConnect{Addr: "unix:" + socket}
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", "192.0.2.10:10250")
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 5))
	return err
}

func (b *bench) wantStatus(want int) {
	b.t.Helper()
	err := b.dial()
	var failed *dialer.Error
	if errors.As(err, &failed); failed == nil || failed.Status != want {
		b.t.Errorf("got %v, want status %d", err, want)
	}
}

// Credentials are read anew for each connection, and a stale socket is replaced.
func TestServe(t *testing.T) {
	b := newBench(t)
	b.serveGateway(b.newGateway())
	stop := b.serve()
	b.wantStatus(502) // no credentials
	b.write("password", "wrong")
	b.wantStatus(502)
	b.writeTicket()
	if err := b.dial(); err != nil {
		t.Error(err)
	}
	socket := filepath.Join(b.dir, egress.SocketName)
	if info, err := os.Stat(socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("got %v, %v; want a socket with mode 0600", info, err)
	}
	stop() // the socket stays, as after a kill
	if _, err := os.Stat(socket); err != nil {
		t.Error(err)
	}
	if err := checkListens(t.Context(), b.dir); err == nil {
		t.Error("got no error of a socket that nobody serves")
	}
	stop = b.serve()
	if err := b.dial(); err != nil {
		t.Error(err)
	}
	stop()
	if log := b.log.String(); strings.Contains(log, "password=") || !strings.Contains(log, "407") {
		t.Errorf("got the log %s", log)
	}
}

// The address of --health has metrics of what kube-apiserver asked for.
func TestServeHealth(t *testing.T) {
	b := newBench(t)
	b.serveGateway(b.newGateway())
	p := clitest.Start(t, func(ctx context.Context, args []string, _ io.Reader, _, stderr io.Writer) error {
		cmd := serveCommand()
		cmd.SetArgs(args)
		cmd.SetErr(stderr)
		return cmd.ExecuteContext(ctx)
	}, nil, "default/prod", "--gateway", b.scheme+b.address, "--credentials", b.credentials, "--dir", b.dir, "--health", "127.0.0.1:0")
	page := "http://" + p.Await(`for=health address=(\S+)`)
	b.wantStatus(502) // no credentials
	b.writeTicket()
	if err := b.dial(); err != nil {
		t.Error(err)
	}
	if status, _ := clitest.Get(t, page+"/healthz"); status != 200 {
		t.Errorf("got status %d of /healthz", status)
	}
	clitest.CheckMetrics(t, page+"/metrics", `causeway_gateway_dial_duration_seconds_count{door="connect",result="ok"} 1`,
		`causeway_gateway_failures_total{door="connect",phase="dial",side=""} 1`, "causeway_gateway_ready 1")
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestServeCertificate(t *testing.T) {
	b, ca := newBench(t), pki.NewCA("gateway")
	g := b.newGateway()
	g.TLS, g.Authenticate = serverConfig(ca), func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
		if len(c.Certificates) == 0 {
			return gateway.Identity{}, gateway.ErrCredentials
		}
		return gateway.Identity{Name: "x", Cluster: c.Certificates[0].Subject.CommonName}, nil
	}
	b.serveGateway(g)
	b.scheme = "https://"
	b.serve()
	b.wantStatus(502)
	cert, key := pki.PEM(ca.Client("default/prod"))
	b.write("tls.crt", string(cert))
	b.write("tls.key", string(key))
	b.wantStatus(502) // the authority is unknown
	b.write("ca.crt", string(ca.CertPEM()))
	if err := b.dial(); err != nil {
		t.Error(err)
	}
}

// A gateway that is away for a moment costs no connection.
func TestServeRedials(t *testing.T) {
	b := newBench(t)
	b.writeTicket()
	stop := b.serveGateway(b.newGateway())
	b.serve()
	stop()
	away := listen(t, b.address)
	dialed := make(chan error, 1)
	go func() { dialed <- b.dial() }()
	for range 2 {
		conn, err := away.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	away.Close()
	b.serveGateway(b.newGateway())
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

// The ways to a target are compared by what serves there.
func TestCompareWays(t *testing.T) {
	b, ca := newBench(t), pki.NewCA("targets")
	one, other := tlsTarget(t, ca), tlsTarget(t, ca)
	closed := listen(t, "127.0.0.1:0")
	closed.Close()
	b.writeTicket()
	g := b.newGateway()
	g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		if r.Address == other {
			r.Address = one // another cluster has the same addresses
		}
		return new(net.Dialer).DialContext(ctx, "tcp", r.Address)
	}
	b.serveGateway(g)
	b.serve()
	got := compareWays(t.Context(), b.dir, []string{one, other, closed.Addr().String()})
	r := report{from: egress.PhaseBeside, to: egress.PhaseOn, ways: byAddress(got), targets: []target{{"kubelet", "a", one}, {"webhook", "b", other}}}
	if got[0].Direct.Certificate == "" || got[0].Direct.Certificate != got[0].Tunnel.Certificate {
		t.Errorf("got %+v, want one certificate", got[0])
	}
	if failures := r.failuresBefore(); len(failures) != 1 || !strings.Contains(failures[0], "webhook b ("+other+"): the two ways lead to different servers") {
		t.Errorf("got %q, want that webhook b differs", failures)
	}
	if got[2].Direct.Error == "" || got[2].Tunnel.Error == "" {
		t.Errorf("got %+v, want two errors", got[2])
	}
}

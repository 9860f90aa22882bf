package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

func TestMain(m *testing.M) {
	// What the machine has set must not matter.
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"} {
		os.Unsetenv(name)
	}
	goleak.VerifyTestMain(m)
}

func run(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) error {
	return Run(ctx, args, stdout, stderr)
}

// newServer returns a Server and an address where it takes agents.
func newServer(t *testing.T) (*tunnel.Server, string) { return startServer(t, &tunnel.Server{}) }

func startServer(t *testing.T, server *tunnel.Server) (*tunnel.Server, string) {
	t.Helper()
	authority, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	server.Authority = authority
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return server, l.Addr().String()
}

func invite(t *testing.T, server *tunnel.Server, address string) tunnel.Invitation {
	t.Helper()
	inv, err := server.Invite(t.Context(), "default/prod", 0)
	if err != nil {
		t.Fatal(err)
	}
	inv.Servers = []string{address}
	return inv
}

func invitationFile(t *testing.T, inv tunnel.Invitation) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "invitation.env")
	if err := os.WriteFile(file, []byte(inv.Reveal()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// echo is a target; it says its name first.
func echo(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) {
		io.WriteString(conn, name)
		io.Copy(conn, conn)
	})
	t.Cleanup(s.Close)
	return s.Addr()
}

// greeting dials a target, and returns what it says first.
func greeting(t *testing.T, server *tunnel.Server, target string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := server.Dialer("default/prod").DialContext(ctx, "tcp", target)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	text := make([]byte, len("target"))
	_, err = io.ReadFull(conn, text)
	return string(text), err
}

func TestAgent(t *testing.T) {
	server, address := newServer(t)
	target := echo(t, "target")
	keys := filepath.Join(t.TempDir(), "authorized_keys")
	state := t.TempDir()
	args := []string{"--invitation", invitationFile(t, invite(t, server, address)), "--state", state, "--status", "127.0.0.1:0",
		"--allow", target + ",127.0.0.1:1", "--alias", "api:443=" + target, "--authorized-keys", keys}
	p := clitest.Start(t, run, nil, args...)
	p.Await(`msg=connected server=\S+ cluster=default/prod`)
	for _, name := range []string{target, "api:443"} {
		if got, err := greeting(t, server, name); got != "target" || err != nil {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	var e *tunnel.Error
	if _, err := greeting(t, server, "127.0.0.1:2"); !errors.As(err, &e) || e.Code != tunnel.CodeDenied {
		t.Errorf("got %v, want it denied", err)
	}
	if _, err := greeting(t, server, "127.0.0.1:1"); !errors.As(err, &e) || e.Code != tunnel.CodeRefused {
		t.Errorf("got %v, want it refused", err)
	}
	p.Await(`msg="dial failed" .*refused`)
	clitest.CheckMetrics(t, "http://"+p.Await(`for=status address=(\S+)`)+"/metrics", `causeway_agent_sessions{state="active"} 1`,
		`causeway_agent_dials_total{code="ok"} 2`, `causeway_agent_dials_total{code="denied"} 1`, "causeway_agent_certificate_expiry_timestamp_seconds ")
	if err := server.Push(t.Context(), "default/prod", tunnel.Payload{Name: "authorized_keys", Data: []byte(key1)}); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(keys); string(got) != beginMark+key1+"\n"+endMark {
		t.Errorf("got keys %q, %v", got, err)
	}
	if err := server.Push(t.Context(), "default/prod", tunnel.Payload{Name: "authorized_keys", Data: []byte("no key")}); err == nil {
		t.Error("got no error of a line that is no key")
	}
	p.Await(`level=WARN msg="payload refused" name=authorized_keys error="a line is not an SSH public key`)
	page := p.Await(`for=status address=(\S+)`)
	if got, _ := clitest.Get(t, "http://"+page+"/readyz"); got != http.StatusOK {
		t.Errorf("got %d from /readyz, want 200", got)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("got %v at the end", err)
	}
	// The second time the certificate is there, and the token spent.
	args[1] = filepath.Join(t.TempDir(), "none")
	p = clitest.Start(t, run, nil, append(args, "--server", address)...)
	p.Await(`msg=connected`)
	if err := p.Stop(); err != nil || strings.Contains(p.Text(), "msg=enrolled") {
		t.Errorf("got %v and\n%s, want no enrolment", err, p.Text())
	}
}

// The invitation is in the environment, and the agent was told nothing else.
func TestAgentEnvironment(t *testing.T) {
	server, address := newServer(t)
	for line := range strings.Lines(invite(t, server, address).Reveal()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		t.Setenv(name, value)
	}
	t.Setenv("CAUSEWAY_OTHER", "of another\nprogram")
	t.Setenv("TUNNEL_AGENT_STATE", t.TempDir())
	t.Setenv("TUNNEL_AGENT_STATUS", "")
	p := clitest.Start(t, run, nil)
	p.Await(`msg=connected`)
	if _, err := greeting(t, server, "127.0.0.1:443"); err == nil {
		t.Error("an agent without --allow dialed a loopback address")
	}
}

// A corporate proxy with a password is the only way out.
func TestAgentThroughProxy(t *testing.T) {
	for _, tt := range []struct {
		name  string
		proxy func(t *testing.T, url string) (args []string, line string)
	}{
		{"flag", func(_ *testing.T, url string) ([]string, string) { return []string{"--proxy", url}, "" }},
		{"environment", func(t *testing.T, url string) ([]string, string) { t.Setenv("HTTPS_PROXY", url); return nil, "" }},
		{"invitation", func(t *testing.T, url string) ([]string, string) {
			t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // of others
			return nil, "export CAUSEWAY_PROXY='" + url + "'\n"
		}},
		{"flag before invitation", func(_ *testing.T, url string) ([]string, string) {
			return []string{"--proxy", url, "--no-proxy", "other.example"}, "CAUSEWAY_PROXY=http://127.0.0.1:1\n"
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, address := newServer(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			const name = "tunnel.example:8443" // only the proxy knows it
			handler := &proxytest.HTTP{Username: "user", Password: "p@ss", Dial: func(ctx context.Context, network, target string) (net.Conn, error) {
				if target != name {
					return nil, errors.New("no such host")
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			}}
			proxy := proxytest.Serve(l, handler.Handle)
			t.Cleanup(proxy.Close)
			args, line := tt.proxy(t, "http://user:p%40ss@"+proxy.Addr())
			file := filepath.Join(t.TempDir(), "invitation.env")
			if err := os.WriteFile(file, []byte(invite(t, server, name).Reveal()+line), 0o600); err != nil {
				t.Fatal(err)
			}
			p := clitest.Start(t, run, nil, append(args, "--invitation", file, "--state", t.TempDir(), "--status", "")...)
			p.Await(`msg=connected server=` + name)
			if strings.Contains(p.Text(), "p%40ss") || strings.Contains(p.Text(), "p@ss") {
				t.Error("the log shows the password")
			}
		})
	}
}

func TestFlags(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	f := flags{proxy: "direct"}
	if d, err := f.newDialer(slog.New(slog.DiscardHandler)); d != (dialer.Direct{}) || err != nil {
		t.Errorf("got %T, %v for --proxy direct", d, err)
	}
	for grace, want := range map[time.Duration]time.Duration{0: -1, time.Second: time.Second} {
		f.grace = grace
		if a, err := f.newAgent(&logs.Sampler{Log: slog.New(slog.DiscardHandler)}); err != nil || a.Grace != want {
			t.Errorf("got %v, %v for --grace %v; want %v", a.Grace, err, grace, want)
		}
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if err := Run(t.Context(), []string{"version"}, &out, io.Discard); err != nil || !strings.HasPrefix(out.String(), "causeway-agent ") || !strings.Contains(out.String(), "go1.") {
		t.Errorf("got %q, %v", &out, err)
	}
}

// Another form of the invitation is no reason to read the file's text aloud.
func TestInvitationOfAnotherForm(t *testing.T) {
	for _, text := range []string{
		"CAUSEWAY_SERVERS=a:1 CAUSEWAY_TOKEN=canary causeway-agent --alias b:1=c:1\n",
		"CAUSEWAY_SERVERS=https://u:canary@a\n",
		"apiVersion: v1\nstringData:\n  token: canary\n",
		"[Service]\nEnvironment=CAUSEWAY_TOKEN=canary\n",
	} {
		path := filepath.Join(t.TempDir(), "invitation")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := clitest.Start(t, run, nil, "--invitation", path, "--state", t.TempDir(), "--status", "")
		p.Await(`msg=failed .*in .*; \\"causeway enroll CLUSTER --format env\\" prints an invitation`)
		if err := p.Stop(); err != nil || strings.Contains(p.Text(), "canary") {
			t.Errorf("got %v\n%s", err, p.Text())
		}
	}
}

// What the log says of a failure holds no secret.
func TestAgentFails(t *testing.T) {
	server, address := newServer(t)
	inv := invite(t, server, address)
	token := inv.Token
	inv.Pin = "sha256:" + strings.Repeat("0", 64)
	p := clitest.Start(t, run, nil, "--invitation", invitationFile(t, inv), "--state", t.TempDir(), "--status", "")
	p.Await(`msg=failed .*pinned`)
	if err := p.Stop(); err != nil || strings.Contains(p.Text(), token) {
		t.Errorf("got %v, and the token in the log: %v", err, strings.Contains(p.Text(), token))
	}
}

// An agent that was revoked says so, and what to do.
func TestAgentRevoked(t *testing.T) {
	server, address := newServer(t)
	p := clitest.Start(t, run, nil, "--invitation", invitationFile(t, invite(t, server, address)), "--state", t.TempDir(), "--status", "")
	agent := p.Await(`msg=connected .*agent=(\S+)`)
	if err := server.Revoke(t.Context(), tunnel.Identity{Cluster: "default/prod", Agent: agent}); err != nil {
		t.Fatal(err)
	}
	p.Await(`msg="this agent was revoked: enroll it again, with a new invitation`)
}

// Another program of the machine that has the port of the status page does not keep the
// agent away.
func TestAgentStatusTaken(t *testing.T) {
	server, address := newServer(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := clitest.Start(t, run, nil, "--invitation", invitationFile(t, invite(t, server, address)), "--state", t.TempDir(), "--status", taken.Addr().String())
	p.Await(`level=WARN msg="there is no status page: its address is in use"`)
	p.Await(`msg=connected`)
}

// An error about a variable names it, and not its flag, which nobody gave; so does the log.
func TestBadVariables(t *testing.T) {
	for variable, want := range map[string]string{
		"PROXY=ftp://u:canary@p": "CAUSEWAY_PROXY: ",
		"NO_PROXY=a":             "CAUSEWAY_NO_PROXY is for --proxy, which is missing",
		"SERVER=a:1,b":           `CAUSEWAY_SERVER: "b"`,
		"ALLOW=a":                `CAUSEWAY_ALLOW, entry "a"`,
		"ALIAS=a:1":              `CAUSEWAY_ALIAS "a:1" is not`,
		"STATUS=a":               `CAUSEWAY_STATUS: "a" is not HOST:PORT`,
		"GRACE=-1s":              "CAUSEWAY_GRACE must not",
		"SECRET=a":               "CAUSEWAY_SECRET and CAUSEWAY_STATE exclude each other",
		"STATE=/dev/null":        "CAUSEWAY_STATE: ",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("CAUSEWAY_STATE", t.TempDir())
			name, value, _ := strings.Cut("CAUSEWAY_"+variable, "=")
			t.Setenv(name, value)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := Run(ctx, nil, io.Discard, io.Discard)
			if got := fmt.Sprint(err); !strings.Contains(got, want) || strings.Contains(got, "canary") {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
	t.Setenv("CAUSEWAY_JOIN_TOKEN", filepath.Join(t.TempDir(), "none"))
	clitest.Start(t, run, nil, "--state", t.TempDir(), "--status", "").Await(`msg=failed .*CAUSEWAY_JOIN_TOKEN: `)
}

func TestBadFlags(t *testing.T) {
	damaged := t.TempDir()
	if err := os.WriteFile(filepath.Join(damaged, "credentials.pem"), []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		args  []string
		want  string
		usage bool
	}{
		{"unknown", []string{"--nonsense"}, "unknown flag --nonsense", true},
		{"one dash", []string{"-allow", "a:1"}, "unknown flag -allow: flags have two dashes: --allow", true},
		{"mistyped", []string{"--alow", "a:1"}, "unknown flag --alow", true},
		{"argument", []string{"x"}, `unexpected argument "x"`, true},
		{"alias", []string{"--alias", "a:1"}, "TARGET=ADDRESS", true},
		{"pattern", []string{"--allow", "a"}, `--allow, entry "a"`, true},
		{"server", []string{"--server", "a"}, `--server: "a"`, true},
		{"server with a password", []string{"--server", "u:canary@a:1"}, `--server: "xxxxx@a:1"`, true},
		{"server's port", []string{"--server", "a:0"}, `--server: "a:0": tunnel: config: the server's address: its port is not a number from 1 to 65535`, true},
		{"proxy", []string{"--proxy", "ftp://u:canary@p"}, "--proxy", true},
		{"no-proxy", []string{"--no-proxy", "a"}, "--no-proxy is for --proxy", true},
		{"secret", []string{"--secret", "a"}, "--secret and --state exclude each other", true},
		{"grace", []string{"--grace", "-1s"}, "--grace must not be less than zero", true},
		{"damaged credentials", []string{"--state", damaged, "--server", "127.0.0.1:1"}, "--state: tunnel: config: file store: credentials.pem in " + damaged, false},
		{"status", []string{"--status", "192.0.2.1:1"}, "--status", false},
		{"status without a port", []string{"--status", "a"}, `--status: "a" is not HOST:PORT: missing port`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Run(t.Context(), append([]string{"--state", t.TempDir(), "--status", "127.0.0.1:0"}, tt.args...), io.Discard, io.Discard)
			var mistake cli.UsageError
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") || errors.As(err, &mistake) != tt.usage {
				t.Errorf("got %v, want %q, a mistake of usage %v", err, tt.want, tt.usage)
			}
		})
	}
	var out strings.Builder
	if err := Run(t.Context(), []string{"-h"}, &out, io.Discard); err != nil || !strings.Contains(out.String(), "--allow pattern ") {
		t.Errorf("got %v and %s", err, &out)
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
)

// programs are those of the tunnel, deployed: the server in the
// hub's namespace, the agent beside the API server and behind the office proxy.
type programs struct {
	t   testing.TB
	bed *bed.Bed
	dir string
	env []string // of all of them
}

// buildPrograms builds them with the race detector.
func buildPrograms(t *testing.T, b *bed.Bed) *programs {
	t.Helper()
	p := &programs{t: t, bed: b, dir: t.TempDir()}
	goBuild(t, programsModule, p.dir, "-race", "./causeway", "./causeway-agent")
	return p
}

// within is p for a part of the test.
func (p *programs) within(t testing.TB) *programs {
	part := *p
	part.t = t
	return &part
}

// programsModule is the folder of the programs' module.
const programsModule = "../../examples/programs"

// goBuild builds packages of a module's folder into a directory.
func goBuild(t testing.TB, folder, into string, args ...string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", into + "/"}, args...)...)
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
}

func (p *programs) path(name string) string { return filepath.Join(p.dir, name) }

// start runs a program until the test ends.
func (p *programs) start(ns *bed.Namespace, c bed.Command) *bed.Running {
	p.t.Helper()
	c.Env = append(append(c.Env, "GORACE=atexit_sleep_ms=0"), p.env...)
	r, err := ns.Start(p.t.Context(), c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		r.Stop()
		if p.t.Failed() {
			p.t.Log(r.Wait())
		}
	})
	return r
}

// connectDoor is where the server takes CONNECT.
const connectDoor = "127.0.0.1:3128"

// startServer starts the server with these flags, too.
func (p *programs) startServer(flags ...string) *bed.Running {
	p.t.Helper()
	address := net.JoinHostPort(bed.HubIP, tunnelPort)
	return p.start(p.bed.Network.Hub, bed.Command{Argv: append([]string{p.path("causeway"), "server", "--state", p.path("server"),
		"--listen", address, "--advertise", address, "--status", "", "--connect", connectDoor,
		"--forward", apiFront + "=" + cluster + "/" + apiTarget, "--forward", sshFront + "=" + cluster + "/" + p.bed.SSH.Address()}, flags...)})
}

// balanced is a listener of a server behind startBalancer.
var balanced = []string{"--listen", "127.0.0.1:8443", "--proxy-protocol-from", "127.0.0.9"}

// startBalancer starts HAProxy in front of the server, which tells it who connects.
func (p *programs) startBalancer() {
	p.t.Helper()
	text := `defaults
    mode tcp
    timeout connect 10s
    timeout client 1h
    timeout server 1h
listen balance
    bind ` + net.JoinHostPort(bed.HubIP, tunnelPort) + `
    server tunnel 127.0.0.1:8443 source 127.0.0.9 send-proxy-v2
`
	if err := os.WriteFile(p.path("haproxy.cfg"), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.start(p.bed.Network.Hub, bed.Command{Argv: []string{"haproxy", "-db", "-f", p.path("haproxy.cfg")}})
}

// command runs a command of causeway until it has worked: the first may
// come before the server has made its state.
func (p *programs) command(stdin string, args ...string) (out string) {
	p.t.Helper()
	err := bed.Poll(p.t.Context(), strings.Join(args, " "), func(ctx context.Context) (err error) {
		c := bed.Command{Argv: append([]string{p.path("causeway")}, args...), Stdin: strings.NewReader(stdin), Env: p.env}
		out, err = p.bed.Network.Hub.Run(ctx, c)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// ticketed is the kubeconfig of who is beside the cluster, made one of who has a
// ticket.
func (p *programs) ticketed() string {
	p.t.Helper()
	beside := tunnelKubeconfig(p.t, p.bed, kubeconfig.Endpoint{Host: bed.APIIP, Port: bed.APIPort})
	return p.command(string(beside), "kubeconfig", "--state", p.path("server"), cluster)
}

// startAgent starts an agent with an invitation in its environment or, if that
// is empty, in a file.
func (p *programs) startAgent(invitation ...string) *bed.Running {
	p.t.Helper()
	argv := []string{p.path("causeway-agent"), "--state", p.path("agent"), "--status", "", "--allow", p.bed.SSH.Address(),
		"--alias", apiTarget + "=" + p.bed.Kube.Address(), "--authorized-keys", p.bed.SSH.AuthorizedKeys()}
	if len(invitation) == 0 {
		argv = append(argv, "--invitation", p.path("invitation"))
	}
	env := append([]string{"HTTPS_PROXY=" + p.bed.Office.URL().String()}, invitation...)
	return p.start(p.bed.Network.API, bed.Command{Argv: argv, Env: env})
}

// works waits until a command that goes through the tunnel does.
func (p *programs) works(what string, c bed.Command, want string) {
	p.t.Helper()
	began := time.Now()
	err := bed.Poll(p.t.Context(), what, func(ctx context.Context) error {
		out, err := p.bed.Network.Hub.Run(ctx, c)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("got %q, want %q in it", out, want)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Logf("%s works, after %v", what, time.Since(began))
}

// ends tells a program to end, and wants it to, in order.
func (p *programs) ends(r *bed.Running) {
	p.t.Helper()
	began := time.Now()
	if err := r.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Wait() }()
	if err := next(p.t, ended, slack, "the program's end"); err != nil {
		p.t.Error(err)
	}
	p.t.Logf("it ended after %v", time.Since(began))
}

// The programs do what their documentation promises: enrol
// behind a proxy that the environment names, lead kubectl and ssh through, hand
// over a key, come back after SIGKILL, and end when they are told to. HAProxy is in front of
// the server, whose log has the agent's address.
func TestTunnelPrograms(t *testing.T) {
	b := sharedBed(t)
	p := buildPrograms(t, b)
	forgetKeys(t, b)
	p.startBalancer()
	server := p.startServer(balanced...)
	invitation := p.command("", "enroll", "--state", p.path("server"), "--format", "env", cluster)
	for path, content := range map[string][]byte{
		p.path("invitation"): []byte(invitation),
		p.path("kubeconfig"): tunnelKubeconfig(t, b, kubeconfig.Endpoint{Host: "127.0.0.1", Port: 6443}),
		p.path("ticketed"):   []byte(p.ticketed()),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := p.startAgent()
	kubectl := b.Kubectl(p.path("kubeconfig"), "get", "namespaces", "-o", "name", "--request-timeout=5s")
	p.works("kubectl", kubectl, "namespace/default\n")
	if log := server.Stderr(); !strings.Contains(log, "msg=connected") || !strings.Contains(log, "remote="+bed.HubProxyIP+":") {
		t.Errorf("the log lacks the address that the agent comes from:\n%s", log)
	}

	p.works("kubectl with a ticket", b.Kubectl(p.path("ticketed"), "get", "namespaces", "-o", "name", "--request-timeout=5s"), "namespace/default\n")

	key, public := newKey(t)
	p.command(public, "payload", "--state", p.path("server"), cluster, "authorized_keys")
	p.works("ssh", sshCommand(t, b, key), bed.ProxyUser+" "+bed.APIIP+" 22\n")

	server.Stop()
	server = p.startServer(balanced...)
	p.works("kubectl after the server was killed", kubectl, "namespace/default\n")
	agent.Stop()
	agent = p.startAgent()
	p.works("kubectl after the agent was killed", kubectl, "namespace/default\n")
	p.ends(agent)
	p.ends(server)
	if _, err := b.Network.Hub.DialContext(t.Context(), "tcp", apiFront); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a dial after the server's end: got %v, want it refused", err)
	}
}

// The example for SSH runs a script on a host that only the agent reaches, and
// leaves no key there.
func TestTunnelSSHProgram(t *testing.T) {
	b := sharedBed(t)
	p := buildPrograms(t, b)
	goBuild(t, "../..", p.dir, "-race", "./examples/tunnelssh")
	forgetKeys(t, b)
	host, err := b.SSH.HostKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.path("known_hosts"), []byte(bed.APIIP+" "+host+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(bed.HubIP, tunnelPort)
	ssh := p.start(b.Network.Hub, bed.Command{
		Argv: []string{p.path("tunnelssh"), "-listen", address, "-advertise", address, "-cluster", cluster,
			"-host", b.SSH.Address(), "-user", bed.ProxyUser, "-known-hosts", p.path("known_hosts")},
		Stdin: strings.NewReader("id -un\n"),
	})
	p.startAgent(printedInvitation(t, ssh)...)
	ended := make(chan error, 1)
	go func() { ended <- ssh.Wait() }()
	if err := next(t, ended, 3*slack, "the script's end"); err != nil {
		t.Fatal(err)
	}
	if got, want := ssh.Stdout(), bed.ProxyUser+"\n"; got != want {
		t.Errorf("the script printed %q, want %q", got, want)
	}
	if keys, err := os.ReadFile(b.SSH.AuthorizedKeys()); err != nil || strings.Contains(string(keys), "ssh-") {
		t.Errorf("the file of keys has %q, %v, want no key", keys, err)
	}
}

// printedInvitation returns the variables of the command that a program prints
// for an agent to be started with.
func printedInvitation(t *testing.T, r *bed.Running) (env []string) {
	t.Helper()
	err := bed.Poll(t.Context(), "the agent's command", func(context.Context) error {
		before, _, ok := strings.Cut(r.Stderr(), " causeway-agent ")
		if !ok {
			return errors.New("it is not printed")
		}
		for _, word := range strings.Fields(before) {
			if strings.HasPrefix(word, "CAUSEWAY_") {
				env = append(env, word)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return env
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// previousEnv names a commit to take instead of the last tag.
const previousEnv = "CAUSEWAY_E2E_PREVIOUS"

// Agents and servers of the last release work with those of this one, and replicas of
// both are each other's peers, with one state. Data, a half-close and a reset arrive.
func TestPreviousVersion(t *testing.T) {
	previous := previousVersion(t)
	b := sharedBed(t)
	v := &versions{programs: buildPrograms(t, b), target: serveVerbs(t, b.Network.API)}
	buildPrevious(t, previous, filepath.Join(v.dir, "old"), "-race", "./causeway", "./causeway-agent")

	// The state is the previous version's, as when servers are upgraded.
	oldServer := v.startReplica("old", bed.HubIP, bed.HubWebIP)
	v.waitState()
	newServer := v.startReplica("new", bed.HubWebIP, bed.HubIP)
	running := []*bed.Running{
		v.startAgent("old", "new", bed.HubWebIP),
		v.startAgent("new", "old", bed.HubIP),
		oldServer, newServer,
	}
	for _, agent := range []string{"old", "new"} {
		for _, server := range []string{"old", "new"} {
			t.Run(fmt.Sprintf("%s agent, dial at the %s server", agent, server), func(t *testing.T) {
				v.within(t).useVerbs(b.Network.Hub, v.front(server, agent))
			})
		}
	}
	for server, agent := range map[*bed.Running]string{oldServer: "new", newServer: "old"} {
		if log := server.Stderr(); !strings.Contains(log, "msg=connected cluster="+previousCluster(agent)) {
			t.Errorf("the %s agent is not at the server of the other version:\n%s", agent, log)
		}
	}
	for _, r := range running {
		v.ends(r)
	}
}

// previousVersion returns the commit to compare with.
func previousVersion(t *testing.T) string {
	t.Helper()
	if commit := os.Getenv(previousEnv); commit != "" {
		return commit
	}
	if out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Fatalf("git: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*").Output()
	if err != nil {
		t.Skip("NOT RUN: there is no tag to compare with; " + previousEnv + "=COMMIT names a commit")
	}
	return strings.TrimSpace(string(out))
}

// versions are the programs of two versions: the old ones are in a folder of their own.
type versions struct {
	*programs
	target string // what serveVerbs serves
}

// buildPrevious builds the programs of a commit.
func buildPrevious(t *testing.T, commit, into string, args ...string) {
	t.Helper()
	source := t.TempDir()
	script := `git -C ../.. archive --format=tar "$1" | tar -x -C "$2"`
	if out, err := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", script, "git", commit, source).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", commit, err, out)
	}
	goBuild(t, filepath.Join(source, "examples/programs"), into, args...)
	t.Logf("the previous version is %s", commit)
}

func (v *versions) program(version, name string) string {
	if version == "old" {
		return v.path(filepath.Join("old", name))
	}
	return v.path(name)
}

func previousCluster(agent string) string { return "previous/" + agent + "-agent" }

// front is where a server leads to the target of an agent's cluster.
func (v *versions) front(server, agent string) string {
	return net.JoinHostPort(map[string]string{"old": "127.0.0.1", "new": "127.0.0.2"}[server], map[string]string{"old": "7001", "new": "7002"}[agent])
}

// startReplica starts a server that has a peer.
func (v *versions) startReplica(version, host, peer string) *bed.Running {
	v.t.Helper()
	address := net.JoinHostPort(host, tunnelPort)
	argv := []string{v.program(version, "causeway"), "server", "--state", v.path("server"), "--status", "",
		"--listen", address, "--advertise", address, "--peers", net.JoinHostPort(peer, tunnelPort)}
	for _, agent := range []string{"old", "new"} {
		argv = append(argv, "--forward", v.front(version, agent)+"="+previousCluster(agent)+"/"+v.target)
	}
	return v.start(v.bed.Network.Hub, bed.Command{Argv: argv})
}

// waitState waits until the first server has made the state.
func (v *versions) waitState() {
	v.t.Helper()
	err := bed.Poll(v.t.Context(), "the old server to listen", func(ctx context.Context) error {
		conn, err := v.bed.Network.Hub.DialContext(ctx, "tcp", v.front("old", "old"))
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		v.t.Fatal(err)
	}
}

// startAgent starts an agent with an invitation of a server's version, to that server.
func (v *versions) startAgent(version, server, host string) *bed.Running {
	v.t.Helper()
	var invitation string
	err := bed.Poll(v.t.Context(), "an invitation", func(ctx context.Context) (err error) {
		invitation, err = v.bed.Network.Hub.Run(ctx, bed.Command{Argv: []string{v.program(server, "causeway"), "enroll", "--state", v.path("server"),
			"--format", "env", "--server", net.JoinHostPort(host, tunnelPort), previousCluster(version)}})
		return err
	})
	if err != nil {
		v.t.Fatal(err)
	}
	file := v.path("invitation-" + version)
	writeFile(v.t, file, invitation)
	return v.start(v.bed.Network.API, bed.Command{
		Argv: []string{v.program(version, "causeway-agent"), "--state", v.path("agent-" + version), "--status", "",
			"--invitation", file, "--allow", v.target},
		Env: []string{"HTTPS_PROXY=" + v.bed.Office.URL().String()},
	})
}

// serveVerbs serves, until the test ends, connections that say what is to happen: "echo"
// sends all of it back after its end, "reset" ends in a reset. It returns its address.
func serveVerbs(t *testing.T, ns *bed.Namespace) string {
	t.Helper()
	l := listen(t, ns, net.JoinHostPort(bed.APIIP, "0"))
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serveVerb(conn.(*net.TCPConn))
		}
	}()
	return l.Addr().String()
}

func serveVerb(conn *net.TCPConn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	verb := make([]byte, 5)
	if _, err := io.ReadFull(conn, verb); err != nil {
		return
	}
	if string(verb) == "reset" {
		conn.SetLinger(0)
		return
	}
	data, err := io.ReadAll(conn)
	if err != nil {
		conn.SetLinger(0)
		return
	}
	conn.Write(data)
}

// useVerbs dials what serveVerbs serves, by an address that leads there.
func (v *programs) useVerbs(ns *bed.Namespace, address string) {
	v.t.Helper()
	const size = 1 << 20 // more than a window
	sent := strings.Repeat("causeway", size/8)
	err := bed.Poll(v.t.Context(), "an echo", func(ctx context.Context) error {
		got, err := askVerb(ctx, ns, address, "echo ", sent)
		if err == nil && got != sent {
			err = fmt.Errorf("got %d bytes, want the %d that were sent", len(got), len(sent))
		}
		return err
	})
	if err != nil {
		v.t.Fatal(err)
	}
	if got, err := askVerb(v.t.Context(), ns, address, "reset", ""); !errors.Is(err, syscall.ECONNRESET) {
		v.t.Errorf("a reset: got %q, %v, want %v", got, err, syscall.ECONNRESET)
	}
}

// askVerb sends all of it, ends its direction, and returns the answer up to its end.
func askVerb(ctx context.Context, ns *bed.Namespace, address, verb, text string) (string, error) {
	conn, err := ns.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(slack))
	if _, err := io.WriteString(conn, verb+text); err != nil {
		return "", err
	}
	if verb != "reset" {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return "", err
		}
	}
	got, err := io.ReadAll(conn)
	return string(got), err
}

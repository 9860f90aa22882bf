package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// opensshRow has an sshd for the server and an ssh -R for the agent; the two
// halves here only start them.
var opensshRow = row{
	name:       "openssh",
	newAgent:   newSSHAgent,
	newServer:  newSSHServer,
	idleAgents: 20,
}

const sshdConfig = `HostKey %[1]s/host
PidFile none
UsePAM no
UseDNS no
LogLevel QUIET
StrictModes no
AuthenticationMethods publickey
PermitRootLogin prohibit-password
AuthorizedKeysFile %[1]s/client.pub
AllowTcpForwarding remote
`

// A program is a process that one of the two halves runs.
type program struct {
	cmd *exec.Cmd
}

// startProgram makes the kernel end the process with the thread that started it, which
// Go keeps: should this process be killed, the other doesn't stay.
func startProgram(cmd *exec.Cmd) (*program, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: openssh: %w", err)
	}
	return &program{cmd}, nil
}

func (p *program) end() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

func writeSSHKeys(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "client")); err == nil {
		return nil
	}
	for _, name := range []string{"host", "client"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", filepath.Join(dir, name)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("bench: openssh: ssh-keygen: %w: %s", err, out)
		}
	}
	host, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		return fmt.Errorf("bench: openssh: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "known_hosts"), append([]byte("bench "), host...), 0o600),
		os.WriteFile(filepath.Join(dir, "sshd.conf"), fmt.Appendf(nil, sshdConfig, dir), 0o600))
}

// An sshServer accepts the connections and starts an sshd for each, as inetd
// would: the port is then the kernel's choice, and each sshd is known.
type sshServer struct {
	*listener
	dir, path string

	mu    sync.Mutex // guards the fields below
	sshds []*program
}

func newSSHServer(s *Setup) (server, error) {
	path, err := exec.LookPath("sshd")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/sshd"); err != nil {
			return nil, fmt.Errorf("bench: openssh: %w", err)
		}
	}
	v := &sshServer{dir: s.Dir, path: path}
	v.listener, err = listen(v.serve)
	return v, err
}

func (v *sshServer) serve(conn net.Conn) {
	f, err := conn.(*net.TCPConn).File()
	if err != nil {
		return
	}
	conn.Close() // f is its copy
	cmd := exec.Command(v.path, "-i", "-f", filepath.Join(v.dir, "sshd.conf"), "-E", filepath.Join(v.dir, "sshd.log"))
	if os.Geteuid() == 0 {
		// root's sshd wants a folder in /run, which Debian makes when it
		// starts the service: it gets one in mounts of its own.
		const script = `mount -t tmpfs tmpfs /run; mkdir -m 755 /run/sshd; exec "$@"`
		cmd = exec.Command("/bin/sh", append([]string{"-e", "-c", script, "sshd"}, cmd.Args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	cmd.Stdin, cmd.Stdout = f, f
	p, err := startProgram(cmd)
	f.Close()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	v.mu.Lock()
	v.sshds = append(v.sshds, p)
	v.mu.Unlock()
	p.cmd.Wait()
}

func (v *sshServer) sessions() int { return len(v.childPIDs()) }

func (v *sshServer) childPIDs() []int {
	v.mu.Lock()
	defer v.mu.Unlock()
	var pids []int
	for _, p := range v.sshds {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

func (*sshServer) dial(context.Context) (net.Conn, error) {
	return nil, errors.New("bench: openssh: sshd dials by itself")
}

func (v *sshServer) Close() error {
	for _, pid := range v.childPIDs() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	return v.listener.Close()
}

type sshAgent struct {
	dir, target string
	sshs        []*program
}

func newSSHAgent(s *Setup) (agent, error) {
	return &sshAgent{dir: s.Dir, target: s.Target}, writeSSHKeys(s.Dir)
}

func (*sshAgent) addr() string { return "" }

// connect lets each sshd choose the port that it listens on, and returns the
// last one's.
func (a *sshAgent) connect(ctx context.Context, server string, n int) (string, error) {
	front := ""
	for range n {
		var err error
		if front, err = a.connectOne(ctx, server); err != nil {
			return "", err
		}
	}
	return front, nil
}

func (a *sshAgent) connectOne(ctx context.Context, server string) (string, error) {
	me, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("bench: openssh: %w", err)
	}
	host, port, _ := net.SplitHostPort(server)
	argv := []string{"-N", "-R", "127.0.0.1:0:" + a.target, "-F", "none", "-p", port,
		"-i", filepath.Join(a.dir, "client"), "-c", "aes128-gcm@openssh.com"}
	for _, option := range []string{
		"BatchMode=yes",
		"ExitOnForwardFailure=yes",
		"IdentitiesOnly=yes",
		"IdentityAgent=none",
		"StrictHostKeyChecking=yes",
		"HostKeyAlias=bench",
		"GlobalKnownHostsFile=none",
		"UserKnownHostsFile=" + filepath.Join(a.dir, "known_hosts"),
	} {
		argv = append(argv, "-o", option)
	}
	cmd := exec.Command("ssh", append(argv, me.Username+"@"+host)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return "", fmt.Errorf("bench: openssh: %w", err)
	}
	p, err := startProgram(cmd)
	if err != nil {
		return "", err
	}
	a.sshs = append(a.sshs, p)
	stop := context.AfterFunc(ctx, func() { p.cmd.Process.Kill() })
	defer stop()
	return readAllocated(bufio.NewScanner(stderr))
}

// readAllocated returns the address that ssh reports as allocated.
func readAllocated(lines *bufio.Scanner) (string, error) {
	said := ""
	for lines.Scan() {
		said += lines.Text() + "\n"
		rest, ok := strings.CutPrefix(lines.Text(), "Allocated port ")
		if !ok {
			continue
		}
		port, _, _ := strings.Cut(rest, " ")
		if _, err := strconv.Atoi(port); err == nil {
			return net.JoinHostPort("127.0.0.1", port), nil
		}
	}
	return "", fmt.Errorf("bench: openssh: ssh allocated no port: %s", said)
}

func (a *sshAgent) childPIDs() []int {
	var pids []int
	for _, p := range a.sshs {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

func (a *sshAgent) Close() error {
	for _, p := range a.sshs {
		p.end()
	}
	return nil
}

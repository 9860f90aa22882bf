// Tunnelssh provisions a host that can't be reached, through a tunnel that an agent in the
// host's network opens:
//
//	go run ./examples/tunnelssh -advertise bastion.example.com:8443 -host 10.0.0.7:22 -user root <setup.sh
//
// It prints the command that starts the agent, and waits until the agent is connected.
// It sends the agent an SSH public key made for this run, runs the script from its
// standard input on the host with the ssh program, and has the key removed. It does not
// poll: a hook of the server reports the agent, and the agent's answer reports the key. It
// needs ssh-keygen, too.
//
// The host's key is trusted on first use, unless -known-hosts has it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/tunnel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "tunnelssh:", err)
		os.Exit(1)
	}
}

type flags struct {
	listen, advertise, cluster, host, user, knownHosts, ssh string
	timeout                                                 time.Duration
}

func (f *flags) parse(args []string, stderr io.Writer) error {
	set := flag.NewFlagSet("tunnelssh", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.listen, "listen", ":8443", "`address` for the agent")
	set.StringVar(&f.advertise, "advertise", "", "`address` of this machine as the agent sees it; default: that of -listen")
	set.StringVar(&f.cluster, "cluster", "default/new", "`name` of the cluster")
	set.StringVar(&f.host, "host", "", "`host:port` of the SSH server, as the agent sees it; required")
	set.StringVar(&f.user, "user", "root", "`user` there")
	set.StringVar(&f.knownHosts, "known-hosts", "", "`file` with the host's key")
	set.StringVar(&f.ssh, "ssh", "ssh", "the ssh `program`")
	set.DurationVar(&f.timeout, "timeout", 10*time.Minute, "how long to wait for the agent")
	if err := set.Parse(args); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(f.host); err != nil || set.NArg() > 0 {
		return errors.New("-host HOST:PORT is required, and the script comes on standard input")
	}
	return nil
}

// run is main without the process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var f flags
	if err := f.parse(args, stderr); err != nil {
		return err
	}
	authority, err := tunnel.NewAuthority()
	if err != nil {
		return err
	}
	connected := make(chan tunnel.SessionInfo, 1)
	server := &tunnel.Server{Authority: authority, Hooks: tunnel.Hooks{
		// A hook must not wait. One session is enough.
		Connected: func(s tunnel.SessionInfo) {
			select {
			case connected <- s:
			default:
			}
		},
		Refused: func(_ net.Addr, err error) { fmt.Fprintln(stderr, "refused:", err) },
	}}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.WithoutCancel(ctx), l) }() // until Close
	err = f.provisionHost(ctx, server, l.Addr(), connected, stdin, stdout, stderr)
	return errors.Join(err, server.Close(), <-served)
}

func (f *flags) provisionHost(ctx context.Context, server *tunnel.Server, addr net.Addr, connected <-chan tunnel.SessionInfo, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	inv, err := server.Invite(ctx, f.cluster, f.timeout)
	if err != nil {
		return err
	}
	inv.Servers = []string{cmp.Or(f.advertise, addr.String())}
	fmt.Fprintf(stderr, "Start the agent where it reaches the host, with a token that is good until %s:\n\n%s causeway-agent --state ./agent-state --allow %s --authorized-keys ~/.ssh/authorized_keys\n\n",
		inv.Expires.Format(time.TimeOnly), strings.ReplaceAll(strings.TrimSpace(inv.Reveal()), "\n", " "), f.host)
	wait, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	select {
	case s := <-connected:
		fmt.Fprintf(stderr, "agent %s is connected from %s\n", s.Agent, s.Remote)
	case <-wait.Done():
		return fmt.Errorf("waiting for an agent: %w", wait.Err())
	}
	dir, err := os.MkdirTemp("", "tunnelssh-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	key := filepath.Join(dir, "key")
	if text, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-C", "tunnelssh", "-f", key).CombinedOutput(); err != nil {
		return fmt.Errorf("ssh-keygen: %w: %s", err, text)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		return err
	}
	if err := server.Push(wait, f.cluster, tunnel.Payload{Name: "authorized_keys", Data: public}); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "the agent took the key")
	// The key was only for this run: an empty payload removes it.
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, server.Push(after, f.cluster, tunnel.Payload{Name: "authorized_keys"}))
	}()
	return f.runScript(ctx, server.Dialer(f.cluster), dir, stdin, stdout, stderr)
}

// runScript runs the ssh program against a local listener in front of the host.
func (f *flags) runScript(ctx context.Context, d *tunnel.Dialer, dir string, stdin io.Reader, stdout, stderr io.Writer) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var forwarding sync.WaitGroup
	forwarding.Go(func() { forwardConn(ctx, l, d, f.host, stderr) })
	defer func() {
		cancel()
		l.Close()
		forwarding.Wait()
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	cmd := exec.CommandContext(ctx, f.ssh, f.sshArgs(dir, port)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ssh: %w", err)
	}
	return nil
}

func (f *flags) sshArgs(dir, port string) []string {
	known, check := f.knownHosts, "yes"
	if known == "" {
		known, check = filepath.Join(dir, "known_hosts"), "accept-new"
	}
	host, _, _ := net.SplitHostPort(f.host)
	return []string{
		"-F", "none", "-T", "-p", port, "-l", f.user, "-i", filepath.Join(dir, "key"),
		"-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "LogLevel=ERROR",
		"-o", "StrictHostKeyChecking=" + check, "-o", "UserKnownHostsFile=" + known, "-o", "GlobalKnownHostsFile=none",
		"-o", "HostKeyAlias=" + host,
		"127.0.0.1", "sh -s",
	}
}

// forwardConn connects a connection of l to the host: ssh makes only one.
func forwardConn(ctx context.Context, l net.Listener, d *tunnel.Dialer, host string, stderr io.Writer) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	target, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		fmt.Fprintln(stderr, err)
		conn.Close()
		return
	}
	relay.Relay(ctx, conn, target)
}

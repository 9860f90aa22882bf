package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// fakeSSH in the environment makes of the test a program that stands for ssh:
// it sends its standard input, and prints what comes back. Its value is the
// status that it ends with.
const fakeSSH = "TEST_FAKE_SSH"

func TestMain(m *testing.M) {
	if status := os.Getenv(fakeSSH); status != "" {
		ssh(os.Args[1:])
		if status != "0" {
			os.Exit(3)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func ssh(args []string) {
	key, err := os.ReadFile(args[slices.Index(args, "-i")+1])
	if err != nil || len(key) == 0 {
		fmt.Println("no key:", err)
		return
	}
	conn, err := net.Dial("tcp", "127.0.0.1:"+args[slices.Index(args, "-p")+1])
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(args)
	go func() {
		io.Copy(conn, os.Stdin)
		conn.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(os.Stdout, conn)
}

// startAgent runs the agent of the invitation that the program printed.
func startAgent(t *testing.T, p *clitest.Program, allow string, take func(tunnel.Payload) error) {
	t.Helper()
	line := p.Await(`(?m)^(CAUSEWAY_.*) causeway-agent --state \S+ --allow \S+ --authorized-keys `)
	inv, err := tunnel.ParseInvitation(strings.ReplaceAll(line, " ", "\n"))
	if err != nil {
		t.Fatal(err)
	}
	a := &tunnel.Agent{
		Credentials: &tunnel.MemoryCredentials{},
		Invitation:  func(context.Context) (tunnel.Invitation, error) { return inv, nil },
		Targets:     tunnel.Targets{Allow: []string{allow}},
		Payload:     func(_ context.Context, p tunnel.Payload) error { return take(p) },
		Grace:       -1,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// host is an SSH server as fakeSSH knows it.
func host(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) {
		script, _ := io.ReadAll(conn)
		io.WriteString(conn, "host ran "+string(script))
	})
	t.Cleanup(s.Close)
	return s.Addr()
}

func startProgram(t *testing.T, status, host string, args ...string) *clitest.Program {
	t.Helper()
	t.Setenv(fakeSSH, status)
	args = append([]string{"-listen", "127.0.0.1:0", "-ssh", os.Args[0], "-host", host}, args...)
	return clitest.Start(t, run, strings.NewReader("the script"), args...)
}

func TestProvision(t *testing.T) {
	host, temp := host(t), t.TempDir()
	t.Setenv("TMPDIR", temp)
	p := startProgram(t, "0", host)
	payloads := make(chan tunnel.Payload, 2)
	startAgent(t, p, host, func(p tunnel.Payload) error { payloads <- p; return nil })
	if err := p.Wait(); err != nil || !strings.Contains(p.Text(), "host ran the script") {
		t.Errorf("got %v, want the script to have run", err)
	}
	if !strings.Contains(p.Text(), "StrictHostKeyChecking=accept-new") {
		t.Error("the host's key is not taken at first sight")
	}
	if entries, err := os.ReadDir(temp); err != nil || len(entries) > 0 {
		t.Errorf("got %v, %v; want no private key left", entries, err)
	}
	given, taken := <-payloads, <-payloads
	if given.Name != "authorized_keys" || !bytes.HasPrefix(given.Data, []byte("ecdsa-sha2-nistp256 ")) {
		t.Errorf("got payload %q %q, want a key", given.Name, given.Data)
	}
	if taken.Name != "authorized_keys" || len(taken.Data) != 0 {
		t.Errorf("got payload %q %q at the end, want no key", taken.Name, taken.Data)
	}
}

func TestProvisionFails(t *testing.T) {
	host := host(t)
	accept := func(tunnel.Payload) error { return nil }
	for _, tt := range []struct {
		name   string
		status string
		allow  string
		take   func(tunnel.Payload) error
		want   string // in the error
		text   string // in the output
	}{
		{"the script fails", "3", host, accept, "exit status 3", "host ran"},
		{"the agent takes no key", "0", host, func(tunnel.Payload) error { return errors.New("no keys here") }, "no keys here", ""},
		{"the agent denies the host", "0", "127.0.0.1:1", accept, "", "the agent's policy does not allow the target"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startProgram(t, tt.status, host, "-known-hosts", "/dev/null")
			startAgent(t, p, tt.allow, tt.take)
			err := p.Wait()
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) || !strings.Contains(p.Text(), tt.text) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if strings.Contains(p.Text(), "accept-new") {
				t.Error("a host's key is taken although -known-hosts says which")
			}
		})
	}
}

func TestNoAgent(t *testing.T) {
	p := startProgram(t, "0", "192.0.2.1:22", "-timeout", "50ms")
	if err := p.Wait(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a timeout", err)
	}
	p = startProgram(t, "0", "192.0.2.1:22", "-timeout", "1h")
	p.Await(`CAUSEWAY_TOKEN`)
	if err := p.Stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v after a signal, want it canceled", err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{}, {"-host", "a"}, {"-host", "a:22", "script.sh"}, {"-nonsense"}} {
		want := "-host HOST:PORT is required"
		if slices.Contains(args, "-nonsense") {
			want = "not defined: -nonsense"
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := run(ctx, append(args, "-listen", "127.0.0.1:0"), nil, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
}

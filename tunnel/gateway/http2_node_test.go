package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// node is Node's http2 module as a client: see testdata/client.mjs.
type node struct {
	t     *testing.T
	stdin io.Writer
	out   *bufio.Scanner
}

func startNode(t *testing.T) *node {
	path, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err, "(.ci/install installs it)")
		}
		t.Skip(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "testdata/client.mjs")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
		cancel()
	})
	return &node{t, stdin, bufio.NewScanner(out)}
}

// do tells node something, and returns what it answers.
func (n *node) do(format string, a ...any) string {
	n.t.Helper()
	fmt.Fprintf(n.stdin, format+"\n", a...)
	if !n.out.Scan() {
		n.t.Fatalf("node has ended: %v", n.out.Err())
	}
	return n.out.Text()
}

// No drain cuts a tunnel that node holds.
func TestHTTP2DrainNode(t *testing.T) {
	n := startNode(t)
	cut := 0
	for i := range drains {
		b := newBed(t, door{serve: (*gateway.Gateway).ServeConnect}, func(g *gateway.Gateway) {
			g.Authenticate, g.Route, g.Dial = gateway.Anyone, nil, dialEcho
		})
		if got := n.do("open %v", b.addr); got != "open" {
			t.Fatal(got)
		}
		b.cancel()
		if got := n.do("drained"); got != "kept" {
			cut++
			t.Logf("drain %d: %s", i, got)
		}
		b.g.Close()
		b.wait()
	}
	if cut > 0 {
		t.Errorf("%d of %d drains have cut the tunnel", cut, drains)
	}
}

// Nor do streams that the door refuses because there are too many: here those
// that node has given up, and that Route still works on.
func TestHTTP2FullNode(t *testing.T) {
	n := startNode(t)
	release := make(chan struct{})
	b := newBed(t, door{serve: (*gateway.Gateway).ServeConnect}, func(g *gateway.Gateway) {
		g.Authenticate, g.Dial = gateway.Anyone, dialEcho
		g.Route = func(_ context.Context, r *gateway.Request) error {
			if strings.HasPrefix(r.Address, "slow") {
				<-release
				return io.EOF
			}
			return nil
		}
	})
	if got := n.do("open %v", b.addr); got != "open" {
		t.Error(got)
	}
	if got := n.do("fill"); got != "kept" {
		t.Error(got)
	}
	close(release)
}

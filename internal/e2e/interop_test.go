package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// A row of the matrix is what an unmodified client does.
type row struct {
	name string
	// program is the client's name: a door has one message for each client that
	// can't use it.
	program string
	run     func(ctx context.Context, c *cell) error
}

// A cell is a row at a door.
type cell struct {
	*door
	bed *bed.Bed
	// hub is where clients are: the gateway's listeners are there, and nothing
	// else leads to the API server.
	hub        *bed.Namespace
	kubeconfig string // path
	namespace  string // of the API server, with the pod "pod" in it
	key        string // path of an SSH key that the sshd beside the API server takes
	dir        string // empty
}

func interopRows() []row {
	rows := []row{
		{"kubectl get", "kubectl", kubectlGet},
		{"kubectl create", "kubectl", kubectlCreate},
		{"kubectl get --watch", "kubectl", kubectlWatch},
		{"kubectl logs -f", "kubectl", kubectlLogs},
	}
	for _, protocol := range []string{"WebSocket", "SPDY"} {
		k := streaming{spdy: protocol == "SPDY"}
		for _, r := range []row{
			{"kubectl exec, stdin, exit code", "kubectl", k.exec},
			{"kubectl attach", "kubectl", k.attach},
			{"kubectl cp", "kubectl", k.cp},
			{"kubectl port-forward", "kubectl", k.portForward},
		} {
			r.name += " (" + protocol + ")"
			rows = append(rows, r)
		}
	}
	return append(rows,
		row{"client-go informer", "client-go", informer},
		row{"Cluster API's cluster cache", "client-go", clusterCache},
		row{"curl", "curl", curl},
		row{"ssh, ProxyCommand ncat", "ncat", sshNcat},
		row{"ssh, ProxyCommand with package dialer", "dialer", sshDialer},
	)
}

// Unmodified clients reach an API server behind the tunnel by each of the
// gateway's doors. What a client can't do has its own words for it.
func TestInterop(t *testing.T) {
	b := sharedBed(t)
	doors := startDoors(t, b)
	key, public := newKey(t)
	forgetKeys(t, b)
	if err := os.WriteFile(b.SSH.AuthorizedKeys(), []byte(public), 0o600); err != nil {
		t.Fatal(err)
	}
	table := newInteropTable(doors, interopRows())
	before := webSockets(t, b)
	t.Run("doors", func(t *testing.T) {
		for i, d := range doors {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel() // each has a namespace of its own, and waits much
				c := newCell(t, b, d, key)
				for j, r := range interopRows() {
					table.set(i, j, c.try(t, r))
				}
			})
		}
	})
	if !table.complete() {
		return // of some doors alone
	}
	interop.Store(table)
	wantWebSockets(t, before, webSockets(t, b), doors)
	if err := table.check("../../docs/gateway.md"); err != nil {
		t.Error(err)
	}
}

func newCell(t *testing.T, b *bed.Bed, d *door, key string) *cell {
	t.Helper()
	c := &cell{door: d, bed: b, hub: b.Network.Hub, namespace: "interop-" + d.id, key: key, dir: t.TempDir()}
	c.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(c.kubeconfig, d.kubeconfig(t, b), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Kube.AddNamespace(t.Context(), c.namespace); err != nil {
		t.Fatal(err)
	}
	if err := b.Kube.AddPod(t.Context(), c.namespace, "pod"); err != nil {
		t.Fatal(err)
	}
	return c
}

// try runs a row, and returns what the table says of it.
func (c *cell) try(t *testing.T, r row) string {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), rowTimeout+duration(t, informerEnv, 0), errors.New("the client did not end in time"))
	defer cancel()
	began := time.Now()
	err := r.run(ctx, c)
	want, cannot := c.cannot[r.program]
	switch {
	case err == nil && cannot:
		t.Errorf("%s: it worked, want %q", r.name, want.says)
	case err != nil && (!cannot || !strings.Contains(err.Error(), want.says)):
		t.Errorf("%s: %v", r.name, err)
		return "FAILED"
	}
	t.Logf("%s: %.1f s, %v", r.name, time.Since(began).Seconds(), err)
	if cannot {
		return want.who + ": `" + want.says + "`"
	}
	return "yes"
}

const rowTimeout = time.Minute

package e2e

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

func TestKubectl(t *testing.T) {
	b := sharedBed(t)
	for _, r := range kubectlRoutes(b) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel() // each has a namespace of its own, and waits much
			k := kubectl{t, b, r, writeKubeconfig(t, b, r)}
			ns := "e2e-" + r.name
			k.logged("get", 1, func() {
				if out := k.run("get", "namespaces", "-o", "name"); !strings.Contains(out, "namespace/default\n") {
					t.Errorf("get namespaces: got %q, want namespace/default in it", out)
				}
			})
			k.logged("create", 2, func() {
				k.run("create", "namespace", ns)
				k.run("create", "configmap", "before", "-n", ns)
			})
			k.logged("watch", 2, func() { k.watch(ns) })
		})
	}
}

// kubectl offers h2 to an https proxy and, where the proxy takes it, speaks
// HTTP/1.1 all the same. It tries again for the better part of a minute: the
// test ends it at the first refusal.
func TestKubectlFailsAtH2Proxy(t *testing.T) {
	b := sharedBed(t)
	for _, r := range routes(b) {
		if r.logged != nil {
			continue
		}
		refused := []string{"port=" + r.proxy.Port() + " ", "client-certificate=/O=system:masters/CN=kubernetes-admin", "<BADREQ>"}
		before, err := r.lines(refused)
		if err != nil {
			t.Fatal(err)
		}
		w, err := b.Network.Client.Start(t.Context(), b.Kubectl(writeKubeconfig(t, b, r), "get", "namespaces"))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		r.waitLogged(t, "kubectl at "+r.name, len(before), 1, refused)
	}
}

// With a wrong password kubectl gets nothing, and the proxy says why.
func TestKubectlWrongPassword(t *testing.T) {
	b := sharedBed(t)
	for _, r := range kubectlRoutes(b) {
		if r.proxy.User == nil {
			continue // it asks for no password
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.proxy.User = url.UserPassword(bed.ProxyUser, "wrong")
			c := b.Kubectl(writeKubeconfig(t, b, r), "get", "namespaces", "--request-timeout=20s")
			out, err := b.Network.Client.Run(t.Context(), c)
			if err == nil {
				t.Fatalf("kubectl get: got %q, want an error", out)
			}
			t.Log(err)
			if r.refused != nil {
				r.waitLogged(t, "the refusal", 0, 1, r.refused)
			}
		})
	}
}

// kubectl runs kubectl in the client namespace by one route.
type kubectl struct {
	t          *testing.T
	bed        *bed.Bed
	route      route
	kubeconfig string
}

func (k kubectl) run(args ...string) string {
	k.t.Helper()
	out, err := k.bed.Network.Client.Run(k.t.Context(), k.bed.Kubectl(k.kubeconfig, args...))
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

// watch sees an object that is created while it runs. It runs once it has
// printed the object that was there before.
func (k kubectl) watch(ns string) {
	k.t.Helper()
	ctx := k.t.Context()
	w, err := k.bed.Network.Client.Start(ctx,
		k.bed.Kubectl(k.kubeconfig, "get", "configmaps", "-n", ns, "--watch", "-o", "name"))
	if err != nil {
		k.t.Fatal(err)
	}
	defer w.Stop()
	if err := w.WaitFor(ctx, "configmap/before\n"); err != nil {
		k.t.Fatal(err)
	}
	k.run("create", "configmap", "during", "-n", ns)
	if err := w.WaitFor(ctx, "configmap/during\n"); err != nil {
		k.t.Fatal(err)
	}
}

// logged runs fn, which runs kubectl n times, and waits until the proxy's own
// log shows that many more connections to the API server.
func (k kubectl) logged(what string, n int, fn func()) {
	k.t.Helper()
	before, err := k.route.lines(k.route.logged)
	if err != nil {
		k.t.Fatal(err)
	}
	fn()
	k.route.waitLogged(k.t, what, len(before), n, k.route.logged)
}

// waitLogged waits until the proxy's log has n lines with parts, after those
// that it had before: squid writes a tunnel's line at the tunnel's end.
func (r route) waitLogged(t *testing.T, what string, before, n int, parts []string) {
	t.Helper()
	err := bed.Poll(t.Context(), "the proxy to log "+what, func(context.Context) error {
		after, err := r.lines(parts)
		if err != nil {
			return bed.Stop(err)
		}
		if got := len(after) - before; got < n {
			return fmt.Errorf("its log has %d new lines with %q, want %d", got, parts, n)
		}
		t.Logf("%s: %s", what, after[len(after)-1])
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// lines returns the lines of the proxy's log that have all parts.
func (r route) lines(parts []string) ([]string, error) {
	lines, err := r.log()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(lines, func(line string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	}), nil
}

package e2e

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// A route is a way from the client to the API server.
type route struct {
	name    string
	proxy   *url.URL
	proxyCA []byte                   // of an https proxy
	log     func() ([]string, error) // the proxy's own
	logged  []string                 // what its line of kubectl's connection has
	client  []string                 // what its line of a Client's connection has
	refused []string                 // what its line of a refused password has
}

func routes(b *bed.Bed) []route {
	connect := " CONNECT " + b.Kube.Address() + " "
	user := "user=" + bed.ProxyUser
	http := "port=" + b.Squid.URL().Port() + " "
	https := "port=" + b.Squid.TLSURL().Port() + " tls=TLS/1.3 "
	dante := []string{
		"pass(1): tcp/connect [",
		"username%" + bed.ProxyUser + "@" + bed.ClientIP + ".",
		" " + b.Kube.Host() + "." + strconv.Itoa(int(b.Kube.Port())), // its way to write a port
	}
	return []route{{
		name:    "squid-http",
		proxy:   b.Squid.URL(),
		log:     b.Squid.AccessLog,
		logged:  []string{http, "status=200", connect, user},
		client:  []string{http, "status=200", connect, user},
		refused: []string{http, "status=407", connect},
	}, {
		name:    "squid-https",
		proxy:   b.Squid.TLSURL(),
		proxyCA: b.Squid.CA.CertPEM(),
		log:     b.Squid.AccessLog,
		// kubectl shows an https proxy the certificate that is meant for the
		// server. That the log has it gives its absence with our client a
		// meaning.
		logged:  []string{https, "client-certificate=/O=system:masters/CN=kubernetes-admin", "status=200", connect, user},
		client:  []string{https, "client-certificate=- ", "status=200", connect, user},
		refused: []string{https, "status=407", connect},
	}, {
		name:    "dante",
		proxy:   b.Dante.URL(),
		log:     b.Dante.Log,
		logged:  dante,
		client:  dante,
		refused: []string{"block(1)", bed.ClientIP + ".", "authentication failed for user"},
	}}
}

func TestKubectl(t *testing.T) {
	b := sharedBed(t)
	for _, r := range routes(b) {
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

// With a wrong password kubectl gets nothing, and the proxy says why.
func TestKubectlWrongPassword(t *testing.T) {
	b := sharedBed(t)
	for _, r := range routes(b) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.proxy.User = url.UserPassword(bed.ProxyUser, "wrong")
			c := b.Kubectl(writeKubeconfig(t, b, r), "get", "namespaces", "--request-timeout=20s")
			out, err := b.Network.Client.Run(t.Context(), c)
			if err == nil {
				t.Fatalf("kubectl get: got %q, want an error", out)
			}
			t.Log(err)
			r.waitLogged(t, "the refusal", 0, 1, r.refused)
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

package propagate_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// walk is what may happen to a Cluster, in any order.
var walk = []func(*world){
	func(w *world) { w.installation("HTTP_PROXY", proxy, "HTTPS_PROXY", proxy, "NO_PROXY", people) },
	func(w *world) { w.installation("HTTP_PROXY", other, "HTTPS_PROXY", other) },
	func(w *world) { w.installation("direct", "true") },
	func(w *world) { w.installation() },
	func(w *world) { w.held.Installation = nil },
	func(w *world) { w.override("HTTP_PROXY", other, "NO_PROXY", "a.test") },
	func(w *world) { w.override("direct", "true", "ownList", "true", "containerd", "installation") },
	func(w *world) { w.override("credentials", "everywhere") },
	func(w *world) { w.override("credentials", "nowhere") },
	func(w *world) { w.override("x", canary) },
	func(w *world) { w.held.Override = nil },
	func(w *world) { w.override("direct", "false") },
	func(w *world) { w.config.Credentials = proxyconfig.CredentialsEverywhere },
	func(w *world) { w.config.Credentials = proxyconfig.CredentialsNowhere },
	func(w *world) { w.config.ContainerdInstallation = !w.config.ContainerdInstallation },
	func(w *world) { w.cluster.Facts.ControlPlaneHosts = nil },
	func(w *world) { w.cluster.Facts.ControlPlaneHosts = []string{"192.0.2.1"} },
	func(w *world) { w.cluster.Paused = !w.cluster.Paused },
	func(w *world) { w.cluster.Deleting = !w.cluster.Deleting },
	func(w *world) { w.cluster.UID += "x" },
	func(w *world) { w.held.SystemdProxy = nil },
	func(w *world) { w.held.Secret = nil },
	func(w *world) { w.held.ConfigMap = nil },
	func(w *world) {
		if w.held.Secret != nil {
			w.held.Secret.Data["values"], w.held.Secret.Labels = []byte("x"), nil
		}
	},
	func(w *world) {
		if w.held.SystemdProxy != nil {
			w.held.SystemdProxy.Data["containerdProxy"], w.held.SystemdProxy.Data["x"] = []byte("x"), []byte("x")
		}
	},
	func(w *world) {
		if w.held.Secret != nil {
			w.held.Secret.Labels = map[string]string{propagate.LabelManagedBy: "causeway"}
		}
	},
}

// Whatever happens: a second pass writes nothing, nothing is written on account
// of what can't be used, no object is written that is another's, and none has
// credentials that were not to be there.
func TestWalk(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t)
		for range 24 {
			step := r.IntN(len(walk))
			walk[step](w)
			w.check()
			if t.Failed() {
				t.Fatalf("seed %d, after step %d", seed, step)
			}
		}
	}
}

func (w *world) check() {
	w.t.Helper()
	theirs := w.held.Secret != nil && w.held.Secret.Labels[propagate.LabelManagedBy] != "causeway"
	early := len(w.cluster.Facts.ControlPlaneHosts) == 0
	names, err := w.settle()
	refused := errors.As(err, new(*propagate.SourceError))
	for _, name := range names {
		switch {
		case refused, w.cluster.Paused, w.cluster.Deleting:
			w.t.Errorf("got %s, want no write (%v)", name, err)
		case theirs && strings.HasSuffix(name, "Secret org/one-cluster-values"):
			w.t.Errorf("got %s, which is another's", name)
		case early && strings.HasSuffix(name, "-systemd-proxy"):
			w.t.Errorf("got %s without an endpoint", name)
		}
	}
	if refused || w.cluster.Paused || w.cluster.Deleting || early {
		return
	}
	if w.held.SystemdProxy == nil || w.held.Secret == nil || w.held.ConfigMap == nil {
		w.t.Fatal("an object is missing")
	}
	mine := w.held.Override != nil && w.held.Override.Data["HTTP_PROXY"] != nil // its own credentials, and the installation's
	if w.config.Credentials == proxyconfig.CredentialsNowhere && !mine && strings.Contains(string(w.held.SystemdProxy.Data["containerdProxy"]), "Canary") {
		w.t.Error("credentials in a drop-in, want them nowhere")
	}
	direct := w.held.Override != nil && string(w.held.Override.Data["direct"]) == "true" || w.held.Installation.Data["direct"] != nil
	if got := w.dropIn()["HTTP_PROXY"]; (got == "") != (direct && !mine) {
		w.t.Errorf("got the proxy %q, want one: %t", got, !direct)
	}
}

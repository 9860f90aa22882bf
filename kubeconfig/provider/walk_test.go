package provider_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// A user's own, in the Secret and in the kubeconfig.
const (
	foreignKey   = "token-file"
	foreignNote  = "example.com/note"
	foreignTop   = "x-foreign: 12345678901234567890\n"
	foreignField = "x-cluster: 0x10\n"
)

// mark adds a user's own to the kubeconfig Secret.
func (w *world) mark() {
	s := w.secrets.Kubeconfig
	if s == nil || w.entry(s) == nil {
		return
	}
	s = s.DeepCopy()
	value := s.Data[kubeconfig.SecretKey]
	if !bytes.Contains(value, []byte(foreignTop)) {
		value = append(bytes.Clone(value), foreignTop...)
		value = bytes.Replace(value, []byte("    server:"), []byte("    "+foreignField+"    server:"), 1)
	}
	s.Data[kubeconfig.SecretKey] = value
	s.Data[foreignKey] = []byte("theirs")
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[foreignNote], s.Labels[foreignNote] = "theirs", "theirs"
	w.secrets.Kubeconfig = w.stored(s)
}

// kept fails if something of the user's is gone.
func (w *world) kept() {
	w.t.Helper()
	s := w.secrets.Kubeconfig
	if string(s.Data[foreignKey]) != "theirs" || s.Annotations[foreignNote] != "theirs" || s.Labels[foreignNote] != "theirs" {
		w.t.Fatal("a key, annotation or label of the user's is gone")
	}
	for _, text := range []string{foreignTop, foreignField} {
		if !bytes.Contains(s.Data[kubeconfig.SecretKey], []byte(text)) {
			w.t.Fatalf("%q of the user's is gone", text)
		}
	}
}

// walk is what may happen to a Cluster, in any order.
var walk = []func(*world){
	func(w *world) { w.wait(10 * time.Second) },
	func(w *world) { w.wait(time.Minute) },
	func(w *world) { w.wait(12 * time.Minute) },
	func(w *world) { time.Sleep(200 * 24 * time.Hour) },
	func(w *world) { w.annotate("proxy-url", proxyA) },
	func(w *world) { w.annotate("proxy-url", proxyB) },
	func(w *world) { w.annotate("proxy-url", "direct") },
	func(w *world) { w.annotate("proxy-url", "http://u:"+canary+"@b.test") },
	func(w *world) { delete(w.cluster.Annotations, provider.AnnotationProxyURL) },
	func(w *world) { w.annotate("gateway", "http://gw.test:3128") },
	func(w *world) { delete(w.cluster.Annotations, provider.AnnotationGateway) },
	func(w *world) {
		w.annotate("route-secret", "route")
		w.route("route", map[string]string{"username": "u", "password": canary})
		w.secrets.SoleUser = true
	},
	func(w *world) {
		w.annotate("route-secret", "route")
		w.route("route", map[string]string{"username": "u", "password": canary + "2", "proxy-url": proxyA})
	},
	func(w *world) {
		w.annotate("route-secret", "route")
		w.route("route", map[string]string{"proxy-url": "https://u:" + canary + "@c.test:1"})
	},
	func(w *world) { w.secrets.Route = nil },
	func(w *world) { delete(w.cluster.Annotations, provider.AnnotationRouteSecret) },
	func(w *world) { w.annotate("no-proxy", "192.0.2.0/28") },
	func(w *world) { delete(w.cluster.Annotations, provider.AnnotationNoProxy) },
	func(w *world) { w.annotate("rollback", "") },
	func(w *world) { delete(w.cluster.Annotations, provider.AnnotationRollback) },
	func(w *world) { w.annotate("probe", "off") },
	func(w *world) { w.annotate("probe", "on") },
	func(w *world) { w.probe = down() },
	func(w *world) { w.probe = down("") },
	func(w *world) { w.probe = down("a.test") },
	func(w *world) { w.probe = down("b.test", "c.test") },
	func(w *world) { w.probe = down("", "test") },
	func(w *world) { w.annotate("mode", "own") },
	func(w *world) { w.annotate("mode", "secondary") },
	func(w *world) { w.annotate("mode", "rewrite"); w.annotate("server", "tunnel.svc:6443") },
	func(w *world) { w.annotate("mode", "off") },
	func(w *world) { w.annotate("mode", "x") },
	func(w *world) { delete(w.cluster.Annotations, provider.AnnotationMode) },
	func(w *world) { w.cluster.HasControlPlane = !w.cluster.HasControlPlane },
	func(w *world) { w.cluster.Paused = !w.cluster.Paused },
	func(w *world) { w.cluster.Deleting = !w.cluster.Deleting },
	func(w *world) { w.cluster.Endpoint.Host = "192.0.2.20" },
	func(w *world) { w.cluster.Endpoint.Host = "192.0.2.10" },
	func(w *world) { w.cluster.Endpoint = kubeconfig.Endpoint{} },
	func(w *world) { w.cluster.Endpoint = kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443} },
	func(w *world) { w.cluster.MoreEndpoints = []kubeconfig.Endpoint{{Host: "192.0.2.11", Port: 6443}} },
	func(w *world) { w.ca = newAuthority(w.t); w.secrets.CA = w.ca.secret() },
	func(w *world) { w.secrets.CA = w.secrets.CA.DeepCopy(); delete(w.secrets.CA.Data, "tls.key") },
	func(w *world) { w.secrets.CA = w.ca.secret() },
	func(w *world) { w.config.Results = map[string]provider.Result{} }, // the provider starts anew
	func(w *world) {
		if w.cluster.Endpoint.Port != 0 {
			w.controlPlane()
			w.mark()
		}
	},
	func(w *world) { w.secrets.Kubeconfig = nil },
	func(w *world) {
		if s := w.secrets.Kubeconfig; s != nil {
			s = s.DeepCopy()
			s.Data[kubeconfig.SecretKey] = []byte("clusters: [" + canary)
			w.secrets.Kubeconfig = w.stored(s)
		}
	},
}

// Whatever happens: Plan ends in a state where it does nothing, tells no
// secret, keeps what is not its own, and does not go around a proxy. The walks are
// the same each time, but for CAUSEWAY_WALKS, how many there are (40).
func TestWalk(t *testing.T) {
	walks := 40
	if text := os.Getenv("CAUSEWAY_WALKS"); text != "" {
		var err error
		if walks, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	last := byte(len(walk) - 3) // the control plane makes the Secret
	for i := range byte(len(walk)) {
		walkOf(t, fmt.Sprintf("decorate/%d", i), []byte{last, 4, 0, i, 0, 2, last})
		walkOf(t, fmt.Sprintf("secondary/%d", i), []byte{last, 30, 13, 9, 0, i, 0, 2, 5, 0})
	}
	for seed := range walks {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		steps := make([]byte, 24)
		for i := range steps {
			steps[i] = byte(r.IntN(len(walk)))
		}
		walkOf(t, fmt.Sprintf("random/%d", seed), steps)
	}
}

func walkOf(t *testing.T, name string, steps []byte) {
	inBubble(t, name, func(t *testing.T, w *world) {
		w.config.Interval = 6 * time.Minute
		w.steps(steps)
	})
}

// steps takes the walk.
func (w *world) steps(steps []byte) {
	w.t.Helper()
	for _, step := range steps {
		walk[int(step)%len(walk)](w)
		readable := w.secrets.Kubeconfig != nil && w.entry(w.secrets.Kubeconfig) != nil
		w.settle()
		if s := w.secrets.Kubeconfig; s != nil && readable && w.entry(s) != nil && s.Annotations[foreignNote] != "" {
			w.kept()
		}
		w.mark()
		w.settle()
		w.routed()
	}
}

// routed fails if the route is said to be good, and is another one.
func (w *world) routed() {
	w.t.Helper()
	c := w.cluster.Condition
	if c == nil || w.cluster.Paused || c.Status != metav1.ConditionTrue || c.Reason != provider.ReasonReady {
		return
	}
	s := w.secrets.Kubeconfig
	if _, err := provider.Resolve(w.cluster, w.config); err != nil {
		w.t.Fatalf("ready in spite of %v", err)
	}
	settings, _ := provider.Resolve(w.cluster, w.config)
	if settings.Mode == provider.Secondary {
		s = w.secrets.Secondary
	}
	entry := w.entry(s)
	host := strings.TrimPrefix(settings.ProxyURL+settings.Gateway, "http://")
	if host == "" || host == provider.Direct || settings.NoProxy != "" {
		return
	}
	if s := w.secrets.Route; s != nil && s.Data["proxy-url"] != nil && settings.RouteSecret != "" {
		u, err := url.Parse(string(s.Data["proxy-url"]))
		if err != nil {
			w.t.Fatal(err)
		}
		host = u.Host
	}
	if !strings.Contains(entry.ProxyURL, host) {
		w.t.Fatalf("the route is %q, want one by %s", entry.ProxyURL, host)
	}
}

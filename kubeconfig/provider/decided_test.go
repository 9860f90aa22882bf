package provider_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// Who has a kubeconfig has a server: the Cluster's endpoint, which managed clusters may lack, or have in
// another spelling, is for making one.
func TestNoEndpointNeeded(t *testing.T) {
	for _, mode := range []string{"decorate", "secondary", "rewrite", "own"} {
		inBubble(t, mode, func(t *testing.T, w *world) {
			w.controlPlane()
			w.cluster.Endpoint = kubeconfig.Endpoint{}
			w.annotate("mode", mode)
			w.annotate("server", "tunnel.svc:6443")
			w.annotate("proxy-url", proxyA)
			w.wait(20 * time.Minute)
			w.condition(metav1.ConditionTrue, provider.ReasonReady)
			if s := w.secrets.Kubeconfig; mode == "secondary" {
				w.secrets.Kubeconfig = w.secrets.Secondary
				w.proxy(proxyA)
				w.secrets.Kubeconfig = s
			} else {
				w.proxy(proxyA)
			}
		})
	}
	inBubble(t, "an endpoint that goes, and comes back as another", func(t *testing.T, w *world) {
		marked(w)
		w.cluster.Endpoint = kubeconfig.Endpoint{}
		w.wait(15 * time.Minute)
		w.proxy(proxyA)
		w.server(endpointA)
		w.cluster.Endpoint = kubeconfig.Endpoint{Host: "192.0.2.20", Port: 6443}
		w.wait(15 * time.Minute)
		w.server(endpointB)
		w.proxy(proxyA)
	})
	inBubble(t, "a corrupted kubeconfig", func(t *testing.T, w *world) {
		marked(w)
		w.cluster.Endpoint = kubeconfig.Endpoint{}
		s := w.secrets.Kubeconfig.DeepCopy()
		s.Data["value"] = []byte("x")
		w.secrets.Kubeconfig = w.stored(s)
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonCorrupted)
		w.message("the Cluster has no spec.controlPlaneEndpoint yet that can be used")
	})
	for server, spelled := range map[string]string{
		"https://a1b2.eks.amazonaws.com":  "https://c3d4.eks.amazonaws.com:443",
		"HTTPS://A1B2.EKS.amazonaws.com/": "https://c3d4.eks.amazonaws.com:443",
	} {
		inBubble(t, "an endpoint that moves/"+server, func(t *testing.T, w *world) {
			w.cluster.Endpoint = kubeconfig.Endpoint{Host: "a1b2.eks.amazonaws.com", Port: 443}
			w.controlPlane()
			w.edit(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = server })
			w.annotate("proxy-url", proxyA)
			w.wait(15 * time.Minute)
			w.server(server)
			w.cluster.Endpoint.Host = "c3d4.eks.amazonaws.com"
			w.wait(15 * time.Minute)
			w.server(spelled)
		})
	}
}

// The condition names the infrastructure object while the provider waits for it.
func TestInfrastructureTold(t *testing.T) {
	inBubble(t, "waiting", func(t *testing.T, w *world) {
		endpoint := w.cluster.Endpoint
		w.cluster.Endpoint, w.cluster.Infrastructure = kubeconfig.Endpoint{}, "MyProviderCluster i1"
		for _, want := range []bool{true, false} {
			w.settle()
			if m := w.cluster.Condition.Message; strings.Contains(m, "MyProviderCluster i1") != want {
				t.Errorf("got %q", m)
			}
			w.cluster.Endpoint = endpoint
			w.controlPlane()
		}
	})
}

// Managed says who may replace another's condition.
func TestManaged(t *testing.T) {
	managed := func(w *world, want bool) {
		w.t.Helper()
		if got := w.plan().Managed; got != want {
			w.t.Errorf("got Managed %v, want %v", got, want)
		}
	}
	inBubble(t, "decorate", func(t *testing.T, w *world) {
		w.controlPlane()
		w.settle()
		managed(w, false)
		w.annotate("proxy-url", proxyA)
		managed(w, true) // it is to be written
		w.settle()
		managed(w, true)
		w.config.Name = "another"
		w.settle()
		managed(w, false)
		w.condition(metav1.ConditionFalse, provider.ReasonManagedByOther)
	})
	inBubble(t, "own", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		managed(w, true)
	})
	inBubble(t, "secondary beside another", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("proxy-url", proxyA)
		w.settle()
		w.config.Name = "another"
		w.annotate("mode", "secondary")
		w.settle()
		if w.secrets.Secondary == nil {
			t.Fatal("no second Secret")
		}
		managed(w, false)
	})
}

// The condition says for which generation of the Cluster it is. The Secret does not.
func TestObservedGeneration(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		w.cluster.Generation = 3
		decorated(w)
		writes := w.writes
		w.cluster.Generation = 4
		w.settle()
		if got := w.cluster.Condition.ObservedGeneration; got != 4 || w.writes != writes {
			t.Errorf("got generation %d, want 4; %d writes", got, w.writes-writes)
		}
	})
}

func TestWriteFailed(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for _, test := range []struct {
		err  error
		says string // empty: is no failure
	}{
		{nil, ""},
		{apierrors.NewConflict(secrets, "x", errors.New("changed")), ""},
		{apierrors.NewNotFound(secrets, "x"), ""},
		{apierrors.NewForbidden(secrets, "x", errors.New("denied by a policy")), "denied by a policy. Give the provider the right"},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "x", nil), "immutable"},
		{apierrors.NewAlreadyExists(secrets, "x"), "lacks the label cluster.x-k8s.io/cluster-name"},
		{errors.New("no route to host"), "no route to host. It is tried again"},
	} {
		inBubble(t, test.says, func(t *testing.T, w *world) {
			decorated(w)
			w.annotate("proxy-url", proxyB)
			a := w.plan()
			got := provider.WriteFailed(w.cluster, a, w.config, test.err)
			if test.says == "" {
				if got.Condition != nil || len(got.Events) > 0 {
					t.Fatalf("got %s", toJSON(got))
				}
				return
			}
			c := got.Condition
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != provider.ReasonWriteFailed || !strings.Contains(c.Message, test.says) || !strings.Contains(c.Message, "c1-kubeconfig") {
				t.Fatalf("got %s, want one that says %q", toJSON(c), test.says)
			}
			if len(got.Events) != 1 || !got.Managed || got.Update != nil {
				t.Errorf("got %s", toJSON(got))
			}
			w.do(got)
			if again := provider.WriteFailed(w.cluster, a, w.config, test.err); len(again.Events) > 0 {
				t.Error("a second Event")
			}
			w.settle()
			w.condition(metav1.ConditionTrue, provider.ReasonReady)
		})
	}
}

// What an Event or a condition says of the route is what was decided, and not what was asked for.
func TestToldAsDecided(t *testing.T) {
	for name, test := range map[string]struct {
		settings func(*world)
		reason   string
		want     string
	}{
		"on the list of what is direct": {func(w *world) { w.config.Defaults.NoProxy = "192.0.2.0/24"; w.annotate("proxy-url", proxyA) }, provider.ReasonCreated, "the route is direct"},
		"not on the list":               {func(w *world) { w.config.Defaults.NoProxy = "10.0.0.0/8"; w.annotate("proxy-url", proxyA) }, provider.ReasonCreated, "the route is " + proxyA},
		"of a tunnel":                   {func(w *world) { w.cluster.Tunnel = true; w.ticket(canary) }, provider.ReasonCreated, `the route is tunnel to "clusters/c1" by http://gateway.test:3128`},
		"another server": {func(w *world) {
			w.controlPlane()
			w.annotate("mode", "rewrite")
			w.annotate("server", "tunnel.svc:6443")
		}, provider.ReasonSwitched,
			"the route is direct, to https://tunnel.svc:6443"},
		"nothing configured": {func(w *world) {
			w.controlPlane()
			w.edit(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = proxyB })
			w.annotate("mode", "secondary")
		},
			provider.ReasonCreated, "the route is " + proxyB},
		"probes off by a flag":       {func(w *world) { w.config.Defaults.NoProbe = true }, provider.ReasonNotProbed, "Config.Defaults.NoProbe: the probes are off"},
		"probes off for a Namespace": {func(w *world) { w.cluster.NamespaceAnnotations[provider.AnnotationProbe] = "off" }, provider.ReasonNotProbed, "causewayproject.github.io/probe of the Namespace: the probes are off"},
	} {
		inBubble(t, name, func(t *testing.T, w *world) {
			w.cluster.HasControlPlane = false
			test.settings(w)
			w.settle()
			if c := w.cluster.Condition; c != nil {
				w.events = append(w.events, provider.Event{Reason: c.Reason, Message: c.Message})
			}
			for _, e := range w.events {
				if e.Reason == test.reason && strings.Contains(e.Message+".", test.want) {
					return
				}
			}
			t.Errorf("got %s, want %s: %s", toJSON(w.events), test.reason, test.want)
		})
	}
}

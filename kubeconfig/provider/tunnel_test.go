package provider_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const tunnelGateway = "http://gateway.test:3128"

// ticket makes the Secret that the tunnel's server writes.
func (w *world) ticket(password string) {
	w.route(name+provider.SuffixTunnelRoute, map[string]string{
		provider.KeyUsername: namespace + "/" + name, provider.KeyPassword: password, provider.KeyGateway: tunnelGateway})
}

func (w *world) throughTunnel(password string) {
	w.t.Helper()
	w.proxy("http://" + namespace + "%2F" + name + ":" + password + "@gateway.test:3128")
}

// A Cluster with the label goes through the tunnel, whatever the settings farther away say.
func TestTunnelLabel(t *testing.T) {
	inBubble(t, "waits for the Secret", func(t *testing.T, w *world) {
		w.cluster.Tunnel = true
		w.controlPlane()
		w.settle()
		if w.condition(metav1.ConditionFalse, provider.ReasonNoSecret); w.writes != 0 || len(w.events) > 0 {
			t.Fatalf("got %d writes and the Events %s, want none", w.writes, toJSON(w.events))
		}
		w.ticket("one")
		w.settle()
		w.throughTunnel("one")
	})
	inBubble(t, "before an agent is there", func(t *testing.T, w *world) {
		w.cluster.Tunnel = true
		w.probe = down("gateway.test")
		w.ticket("one")
		w.controlPlane()
		w.settle()
		w.throughTunnel("one")
		w.condition(metav1.ConditionFalse, "TCPFailed")
		w.probe = down("")
		w.wait(2 * time.Minute)
		w.throughTunnel("one")
		w.condition(metav1.ConditionTrue, provider.ReasonReady)
	})
	for setting, set := range map[string]func(*world){
		"a proxy for all":              func(w *world) { w.config.Defaults.ProxyURL = proxyA },
		"a gateway for all":            func(w *world) { w.config.Defaults.Gateway = "http://other.test:3128" },
		"direct for all":               func(w *world) { w.config.Defaults.ProxyURL = provider.Direct },
		"a list of what is direct":     func(w *world) { w.config.Defaults.NoProxy = "192.0.2.0/24" },
		"a proxy of the Namespace":     func(w *world) { w.cluster.NamespaceAnnotations[provider.AnnotationProxyURL] = proxyA },
		"a direct Namespace":           func(w *world) { w.cluster.NamespaceAnnotations[provider.AnnotationProxyURL] = provider.Direct },
		"the Secret of the Namespace":  func(w *world) { w.cluster.NamespaceAnnotations[provider.AnnotationRouteSecret] = "other" },
		"an empty annotation":          func(w *world) { w.annotate("proxy-url", " ") },
		"the list of a Namespace":      func(w *world) { w.cluster.NamespaceAnnotations[provider.AnnotationNoProxy] = "*" },
		"the provider makes it itself": func(w *world) { w.cluster.HasControlPlane = false },
	} {
		inBubble(t, setting, func(t *testing.T, w *world) {
			w.cluster.Tunnel = true
			set(w)
			if w.cluster.HasControlPlane {
				w.controlPlane()
			}
			w.ticket("one")
			w.settle()
			w.throughTunnel("one")
		})
	}
}

// Annotations of the Cluster count more than its label.
func TestTunnelLabelIsNotNearest(t *testing.T) {
	inBubble(t, "proxy", func(t *testing.T, w *world) {
		w.cluster.Tunnel = true
		w.controlPlane()
		w.annotate("proxy-url", proxyA)
		w.settle()
		w.proxy(proxyA)
	})
	inBubble(t, "another gateway than that of the ticket", func(t *testing.T, w *world) {
		w.cluster.Tunnel = true
		w.controlPlane()
		w.annotate("gateway", "http://nearer.test:3128")
		w.ticket("one")
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonSecretRefused)
		w.proxy("")
	})
}

// A fresh ticket is probed once, and begins no grace period.
func TestTunnelTicketRenewed(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		w.cluster.Tunnel = true
		w.controlPlane()
		w.ticket("one")
		w.wait(20 * time.Minute)
		w.phase(provider.StateReady)
		probes, writes := w.probes, w.writes
		w.ticket("two")
		w.settle()
		w.throughTunnel("two")
		w.phase(provider.StateReady)
		if w.probes-probes != 1 || w.writes-writes != 1 {
			t.Errorf("got %d probes and %d writes for another ticket, want 1 and 1", w.probes-probes, w.writes-writes)
		}
		w.secrets.Route = nil
		w.settle()
		w.throughTunnel("two")
	})
}

func TestReadTunnelLabel(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "yes": false} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster"}}
		u.SetLabels(map[string]string{provider.LabelTunnel: value})
		if c, err := provider.ReadCluster(u, nil); err != nil || c.Tunnel != want {
			t.Errorf("%q: got %t, %v, want %t", value, c.Tunnel, err, want)
		}
	}
}

// The tunnel's agent dials the kubeconfig's server. EKS and GKE leave its port out; Rancher and
// kcp have a path, which no agent can dial.
func TestTunnelServer(t *testing.T) {
	for server, want := range map[string]string{
		"https://a1b2.eks.amazonaws.com":           "https://a1b2.eks.amazonaws.com:443",
		"https://[2001:db8::1]/":                   "https://[2001:db8::1]:443",
		"https://192.0.2.9:6443/":                  "https://192.0.2.9:6443",
		"HTTPS://192.0.2.9:6443":                   "HTTPS://192.0.2.9:6443",
		"https://rancher.test/k8s/clusters/c-m-1":  "",
		"https://kcp.test:6443/clusters/root:org/": "",
	} {
		inBubble(t, server, func(t *testing.T, w *world) {
			w.cluster.Tunnel = true
			w.ticket("one")
			w.controlPlane()
			w.secrets.Kubeconfig.Data["value"] = []byte(strings.Replace(string(w.secrets.Kubeconfig.Data["value"]), w.kubeconfig().Server, server, 1))
			w.settle()
			if want == "" {
				w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
				if got := w.cluster.Condition.Message; !strings.Contains(got, "route-secret of the Cluster: ") || !strings.Contains(got, "a server with a path needs a proxy-url") {
					t.Errorf("got %q", got)
				}
				return
			}
			w.throughTunnel("one")
			if got := w.kubeconfig().Server; strings.TrimSuffix(got, "/") != want && strings.TrimSuffix(got, "/")+":443" != want {
				t.Errorf("got the server %s, want %s", got, want)
			}
		})
	}
}

// The files name keys of the Secret that the tunnel's server writes, for root only.
func TestAgentFiles(t *testing.T) {
	spec := provider.AgentFiles("c1")
	var keys []string
	for _, f := range spec.Files {
		keys = append(keys, f.ContentFrom.Secret.Name+" "+f.ContentFrom.Secret.Key)
		if f.Permissions != "0600" {
			t.Errorf("%s: got mode %s, want 0600", f.Path, f.Permissions)
		}
	}
	if want := []string{"c1-tunnel-agent " + provider.KeyAgentInvitation, "c1-tunnel-agent " + provider.KeyAgentUnit}; !slices.Equal(keys, want) {
		t.Errorf("got the keys %q, want %q", keys, want)
	}
	if len(spec.PreKubeadmCommands) != 2 {
		t.Errorf("got %q", spec.PreKubeadmCommands)
	}
}

// What can't be written into the files is refused by field, also if no ReadCluster has checked it.
func TestAgentSecret(t *testing.T) {
	good := provider.AgentSecret{Invitation: "A=b\n", Image: "registry.test/agent:1", Endpoint: kubeconfig.Endpoint{Host: "2001:db8::1", Port: 6443}, Port: 6443, SSH: true}
	data, err := good.Data()
	if err != nil || len(data) != 3 {
		t.Fatalf("got %q, %v", data, err)
	}
	const start = "\nExecStart=/usr/local/bin/causeway-agent --invitation=/etc/tunnel-agent/invitation.env --state=/var/lib/tunnel-agent" +
		" --alias=kubernetes.default.svc:443=127.0.0.1:6443 --alias=[2001:db8::1]:6443=127.0.0.1:6443 --allow=127.0.0.1:22 --authorized-keys=/root/.ssh/authorized_keys\n"
	if unit := string(data[provider.KeyAgentUnit]); !strings.Contains(unit, start) || strings.Count(unit, "\nExecStart") != 2 {
		t.Errorf("got the unit\n%s", unit)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(data[provider.KeyAgentPod], &pod); err != nil {
		t.Fatal(err)
	}
	if c := pod.Spec.Containers[0]; c.Image != good.Image || len(c.Args) != 6 || c.Args[3] != "--alias=[2001:db8::1]:6443=127.0.0.1:6443" || len(c.VolumeMounts) != 3 {
		t.Errorf("got the container %+v", c)
	}
	for want, change := range map[string]func(*provider.AgentSecret){
		"host":                func(s *provider.AgentSecret) { s.Endpoint.Host = "a\rExecStartPre=/bin/sh" },
		"no host":             func(s *provider.AgentSecret) { s.Endpoint.Host = "" },
		"port":                func(s *provider.AgentSecret) { s.Port = 1 << 16 },
		"image has a space":   func(s *provider.AgentSecret) { s.Image = "x: y" },
		"image has a control": func(s *provider.AgentSecret) { s.Image = "a\u0085b" },
	} {
		bad := good
		change(&bad)
		if data, err := bad.Data(); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(want, "no ")) {
			t.Errorf("%s: got %q, %v", want, data, err)
		}
	}
}

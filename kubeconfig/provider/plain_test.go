package provider_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const secureProxy = "https://p.test:3129"

// extended makes what client-go can't take of the proxy the only way that works, beside
// direct.
func extended(w *world) {
	w.controlPlane()
	w.annotate("proxy-url", secureProxy)
	w.annotate("route-secret", "route")
	w.route("route", map[string]string{"ca.crt": string(w.ca.cert)})
	w.probe = func(c *clientcmdapi.Cluster) error {
		if c.ProxyURL == secureProxy {
			return errors.New("proxy tls: the proxy's certificate is issued by another")
		}
		return nil
	}
	w.own = func(*clientcmdapi.Cluster) error { return nil }
}

// The verdict is a plain client-go's.
func TestCausewayOnly(t *testing.T) {
	failing := func(w *world, of ...string) {
		plain := w.probe
		w.probe = func(c *clientcmdapi.Cluster) error {
			if err := down(of...)(c); err != nil {
				return err
			}
			return plain(c)
		}
	}
	inBubble(t, "does not replace what works", func(t *testing.T, w *world) {
		extended(w)
		w.wait(30 * time.Minute)
		w.proxy("")
		w.condition(metav1.ConditionFalse, provider.ReasonCausewayOnly)
		if m := w.cluster.Condition.Message; !strings.Contains(m, "not in use yet") || !strings.Contains(m, "issued by another") {
			t.Errorf("got %q", m)
		}
	})
	inBubble(t, "replaces what does not work", func(t *testing.T, w *world) {
		extended(w)
		failing(w, "")
		w.wait(30 * time.Minute)
		w.proxy(secureProxy)
		w.condition(metav1.ConditionFalse, provider.ReasonCausewayOnly)
		w.phase(provider.StateReady)
		writes := w.writes
		w.wait(time.Hour)
		if w.writes != writes {
			t.Errorf("%d writes at rest", w.writes-writes)
		}
		w.own = down(secureProxy)
		w.wait(10 * time.Minute)
		w.condition(metav1.ConditionFalse, "ProxyTLSFailed")
	})
	inBubble(t, "falls back to what a plain client-go can take", func(t *testing.T, w *world) {
		decorated(w)
		controlPlane := w.secrets.Kubeconfig
		extended(w)
		w.secrets.Kubeconfig = w.stored(controlPlane)
		plain := w.probe
		failing(w, proxyA)
		w.wait(5 * time.Minute)
		w.proxy(secureProxy)
		w.probe = plain
		w.wait(5 * time.Minute)
		w.proxy(proxyA)
		w.wait(2 * time.Hour)
		w.proxy(proxyA)
		w.condition(metav1.ConditionFalse, provider.ReasonCausewayOnly)
	})
	inBubble(t, "more endpoints", func(t *testing.T, w *world) {
		w.cluster.MoreEndpoints = []kubeconfig.Endpoint{{Host: "192.0.2.11", Port: 6443}}
		decorated(w)
		w.probe, w.own = down(proxyA), down()
		w.wait(10 * time.Minute)
		w.condition(metav1.ConditionFalse, provider.ReasonCausewayOnly)
		w.probe = down()
		w.wait(time.Minute)
		w.condition(metav1.ConditionTrue, provider.ReasonReady)
	})
	inBubble(t, "a plain route is asked for once", func(t *testing.T, w *world) {
		w.cluster.MoreEndpoints = []kubeconfig.Endpoint{{Host: "192.0.2.11", Port: 6443}}
		decorated(w)
		w.own = func(*clientcmdapi.Cluster) error { t.Error("the extension is probed beside it"); return nil }
		w.wait(10 * time.Minute)
	})
}

// A Candidate says how it is to be probed, and has the Secret for that.
func TestCandidate(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		extended(w)
		w.route("route", map[string]string{"tls.crt": string(w.ca.cert), "tls.key": string(w.ca.key), "proxy-url": secureProxy})
		w.config.Now = time.Now()
		for plain := true; ; plain = false {
			a, err := provider.Plan(w.cluster, w.secrets, w.config)
			if err != nil || len(a.Probe) == 0 {
				t.Fatalf("got %s, %v", toJSON(a), err)
			}
			c := a.Probe[0]
			if o := c.Options(); o.Plain != plain || c.Extension == plain {
				t.Fatalf("got plain %v, want %v", o.Plain, plain)
			} else if !plain {
				data, err := o.ReadSecret(context.Background(), namespace, "route")
				if err != nil || string(data["tls.key"]) != string(w.ca.key) {
					t.Errorf("got %v", err)
				}
				if _, err := o.ReadSecret(context.Background(), namespace, "another"); err == nil {
					t.Error("another Secret is read")
				}
				return
			}
			w.answer(c)
		}
	})
}

// A Secret's kubeconfig must not choose a program that the provider runs, or a file that it sends.
func TestCandidateNamesNothingLocal(t *testing.T) {
	for name, user := range map[string]string{
		"a program":      "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}",
		"an old program": "auth-provider: {name: oidc}",
		"a token's file": "tokenFile: /run/token",
		"a key's file":   "client-certificate: /tls.crt\n    client-key: /tls.key",
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{kubeconfig.SecretKey: []byte(`
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443"}}]
users:
- name: u
  user:
    ` + user + "\n")}}
			secret.Namespace, secret.Name, secret.ResourceVersion = "org", "prod-kubeconfig", "1"
			action, err := provider.Plan(provider.Cluster{
				Namespace: "org", Name: "prod", APIVersion: "cluster.x-k8s.io/v1beta2", HasControlPlane: true,
				Endpoint: kubeconfig.Endpoint{Host: "10.0.0.1", Port: 6443},
			}, provider.Secrets{Kubeconfig: secret}, provider.Config{Now: time.Unix(1e9, 0), Defaults: provider.Settings{ProxyURL: "http://p.test:3128"}})
			if err != nil || len(action.Probe) == 0 {
				t.Fatalf("got %d candidates, %v", len(action.Probe), err)
			}
			for _, c := range action.Probe {
				if got := c.Config.AuthInfos["u"]; !reflect.DeepEqual(got, clientcmdapi.NewAuthInfo()) {
					t.Errorf("got a user with %+v", *got)
				}
			}
		})
	}
}

// An owner may renew the credentials at any time, and more often than a probe takes: who the user is
// says nothing of the way.
func TestRewrittenKubeconfig(t *testing.T) {
	n := 0
	for name, rewrite := range map[string]func(*world, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"a token": func(_ *world, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = fmt.Sprint(canary, n) },
		"a certificate": func(w *world, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			config, err := kubeconfig.Spec{Name: name, Endpoint: w.cluster.Endpoint, CA: w.ca.cert, Credentials: kubeconfig.Credentials{CAKey: w.ca.key}}.Build()
			if err != nil {
				w.t.Fatal(err)
			}
			*u = *config.AuthInfos[name+"-admin"]
		},
		"a password": func(_ *world, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Username, u.Password = "u", fmt.Sprint(canary, n)
		},
		"an extension of another program": func(_ *world, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Extensions = map[string]runtime.Object{"cluster_info": &runtime.Unknown{Raw: fmt.Appendf(nil, `{"last-update":%d}`, n), ContentType: "application/json"}}
		},
	} {
		inBubble(t, name, func(t *testing.T, w *world) {
			w.controlPlane()
			w.annotate("mode", "decorate")
			var asked []provider.Candidate
			for range 30 {
				n++
				w.edit(func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { rewrite(w, c, u) })
				for _, c := range asked { // after the next version is there
					w.answer(c)
				}
				w.config.Now = time.Now()
				a, err := provider.Plan(w.cluster, w.secrets, w.config)
				if err != nil {
					t.Fatal(err)
				}
				w.check(a)
				w.do(a)
				asked = a.Probe
				time.Sleep(time.Second)
			}
			w.condition(metav1.ConditionTrue, provider.ReasonReady)
			if w.probes > 1 {
				t.Errorf("%d probes in half a minute, want one", w.probes)
			}
		})
	}
}

// An answer is valid until the plan that has asked for it comes again, however short the interval is.
func TestShortInterval(t *testing.T) {
	inBubble(t, "a second", func(t *testing.T, w *world) {
		w.config.Interval = time.Second
		w.controlPlane()
		w.annotate("proxy-url", proxyA)
		w.settle()
		probes := w.probes
		time.Sleep(2 * time.Second)
		if w.plan(); w.probes != probes {
			t.Errorf("asked again after two seconds, %d times", w.probes-probes)
		}
	})
}

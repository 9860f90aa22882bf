package controllers_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// recorder is a proxy that takes what clients send, and answers nothing.
type recorder struct {
	net.Listener
	mu   sync.Mutex // guards seen
	seen bytes.Buffer
}

func newRecorder(t *testing.T, b *bed) *recorder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{Listener: listener}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				var request [4096]byte
				n, _ := io.ReadAtLeast(conn, request[:], 1)
				r.mu.Lock()
				fmt.Fprintf(&r.seen, "%s\n", request[:n])
				r.mu.Unlock()
				b.Touch()
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	return r
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen.String()
}

// plannedBed is a bed that plans and probes as the provider does.
func plannedBed(t *testing.T) *bed {
	b := newBed(t)
	b.setPlan(provider.Plan)
	b.r.Probe = nil
	b.r.SetProbeTimeout(5 * time.Second)
	return b
}

// addKubeconfig stores what the control plane makes.
func (b *bed) addKubeconfig(cluster string) {
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443'}}]\nusers: [{name: u, user: {token: t}}]\n"
	b.Set("secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
		"metadata": map[string]any{"namespace": "a", "name": cluster + "-kubeconfig", "labels": map[string]any{kubeconfig.ClusterNameLabel: cluster}},
		"data":     map[string]any{"value": base64.StdEncoding.EncodeToString([]byte(text))},
	})
}

// routeSecretFor is a route Secret with a user and more data.
func routeSecretFor(name, owner, password, key, proxy string) map[string]any {
	s := routeSecret(name, password)
	data := s["data"].(map[string]any)
	data[provider.KeyUsername] = base64.StdEncoding.EncodeToString([]byte("a/" + owner))
	if key != "" {
		data[key] = base64.StdEncoding.EncodeToString([]byte(proxy))
	}
	if owner != "" {
		s["metadata"].(map[string]any)["labels"].(map[string]any)[kubeconfig.ClusterNameLabel] = owner
	}
	return s
}

// hasReason says whether the Cluster's condition has the reason.
func (b *bed) hasReason(name, reason string) func() bool {
	return func() bool {
		u := b.Get(apitest.Named("clusters", "a", name))
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		return len(list) == 1 && list[0].(map[string]any)["reason"] == reason
	}
}

// The author of a Cluster's annotations gets the credentials of nobody else: neither at
// their proxy nor in their kubeconfig.
func TestStolenTicket(t *testing.T) {
	const ticket = "t1cket7f3a"
	for _, test := range []struct {
		name, owner, key, proxy string
		by                      string // the annotation with the attacker's proxy
	}{
		{"another Cluster's ticket", "two", provider.KeyGateway, "http://gateway.test:3128", provider.AnnotationProxyURL},
		{"another Cluster's ticket, as a gateway's", "two", provider.KeyGateway, "http://gateway.test:3128", provider.AnnotationGateway},
		{"a proxy's password", "", provider.KeyProxyURL, "http://proxy.test:3128", provider.AnnotationProxyURL},
		{"the password that all use", "", "", "", provider.AnnotationProxyURL},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := plannedBed(t)
			attacker := newRecorder(t, b)
			b.addKubeconfig("one")
			b.Set("secrets", routeSecretFor("theirs", test.owner, ticket, test.key, test.proxy))
			b.Set("clusters", cluster("a", "two", map[string]any{provider.AnnotationRouteSecret: "theirs", "cluster.x-k8s.io/paused": ""}))
			b.Set("clusters", cluster("a", "one", map[string]any{test.by: "http://" + attacker.Addr().String(), provider.AnnotationRouteSecret: "theirs"}))
			b.run(t)
			refused := b.hasReason("one", provider.ReasonSecretRefused)
			b.Until(t, "the refusal", func() bool { return refused() || attacker.text() != "" })
			if got := attacker.text(); got != "" {
				t.Fatalf("the proxy got %q, want no connection", got)
			}
			// Without the Secret it is a proxy like others, and is probed.
			b.Change(apitest.Named("clusters", "a", "one"), func(u *unstructured.Unstructured) {
				u.SetAnnotations(map[string]string{provider.AnnotationProxyURL: "http://" + attacker.Addr().String()})
			})
			b.Until(t, "a probe", func() bool { return strings.Contains(attacker.text(), "CONNECT 192.0.2.1:6443") })
			encoded := base64.StdEncoding.EncodeToString([]byte("a/" + test.owner + ":" + ticket))
			for what, text := range map[string]string{"the proxy": attacker.text(), "the kubeconfig": fmt.Sprint(b.Get(kubeconfigOf("a", "one")).Object), "its value": b.value(kubeconfigOf("a", "one"), "value")} {
				if strings.Contains(text, ticket) || strings.Contains(text, encoded) || strings.Contains(text, "Proxy-Authorization") {
					t.Errorf("%s has got the ticket: %s", what, text)
				}
			}
		})
	}
}

// A Secret that doesn't say what proxy it is for is used by one Cluster or none, also when a
// manager has just started, and knows no plan of the others.
func TestOldSecret(t *testing.T) {
	b := plannedBed(t)
	b.workers = 1
	b.addKubeconfig("three")
	b.Set("clusters", cluster("a", "three", map[string]any{"cluster.x-k8s.io/paused": ""}))
	b.Set("secrets", routeSecretFor("old", "", "password1", "", ""))
	for _, name := range []string{"one", "two"} {
		b.addKubeconfig(name)
		annotations := route(name + ".test:1")
		annotations[provider.AnnotationRouteSecret], annotations[provider.AnnotationProbe] = "old", "off"
		b.Set("clusters", cluster("a", name, annotations))
	}
	b.run(t)
	b.Until(t, "refusals", func() bool {
		return b.hasReason("one", provider.ReasonSecretRefused)() && b.hasReason("two", provider.ReasonSecretRefused)()
	})
	for _, name := range []string{"one", "two"} {
		if value := b.value(kubeconfigOf("a", name), "value"); strings.Contains(value, "password1") {
			t.Errorf("got %s of Cluster %s, want no password", value, name)
		}
	}
	// One worker, and no plan of what happened until now is left: those of three come last.
	for _, key := range []apitest.Key{apitest.Named("clusters", "a", "three"), kubeconfigOf("a", "three")} {
		plans := b.counted(b.plans, "a/three")
		b.Change(key, func(u *unstructured.Unstructured) { annotate(u, provider.Prefix+"foreign", "x") })
		b.Until(t, "a plan", func() bool { return b.counted(b.plans, "a/three") > plans })
	}
	b.Change(apitest.Named("clusters", "a", "two"), func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{provider.AnnotationMode: "off"})
	})
	b.Until(t, "use by the one that is left", func() bool {
		return b.hasReason("one", provider.ReasonSecretUnbound)() && strings.Contains(b.value(kubeconfigOf("a", "one"), "value"), "password1@one.test")
	})
	name := func(secret string) {
		b.Change(apitest.Named("clusters", "a", "two"), func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{provider.AnnotationProxyURL: "http://two.test:1", provider.AnnotationRouteSecret: secret, provider.AnnotationProbe: "off"})
		})
	}
	name("old")
	b.Until(t, "one that is not alone", b.hasReason("one", provider.ReasonSecretRefused))
	// To many that share it, one that comes and goes is no news.
	const users, moves = 40, 5
	for n := range users {
		b.Set("clusters", cluster("a", fmt.Sprint("more", n), map[string]any{provider.AnnotationRouteSecret: "old"}))
		b.Until(t, "a plan", func() bool { return b.counted(b.plans, fmt.Sprint("a/more", n)) > 0 })
	}
	before := b.counted(b.plans, "a/more0")
	for range moves {
		for _, secret := range []string{"another", "old"} {
			plans := b.counted(b.plans, "a/two")
			name(secret)
			b.Until(t, "a plan", func() bool { return b.counted(b.plans, "a/two") > plans })
		}
	}
	if got := b.counted(b.plans, "a/more0") - before; got > 1 {
		t.Errorf("got %d plans of one of the others, want none", got)
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

const (
	overridePassword = "override9-canary-of-one"
	brokenPassword   = "broken9-canary"
	brokenProxy      = "http://user:" + brokenPassword + "/@other.example.com:3128" // the slash has to be escaped
)

// told waits for an Event with a reason about an object, whose note has a text.
func (p *propagation) told(t *testing.T, namespace, kind, name, reason, note string) {
	t.Helper()
	eventually(t, "an Event "+reason+" about "+kind+" "+name, func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := p.admin.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return err
		}
		last := errors.New("there is none")
		for _, e := range events.Items {
			if e.Regarding.Kind != kind || e.Regarding.Name != name || e.Reason != reason || e.Type != corev1.EventTypeWarning {
				continue
			}
			if strings.Contains(e.Note, note) {
				return nil
			}
			last = fmt.Errorf("got %q", e.Note)
		}
		return last
	})
}

func (p *propagation) override(t *testing.T, cluster string, data map[string][]byte) {
	t.Helper()
	p.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: propagatedIn, Name: cluster + "-proxy-override",
		Labels: map[string]string{propagate.LabelOverride: ""}}, Data: data})
}

// An override changes what one Cluster has; one that can't be used changes
// nothing.
func (p *propagation) testOverride(t *testing.T) {
	before := p.held(t, propagatedIn)
	p.override(t, "c0000", map[string][]byte{
		propagate.KeyHTTPSProxy: []byte("http://user:" + overridePassword + "@other.example.com:3128"),
		propagate.KeyNoProxy:    []byte("only.example.com"),
	})
	own := objectsOf("c0000")
	p.watched.until(t, "the override to be written", func(objects map[string]seenObject) error {
		for i, text := range []string{overridePassword, overridePassword, "only.example.com"} {
			if !strings.Contains(objects[own[i]].text, text) {
				return fmt.Errorf("%s: there is no %s", own[i], text)
			}
		}
		return nil
	})
	p.bear(t, "after-override") // what else there was to be written was written before
	p.unchanged(t, before, own...)

	before = p.held(t, propagatedIn)
	p.override(t, "c0001", map[string][]byte{propagate.KeyHTTPProxy: []byte(brokenProxy)})
	p.told(t, propagatedIn, "Cluster", "c0001", propagate.ReasonOverride, "c0001-proxy-override")
	p.bear(t, "after-broken")
	p.unchanged(t, before)

	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: propagatedIn, Name: "c0002-proxy-override"}, Data: map[string][]byte{propagate.KeyDirect: []byte("true")}}
	if err := p.admin.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	p.told(t, propagatedIn, "Cluster", "c0002", propagate.ReasonOverride, "has no label")
	p.bear(t, "after-unlabelled")
	p.unchanged(t, before)
	delete(p.clusters, "c0000") // they are not as the others any more
	delete(p.clusters, "c0001")
}

// While the installation's Secret is not there, or can't be used, all stays as
// it is.
func (p *propagation) testInstallation(t *testing.T) {
	before := p.held(t, propagatedIn)
	good := p.config.EnvSecretData()
	for _, tt := range []struct {
		name  string
		harm  func()
		event string
	}{
		{"missing", func() {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: propagatorBase, Name: "installation-proxy"}}
			if err := p.admin.Delete(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}, "there is none; what was written before stays"},
		{"unescaped", func() {
			bad := maps.Clone(good)
			bad[propagate.KeyHTTPProxy] = []byte(brokenProxy)
			p.install(t, bad)
		}, "HTTP_PROXY"},
		{"unknown key", func() {
			bad := maps.Clone(good)
			bad["HTTPS_PROXIES"] = good[propagate.KeyHTTPProxy]
			p.install(t, bad)
		}, "key HTTPS_PROXIES: unknown"},
	} {
		tt.harm()
		p.told(t, propagatorBase, "Secret", "installation-proxy", propagate.ReasonInstallation, tt.event)
		late := "late-" + strings.ReplaceAll(tt.name, " ", "-")
		c, err := p.bearProxied(t.Context(), late, "10.32.0.1")
		if err != nil {
			t.Fatal(err)
		}
		p.clusters[late] = c
		p.unchanged(t, before)
		if _, ok := p.held(t, propagatedIn)["Secret "+late+"-systemd-proxy"]; ok {
			t.Errorf("%s: a Cluster was given a Secret", tt.name)
		}
		p.install(t, good)
		p.await(t, p.renderedOf(t, c))
		p.bear(t, "after-"+late) // and all had its turn
		p.unchanged(t, before)
	}
}

// What another manager made, or nobody known, is left as it is; an Event says so,
// and the rest is written.
func (p *propagation) testForeign(t *testing.T) {
	meta := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: propagatedIn, Name: name, Labels: labels}
	}
	p.create(t, &corev1.Secret{ObjectMeta: meta("foreign-systemd-proxy", map[string]string{propagate.LabelManagedBy: "cluster-apps-operator"}),
		Data: map[string][]byte{proxyconfig.ContainerdKey: []byte("[Service]\n")}})
	p.create(t, &corev1.ConfigMap{ObjectMeta: meta("foreign-cluster-values", nil), Data: map[string]string{proxyconfig.ValuesKey: "a: b\n"}})
	before := p.held(t, propagatedIn)
	c, err := p.bearProxied(t.Context(), "foreign", "10.33.0.1")
	if err != nil {
		t.Fatal(err)
	}
	const values = "Secret foreign-cluster-values"
	p.await(t, map[string]string{values: p.renderedOf(t, c)[values]})
	p.told(t, propagatedIn, "Cluster", c.Name, propagate.ReasonNotOurs, "foreign-systemd-proxy is managed by cluster-apps-operator")
	p.told(t, propagatedIn, "Cluster", c.Name, propagate.ReasonNotOurs, "foreign-cluster-values has no label")
	p.bear(t, "after-foreign")
	p.unchanged(t, before)
}

// What is left of a Cluster that is gone is nobody's business but the garbage
// collector's; one that is made anew with its name takes the objects over.
func (p *propagation) testDeleted(t *testing.T) {
	gone := p.bear(t, "gone")
	if err := p.admin.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	delete(p.clusters, gone.Name)
	p.bear(t, "after-gone")
	old := p.held(t, propagatedIn)
	p.next("after.example.com")
	p.install(t, p.config.EnvSecretData())
	p.await(t, p.rendered(t))
	now := p.held(t, propagatedIn)
	for _, name := range objectsOf(gone.Name) {
		if now[name].version != old[name].version {
			t.Errorf("%s was written, or deleted", name)
		}
	}
	p.bear(t, "gone")
	p.owned(t)
}

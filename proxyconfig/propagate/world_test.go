package propagate_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

const (
	// golden is the list of Giant Swarm's RFC, computed its own part, and people's the rest.
	golden   = "cluster.local,100.64.0.0/13,100.96.0.0/11,178.170.32.59,172.16.0.0/16,internal.corpdomain.net,example.com,svc,127.0.0.1,localhost"
	people   = "172.16.0.0/16,internal.corpdomain.net,example.com"
	computed = "cluster.local,100.64.0.0/13,100.96.0.0/11,178.170.32.59,svc,127.0.0.1,localhost"

	kubeconfigLabel = "cluster.x-k8s.io/cluster-name" // which backups and Cluster API look for

	canary = "Canary7f3aSecret"
	proxy  = "http://user:" + canary + "@192.168.52.220:3128"
	bare   = "http://192.168.52.220:3128"
	other  = "http://other:" + canary + "2@proxy.test:1"
)

// world is a Cluster, and what the API server holds of it.
type world struct {
	t       testing.TB
	cluster propagate.Cluster
	held    propagate.Held
	config  propagate.Config
	version int
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, version: 1}
	w.cluster = propagate.Cluster{
		Namespace: "org", Name: "one", UID: "uid-one", APIVersion: "cluster.x-k8s.io/v1beta2",
		Facts: noproxy.Cluster{ServiceCIDRs: []string{"100.64.0.0/13"}, PodCIDRs: []string{"100.96.0.0/11"}, ControlPlaneHosts: []string{"178.170.32.59"}},
	}
	w.config.Installation = "system/proxy"
	w.installation("HTTP_PROXY", proxy, "HTTPS_PROXY", proxy, "NO_PROXY", people)
	return w
}

func source(namespace, name string, pairs []string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for pair := range slices.Chunk(pairs, 2) {
		s.Data[pair[0]] = []byte(pair[1])
	}
	return s
}

func (w *world) installation(pairs ...string) { w.held.Installation = source("system", "proxy", pairs) }

// override makes one that is labelled and owned, as it is after the first plan.
func (w *world) override(pairs ...string) {
	s := source("org", "one-proxy-override", pairs)
	s.ResourceVersion = "1"
	s.Labels = map[string]string{propagate.LabelOverride: "", kubeconfigLabel: "one"}
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: w.cluster.APIVersion, Kind: "Cluster", Name: "one", UID: w.cluster.UID}}
	w.held.Override = s
}

// plan fails the test if Plan writes to what it is given, or tells a secret.
func (w *world) plan() (propagate.Action, error) {
	w.t.Helper()
	before := w.text()
	action, err := propagate.Plan(w.cluster, w.held, w.config)
	if got := w.text(); got != before {
		w.t.Fatalf("Plan has changed what it was given:\n%s\n%s", before, got)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, v := range []any{action, err, w.held, action.Writes, action.Events} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, "Canary") {
				w.t.Fatalf("the password is in %s", text)
			}
		}
	}
	return action, err
}

// text is all of the world.
func (w *world) text() string {
	text := fmt.Sprint(w.cluster)
	for _, s := range []*corev1.Secret{w.held.Installation, w.held.Override, w.held.SystemdProxy, w.held.Secret} {
		text += fmt.Sprintf("%p %v\n", s, s)
	}
	return text + fmt.Sprint(w.held.ConfigMap)
}

// apply does the writes, as an API server does, and returns their names.
func (w *world) apply(a propagate.Action) (names []string) {
	w.t.Helper()
	for _, o := range a.Writes {
		w.version++
		verb := "update "
		switch {
		case o.ConfigMap != nil:
			verb = w.store(o.ConfigMap.ResourceVersion, w.held.ConfigMap == nil, &o.ConfigMap.ObjectMeta)
			w.held.ConfigMap = o.ConfigMap
		case strings.HasSuffix(o.Secret.Name, "-proxy-override"):
			verb = w.store(o.Secret.ResourceVersion, w.held.Override == nil, &o.Secret.ObjectMeta)
			w.held.Override = o.Secret
		case strings.HasSuffix(o.Secret.Name, "-systemd-proxy"):
			verb = w.store(o.Secret.ResourceVersion, w.held.SystemdProxy == nil, &o.Secret.ObjectMeta)
			w.held.SystemdProxy = o.Secret
		default:
			verb = w.store(o.Secret.ResourceVersion, w.held.Secret == nil, &o.Secret.ObjectMeta)
			w.held.Secret = o.Secret
		}
		names = append(names, verb+o.String())
	}
	return names
}

func (w *world) store(version string, missing bool, meta *metav1.ObjectMeta) string {
	w.t.Helper()
	if (version == "") != missing {
		w.t.Fatalf("%s: got resourceVersion %q, want one if and only if it is there", meta.Name, version)
	}
	meta.ResourceVersion = strconv.Itoa(w.version)
	if missing {
		return "create "
	}
	return "update "
}

// settle plans and writes, and fails if a second pass writes something.
func (w *world) settle() (names []string, err error) {
	w.t.Helper()
	action, err := w.plan()
	names = w.apply(action)
	if again, _ := w.plan(); len(again.Writes) > 0 {
		w.t.Fatalf("got %v of a second pass, want nothing", again.Writes)
	}
	return names, err
}

// dropIn is the drop-in's variables, in upper case alone.
func (w *world) dropIn() map[string]string {
	vars := map[string]string{}
	if w.held.SystemdProxy == nil {
		return vars
	}
	for line := range strings.Lines(string(w.held.SystemdProxy.Data[proxyconfig.ContainerdKey])) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), `Environment="`)
		name, value, _ := strings.Cut(strings.TrimSuffix(line, `"`), "=")
		if ok && strings.ToUpper(name) == name {
			vars[name] = value
		}
	}
	return vars
}

// values is what apps read.
func (w *world) values() proxyconfig.Config {
	w.t.Helper()
	if w.held.Secret == nil || w.held.ConfigMap == nil {
		return proxyconfig.Config{}
	}
	c, err := proxyconfig.ReadValues([]byte(w.held.ConfigMap.Data["values"]), w.held.Secret.Data["values"])
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// got is what machines and apps get.
type got struct {
	Machines map[string]string
	Apps     proxyconfig.Config
}

func (w *world) got() got { return got{w.dropIn(), w.values()} }

func (g got) equal(o got) bool { return maps.Equal(g.Machines, o.Machines) && g.Apps == o.Apps }

// everywhere is the same for machines and apps.
func everywhere(url, list string) got { return machines(url, list, url, list) }

func machines(url, list, appURL, appList string) got {
	g := got{map[string]string{"NO_PROXY": list}, proxyconfig.Config{HTTPProxy: appURL, HTTPSProxy: appURL, NoProxy: appList}}
	if url != "" {
		g.Machines["HTTP_PROXY"], g.Machines["HTTPS_PROXY"] = url, url
	}
	return g
}

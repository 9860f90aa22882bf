package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

// Of many Clusters each has the objects with its proxies, soon after the
// password changed and whatever happens to the program; and the password is
// where it belongs, and nowhere else.
func (m *management) testPropagator(t *testing.T) {
	p := m.startPropagation(t, max(300, manyClusters(t)))
	t.Run("password", p.testPassword)
	t.Run("killed", p.testKilled)
	program := p.run(t, "--leader-election", propagatorBase)
	p.await(t, p.rendered(t))
	for _, tt := range []struct {
		name string
		test func(*testing.T)
	}{
		{"override", p.testOverride}, {"installation", p.testInstallation},
		{"foreign", p.testForeign}, {"deleted", p.testDeleted}, {"canary", p.testCanary},
	} {
		t.Run(tt.name, tt.test)
	}
	p.stop(t, program)
}

// propagation is proxy-propagator beside the management cluster.
type propagation struct {
	*management
	program  deployment
	logs     []*bed.Running // of all that ran
	clusters map[string]*clusterv1.Cluster
	watched  *watched

	config    proxyconfig.Config // the installation's
	password  string             // in it
	passwords []string           // of before
}

const propagatedIn = "propagator"

// startPropagation makes n Clusters; no program runs yet. There are no other
// Clusters: the program looks after all that there are, as its manifest has it.
func (m *management) startPropagation(t *testing.T, n int) *propagation {
	t.Helper()
	p := &propagation{management: m, program: m.deploy(t, "propagator", "proxy-propagator"), clusters: map[string]*clusterv1.Cluster{}}
	var others clusterv1.ClusterList
	if err := m.admin.List(t.Context(), &others); err != nil {
		t.Fatal(err)
	}
	for _, c := range others.Items {
		if err := m.admin.Delete(t.Context(), &c); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	m.namespace(t, propagatedIn)
	p.watched = m.watchObjects(t, propagatedIn)
	born := make([]*clusterv1.Cluster, n)
	makeMany(t, n, func(i int) (err error) {
		born[i], err = m.bearProxied(t.Context(), fmt.Sprintf("c%04d", i), fmt.Sprintf("10.30.%d.%d", i/250, i%250))
		return err
	})
	for _, c := range born {
		p.clusters[c.Name] = c
	}
	p.next("172.16.0.0/16,internal.example.com")
	return p
}

// bearProxied makes a Cluster that has what a list is computed from.
func (m *management) bearProxied(ctx context.Context, name, host string) (*clusterv1.Cluster, error) {
	c := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: propagatedIn, Name: name},
		Spec: clusterv1.ClusterSpec{
			ClusterNetwork: clusterv1.ClusterNetwork{
				Pods:          clusterv1.NetworkRanges{CIDRBlocks: []string{"100.96.0.0/11"}},
				Services:      clusterv1.NetworkRanges{CIDRBlocks: []string{"10.96.0.0/12"}},
				ServiceDomain: "cluster.local",
			},
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: host, Port: 6443},
			InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: bed.InfrastructureGroup, Kind: bed.InfrastructureKind, Name: name},
		},
	}
	return c, m.admin.Create(ctx, c)
}

// bear makes one more Cluster, and waits for its objects.
func (p *propagation) bear(t *testing.T, name string) *clusterv1.Cluster {
	t.Helper()
	c, err := p.bearProxied(t.Context(), name, "10.31.0.1")
	if err != nil {
		t.Fatal(err)
	}
	p.clusters[name] = c
	p.await(t, p.renderedOf(t, c))
	return c
}

// next gives the installation another password, and another list.
func (p *propagation) next(noProxy string) {
	if p.password != "" {
		p.passwords = append(p.passwords, p.password)
	}
	p.password = rand.Text()
	proxy := "http://user:" + p.password + "@proxy.example.com:3128"
	p.config = proxyconfig.Config{HTTPProxy: proxy, HTTPSProxy: proxy, NoProxy: noProxy}
}

// install writes the installation's Secret.
func (p *propagation) install(t *testing.T, data map[string][]byte) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: propagatorBase, Name: "installation-proxy"}, Data: data}
	err := p.admin.Update(t.Context(), s)
	if apierrors.IsNotFound(err) {
		err = p.admin.Create(t.Context(), s)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run runs the program until the test ends, and returns when it works.
func (p *propagation) run(t *testing.T, args ...string) *bed.Running {
	t.Helper()
	program := p.start(t, p.program, args...)
	p.logs = append(p.logs, program)
	eventually(t, "the program to work", func(context.Context) error {
		if !strings.Contains(program.Stderr(), "msg=leading on=true") {
			return errors.Join(errors.New("it does not"), program.Ended())
		}
		return nil
	})
	return program
}

// stop ends the program as a kubelet does.
func (p *propagation) stop(t *testing.T, program *bed.Running) {
	t.Helper()
	if err := program.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := program.Wait(); err != nil {
		t.Error(err)
	}
}

// rendered is what the objects of all Clusters are to hold, as the package's own
// pieces make it.
func (p *propagation) rendered(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, c := range p.clusters {
		maps.Copy(all, p.renderedOf(t, c))
	}
	return all
}

func (p *propagation) renderedOf(t *testing.T, c *clusterv1.Cluster) map[string]string {
	t.Helper()
	network := c.Spec.ClusterNetwork
	merged, err := proxyconfig.Layers{Installation: p.config, Cluster: noproxy.Cluster{
		PodCIDRs: network.Pods.CIDRBlocks, ServiceCIDRs: network.Services.CIDRBlocks, ServiceDomain: network.ServiceDomain,
		ControlPlaneHosts: []string{c.Spec.ControlPlaneEndpoint.Host}, Layout: noproxy.GiantSwarm,
	}}.Merge()
	if err != nil {
		t.Fatal(err)
	}
	o, err := proxyconfig.ClusterValues{Name: c.Name, Namespace: c.Namespace, Config: merged.Config,
		PodCIDR: network.Pods.CIDRBlocks[0], ServiceCIDR: network.Services.CIDRBlocks[0]}.Build()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, object := range []client.Object{o.SystemdProxy, o.Secret, o.ConfigMap} {
		name, w := watchedOf(object)
		want[name] = w.text
	}
	return want
}

// objectsOf are the names of a Cluster's objects, in the order of their writing.
func objectsOf(cluster string) []string {
	return []string{"Secret " + cluster + "-systemd-proxy", "Secret " + cluster + "-cluster-values", "ConfigMap " + cluster + "-cluster-values"}
}

// await waits until the objects hold what they shall, and returns when each was
// seen to.
func (p *propagation) await(t *testing.T, want map[string]string) map[string]time.Time {
	t.Helper()
	seen := map[string]time.Time{}
	p.watched.until(t, fmt.Sprintf("%d objects to be as they shall", len(want)), func(objects map[string]seenObject) error {
		for name, text := range want {
			if objects[name].text != text {
				return fmt.Errorf("%s is not", name)
			}
			seen[name] = objects[name].at
		}
		return nil
	})
	return seen
}

// writes counts what the API server was asked to write that a propagator writes.
func (p *propagation) writes(t *testing.T) map[string]int {
	t.Helper()
	all, err := p.Writes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(all, func(what string, _ int) bool {
		_, resource, _ := strings.Cut(what, " ")
		return !slices.Contains([]string{"secrets", "configmaps", "clusters.cluster.x-k8s.io", "clusters/status.cluster.x-k8s.io", "events.events.k8s.io", "events"}, resource)
	})
	return all
}

// wrote wants so many requests to write since before.
func (p *propagation) wrote(t *testing.T, before, want map[string]int) {
	t.Helper()
	got := p.writes(t)
	for what := range got {
		if got[what] -= before[what]; got[what] == 0 {
			delete(got, what)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got the writes %v, want %v", got, want)
	}
}

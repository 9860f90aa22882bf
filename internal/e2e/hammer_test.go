package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// What TestHammer does, and how long the provider may take to say what is true.
const (
	hammerClusters = 20
	hammerFaults   = 600
	hammerTruth    = 3 * time.Minute // the longest time between two repairs, and a bit
	hammerRest     = 20 * time.Second
	hammerPace     = 30 * time.Millisecond // between two events
	hammerPart     = 100                   // events between two restarts
)

// The Clusters of the first namespace have the route of the flags, those of the
// second that of their Namespace.
const flagSpace, moveSpace = "hammer-flags", "hammer-moved"

// A hammering is what TestHammer knows.
type hammering struct {
	*management
	t     *testing.T
	rand  *rand.Rand
	doors *hammerDoors
	api   *faultProxy
	dir   string

	clusters []*clusterv1.Cluster
	owned    map[string]bool // without a control plane: the provider makes the Secret
	second   map[string]bool // of mode secondary: the provider's Secret is another one
	counts   map[string]int  // what the test did itself
	wrote    map[string]bool // versions of Secrets that the test wrote, as Cluster API does

	provider *bed.Running

	mu      sync.Mutex                // guards the fields below, and wrote
	direct  map[string]string         // versions without a route, and whose they are
	latest  map[string]*corev1.Secret // by namespace and name
	seen    int                       // versions
	answers map[string][]time.Time    // when a version without a route was followed by one with it
	raged   map[string]int            // writes of the rivals
}

// TestHammer makes the provider's life hard. Its Clusters are never reached directly,
// unless by a kubeconfig that Cluster API wrote; afterwards each condition says what
// client-go sees, and nothing is written any more. CAUSEWAY_E2E_SEED repeats a run.
func TestHammer(t *testing.T) {
	h := startHammering(t, hammerSeed(t), func(_ *hammering, i int) birth { return birth{noControlPlane: i%5 == 4} })
	defer h.wantRoutes()
	h.startProvider(true)
	h.settle("the first decoration")
	began := time.Now()
	parts := []func(){h.killProvider, h.dropFlags, h.moveNamespace, h.secondProvider}
	for i := 0; i < len(parts) || h.sum() < hammerFaults; i++ {
		parts[i%len(parts)]()
	}
	h.api.setFaults(false)
	for i := range 3 {
		h.doors.block(2*i, true)
	}
	h.t.Logf("%d faults in %v: %v", h.sum(), time.Since(began), h.all())
	h.wantTruth()
	h.wantRest()
}

// hammerSeed chooses the faults.
func hammerSeed(t *testing.T) uint64 {
	t.Helper()
	if os.Getenv("CAUSEWAY_E2E_HAMMER") == "" {
		t.Skip("takes minutes of a machine of its own: .ci/hammer runs it")
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CAUSEWAY_E2E_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CAUSEWAY_E2E_SEED: %v", err)
		}
	}
	t.Logf("CAUSEWAY_E2E_SEED=%d", seed)
	return seed
}

// startHammering has no provider yet. births says how each Cluster is born.
func startHammering(t *testing.T, seed uint64, births func(h *hammering, i int) birth) *hammering {
	t.Helper()
	b := sharedBed(t)
	m := &management{bed: b}
	var err error
	if m.Kube, err = b.StartClusterAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	scheme, err := capiScheme()
	if err != nil {
		t.Fatal(err)
	}
	config := m.Config()
	config.QPS = -1
	if m.admin, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	m.config = m.kubeconfig(t, kubeconfig.Credentials{CAKey: m.CA.KeyPEM()})
	m.deployed = m.deploy(t, "provider", "kubeconfig-provider")
	h := &hammering{management: m, t: t, rand: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(),
		owned: map[string]bool{}, second: map[string]bool{}, counts: map[string]int{}, wrote: map[string]bool{}, direct: map[string]string{}, latest: map[string]*corev1.Secret{},
		answers: map[string][]time.Time{}, raged: map[string]int{}}
	ca := pki.NewCA("kubernetes")
	m.squid.kube = &bed.Kube{CA: ca}
	h.doors = openHammerDoors(t, b.Network.Client, ca, hammerClusters)
	h.api = startFaultProxy(t, m, seed)
	h.useFaultProxy()
	for _, ns := range []string{flagSpace, moveSpace} {
		m.namespace(t, ns)
	}
	h.annotateNamespace(h.doors.proxies[1])
	h.watch()
	for i := range hammerClusters {
		ns := []string{flagSpace, moveSpace}[i%2]
		b := births(h, i)
		b.endpoint = h.doors.endpoint(i)
		name := fmt.Sprintf("c%02d", i)
		h.mu.Lock() // the watch reads them
		h.owned[name], h.second[name] = b.noControlPlane, b.annotations[provider.AnnotationMode] == string(provider.Secondary)
		h.mu.Unlock()
		c := m.bear(t, ns, name, m.squid, b)
		h.clusters = append(h.clusters, c)
		if !b.noControlPlane {
			h.createSecret(c)
		}
	}
	h.read()
	return h
}

// useFaultProxy leads the program by the proxy, with its own rights.
func (h *hammering) useFaultProxy() {
	config, err := clientcmd.LoadFromFile(h.deployed.kubeconfig)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server, c.TLSServerName = h.api.url, ""
	}
	h.deployed.kubeconfig = filepath.Join(h.dir, "faults.conf")
	if err := clientcmd.WriteToFile(*config, h.deployed.kubeconfig); err != nil {
		h.t.Fatal(err)
	}
}

// startProvider starts the program, after it was killed.
func (h *hammering) startProvider(flag bool) {
	if h.provider != nil {
		if err := h.provider.Ended(); err != nil {
			h.t.Error(err)
		}
		h.provider.Stop()
		h.counts["kill -9"]++
	}
	args := h.args("causeway")
	if !flag {
		args = args[:len(args)-2]
		h.counts["flags dropped"]++
	}
	h.provider = h.run(h.t, args...)
}

func (h *hammering) args(name string) []string {
	return []string{"--name", name, "--namespace", flagSpace, "--namespace", moveSpace, "--interval", "2s", "--grace", "2s", "--proxy-url", h.doors.proxies[0]}
}

// part lets small things happen, and then waits until each Secret has its route.
func (h *hammering) part() {
	tick := time.NewTicker(hammerPace)
	defer tick.Stop()
	for range hammerPart {
		<-tick.C
		c := h.clusters[h.rand.IntN(len(h.clusters))]
		switch n := h.rand.IntN(100); {
		case n < 60 && !h.owned[c.Name]:
			h.regenerateSecret(c, false)
		case n < 64 && !h.owned[c.Name]:
			h.regenerateSecret(c, true)
		case n < 66:
			h.replaceSecret(c)
		case n < 80:
			h.annotate(h.t, c, map[string]string{provider.AnnotationGrace: fmt.Sprint(2+h.rand.IntN(3), "s")})
		case n < 85:
			h.doors.block(h.rand.IntN(hammerClusters/2)*2, h.rand.IntN(2) == 0) // of the first namespace
			h.counts["API server cut off"]++
		case n < 88:
			h.api.deny()
		default:
			h.api.cutWatches()
		}
	}
	h.replaceImmutable()
	h.settle("the Secrets to have their routes again")
}

func (h *hammering) killProvider() {
	h.startProvider(true)
	h.part()
}

// dropFlags restarts the program without its route: all keep theirs.
func (h *hammering) dropFlags() {
	h.startProvider(false)
	h.partWithoutNew()
	h.moved(h.partWithoutNew)
	h.startProvider(true)
}

// moveNamespace moves while the flags name another route.
func (h *hammering) moveNamespace() { h.moved(h.part) }

// moved does what clusterctl move does: the Namespace has lost its annotations.
func (h *hammering) moved(during func()) {
	h.annotateNamespace("")
	h.counts["namespace moved"]++
	during()
	h.annotateNamespace(h.doors.proxies[1])
}

// partWithoutNew has no Secrets that are made anew, whose route nothing would name.
func (h *hammering) partWithoutNew() {
	tick := time.NewTicker(hammerPace)
	defer tick.Stop()
	for range hammerPart / 2 {
		<-tick.C
		c := h.clusters[h.rand.IntN(len(h.clusters))]
		switch {
		case h.rand.IntN(10) == 0:
			h.api.cutWatches()
		case !h.owned[c.Name]:
			h.regenerateSecret(c, false)
		}
	}
	h.settle("the Secrets to have their routes still")
}

// secondProvider runs another provider for a time. What it took is made anew.
func (h *hammering) secondProvider() {
	h.counts["second provider"]++
	other := h.run(h.t, h.args("other")...)
	h.part()
	other.Stop()
	for _, c := range h.clusters {
		if s, err := h.stored(h.t.Context(), c); err == nil && s.Annotations[provider.AnnotationManager] == "other" {
			h.replaceSecret(c)
		}
	}
	h.settle("the first provider to have all")
}

// regenerateSecret is what Cluster API does when a certificate is old.
func (h *hammering) regenerateSecret(c *clusterv1.Cluster, immutable bool) {
	err := bed.Poll(h.t.Context(), "Cluster API to regenerate", func(ctx context.Context) error {
		s, err := h.stored(ctx, c)
		if err != nil || ptr.Deref(s.Immutable, false) {
			return client.IgnoreNotFound(err)
		}
		if immutable {
			s.Immutable = ptr.To(true)
		}
		if err := capikubeconfig.RegenerateSecret(ctx, h.admin, s, quickly); err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.wrote[s.ResourceVersion] = true
		return nil
	})
	if err != nil {
		h.t.Error(err)
	}
	if h.counts["regenerated"]++; immutable {
		h.counts["immutable"]++
	}
}

// replaceSecret deletes it; Cluster API, or the provider, makes it anew.
func (h *hammering) replaceSecret(c *clusterv1.Cluster) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name + "-kubeconfig"}}
	if err := client.IgnoreNotFound(h.admin.Delete(h.t.Context(), s)); err != nil {
		h.t.Error(err)
	}
	if h.counts["replaced"]++; !h.owned[c.Name] {
		h.createSecret(c)
	}
}

func (h *hammering) createSecret(c *clusterv1.Cluster) {
	if err := capikubeconfig.CreateSecret(h.t.Context(), h.admin, c, quickly); err != nil && !apierrors.IsAlreadyExists(err) {
		h.t.Error(err)
	}
}

func (h *hammering) replaceImmutable() {
	for _, c := range h.clusters {
		if s, err := h.stored(h.t.Context(), c); err == nil && ptr.Deref(s.Immutable, false) {
			h.replaceSecret(c)
		}
	}
}

func (h *hammering) annotateNamespace(proxy string) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: moveSpace}}
	h.change(h.t, ns, func() {
		if delete(ns.Annotations, provider.AnnotationProxyURL); proxy != "" {
			metav1.SetMetaDataAnnotation(&ns.ObjectMeta, provider.AnnotationProxyURL, proxy)
		}
	})
}

func (h *hammering) all() map[string]int {
	all := h.api.counted()
	maps.Copy(all, h.counts)
	return all
}

func (h *hammering) sum() (n int) {
	for what, count := range h.all() {
		if what != "regenerated" { // belongs to a life without faults
			n += count
		}
	}
	return n
}

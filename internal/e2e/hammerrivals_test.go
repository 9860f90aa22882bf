package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
)

// How long TestHammerRivals has rivals, with the webhook and without it.
const (
	rivalsAdmitted = time.Minute
	rivalsAtWar    = 80 * time.Second // for four answers at most
)

// TestHammerRivals runs the provider under faults, beside programs that write the Secrets, too. With
// the webhook, on replicas of which one restarts, no version lacks the route. Without it, the
// provider answers a rival less and less often. When the rivals are gone, nothing is written any more.
func TestHammerRivals(t *testing.T) {
	h := startHammering(t, hammerSeed(t), func(*hammering, int) birth { return birth{} })
	defer h.wantRoutes()
	values := map[string][]byte{}
	for _, c := range h.clusters {
		s, err := h.stored(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		values[c.Name] = s.Data[kubeconfig.SecretKey]
	}
	stop := h.admitted(values)
	h.mu.Lock()
	clear(h.answers)
	h.mu.Unlock()
	began := time.Now()
	h.startProvider(true)
	h.disturb(rivalsAtWar, func(i int) {
		named := i%2 == 1 // otherwise all keep their routes, though nothing names them
		if h.annotateNamespace(""); named {
			h.annotateNamespace(h.doors.proxies[1])
		}
		h.startProvider(named)
	})
	h.annotateNamespace(h.doors.proxies[1])
	h.wantSlower(began)
	stop()
	for _, c := range h.clusters { // that were deleted last
		h.createSecret(c)
	}
	h.settle("the Secrets to have their routes again")
	h.api.setFaults(false)
	h.t.Logf("%d faults: %v; writes of the rivals: %v", h.sum(), h.all(), h.raged)
	h.wantTruth()
	h.wantRest()
}

// admitted has rivals beside replicas with the webhook, which no version without a route
// passes. It returns with the rivals at work, and neither webhook nor replicas.
func (h *hammering) admitted(values map[string][]byte) (stop func()) {
	h.t.Helper()
	var addresses []string
	var replicas []*bed.Running
	var restart []func() *bed.Running
	for range 2 {
		address, flags := h.webhookFlags(h.t)
		addresses = append(addresses, address)
		args := append(append(h.args("causeway"), flags...), "--leader-election", "kubeconfig-provider")
		restart = append(restart, func() *bed.Running { return h.run(h.t, args...) })
		replicas = append(replicas, restart[len(restart)-1]())
	}
	h.settle("the first decoration")
	hook := &routeWebhook{t: h.t, m: h.management, address: balance(h.t, h.bed.Network.Client, addresses...)}
	hook.register(flagSpace, moveSpace)
	hook.await("the webhook to be asked", h.clusters[0], nil)
	eventually(h.t, "the readers to have the routes", func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for name, s := range h.latest {
			if !h.doors.routed(s.Data[kubeconfig.SecretKey]) {
				return errors.New(name + " has none")
			}
		}
		return nil
	})
	stop = h.startRivals(values)
	before, directly, routed := h.admits()
	h.disturb(rivalsAdmitted, func(i int) {
		replicas[i%2].Stop()
		replicas[i%2] = restart[i%2]()
		h.counts["replica killed"]++
	})
	after, directlyAfter, routedAfter := h.admits()
	h.mu.Lock()
	h.t.Logf("with the webhook: %d versions without a route, %d requests directly, %d by the route; writes of the rivals: %v",
		after-before, directlyAfter-directly, routedAfter-routed, h.raged)
	h.mu.Unlock()
	if after != before || directlyAfter != directly {
		h.t.Errorf("got %d versions without a route and %d direct requests with the webhook, want 0", after-before, directlyAfter-directly)
	}
	for _, r := range replicas {
		r.Stop()
	}
	hook.setPolicy("Ignore")
	return stop
}

// admits returns how many versions without a route there were so far, and how many requests.
func (h *hammering) admits() (versions, directly, routed int) {
	h.mu.Lock()
	versions = len(h.direct)
	h.mu.Unlock()
	by, routed := h.doors.requests()
	for _, n := range by {
		directly += n
	}
	return versions, directly, routed
}

// disturb breaks requests, cuts off watches and API servers and deletes Secrets for a time. It calls
// restart three times, with a number.
func (h *hammering) disturb(took time.Duration, restart func(i int)) {
	h.t.Helper()
	h.api.setFaults(true)
	tick := time.NewTicker(hammerPace)
	defer tick.Stop()
	for began, restarts := time.Now(), 0; time.Since(began) < took; <-tick.C {
		if time.Since(began) > time.Duration(restarts+1)*took/4 {
			restart(restarts)
			restarts++
		}
		switch n := h.rand.IntN(100); {
		case n < 4:
			h.doors.block(h.rand.IntN(hammerClusters), h.rand.IntN(2) == 0)
			h.counts["API server cut off"]++
		case n < 6:
			h.api.deny()
		case n < 8:
			h.api.cutWatches()
		case n < 9:
			c := h.clusters[h.rand.IntN(len(h.clusters))]
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name + "-kubeconfig"}}
			if err := client.IgnoreNotFound(h.admin.Delete(h.t.Context(), s)); err != nil {
				h.t.Error(err)
			}
			h.counts["deleted"]++
		}
	}
}

// startRivals has each Cluster's rival write its Secret, until stop is called.
func (h *hammering) startRivals(values map[string][]byte) (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var raging sync.WaitGroup
	for i, c := range h.clusters {
		raging.Go(func() {
			if err := h.rage(ctx, rivals[i%len(rivals)], c, values[c.Name]); err != nil {
				h.t.Error(err)
			}
		})
	}
	stop = func() {
		cancel()
		raging.Wait()
	}
	h.t.Cleanup(stop)
	return stop
}

// rage has a rival write a Cluster's Secret until ctx ends.
func (h *hammering) rage(ctx context.Context, who rival, c *clusterv1.Cluster, value []byte) error {
	r := &rivalry{client.WithFieldOwner(h.admin, who.manager), c, value, func(version string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.wrote[version] = true
		h.raged[who.manager]++
	}}
	name := client.ObjectKeyFromObject(r.manifest())
	watch, err := h.admin.Watch(ctx, &corev1.SecretList{}, client.InNamespace(name.Namespace), client.MatchingFields{"metadata.name": name.Name})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(who.pause, hammerPace)): // a queue has its pauses, too
		}
		live := &corev1.Secret{}
		if err := h.admin.Get(ctx, name, live); apierrors.IsNotFound(err) {
			live = nil
		} else if err != nil {
			continue
		}
		before := ""
		if live != nil {
			before = live.ResourceVersion
		}
		stored, err := who.write(ctx, r, live)
		if stored != nil && stored.ResourceVersion != before && err == nil {
			r.wrote(stored.ResourceVersion)
		}
		if err != nil || !who.watches {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-watch.ResultChan():
			if !ok && ctx.Err() == nil {
				return errors.New("the watch of " + who.manager + " has ended")
			}
		}
	}
}

// wantSlower wants the provider to have answered each rival since it began: at once, after ten
// seconds at the earliest, and then after twice the time before. An answer may be late, by faults.
func (h *hammering) wantSlower(began time.Time) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, c := range h.clusters {
		who, answers := rivals[i%len(rivals)].manager, h.answers[c.Namespace+"/"+c.Name+"-kubeconfig"]
		var times []time.Duration
		for n, at := range answers {
			took, least := at.Sub(began).Round(time.Second/10), 10*time.Second*time.Duration(1<<n-1)
			if times = append(times, took); took < least {
				h.t.Errorf("%s: %s was answered for the time %d after %v, want %v at the earliest", c.Name, who, n+1, took, least)
			}
		}
		if len(answers) == 0 {
			h.t.Errorf("%s: %s was not answered", c.Name, who)
		}
		h.t.Logf("%s: %s was answered after %v", c.Name, who, times)
	}
}

// balance leads to one of the addresses that answers, as a Service does, until the test ends.
func balance(t *testing.T, ns *bed.Namespace, addresses ...string) string {
	t.Helper()
	l := listen(t, ns, "127.0.0.1:0")
	relay := func(in net.Conn, first int) {
		defer in.Close()
		for i := range addresses {
			out, err := ns.DialContext(t.Context(), "tcp", addresses[(first+i)%len(addresses)])
			if err != nil {
				continue
			}
			defer out.Close()
			var copying sync.WaitGroup
			copying.Go(func() { io.Copy(out, in); out.Close() })
			io.Copy(in, out)
			in.Close()
			copying.Wait()
			return
		}
	}
	go func() {
		for i := 0; ; i++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go relay(in, i)
		}
	}()
	return l.Addr().String()
}

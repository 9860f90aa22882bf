package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// All objects are made, and hold a new password soon after the installation's
// Secret does; nothing is written twice. Who looks at them again writes nothing.
func (p *propagation) testPassword(t *testing.T) {
	n := len(p.clusters)
	p.install(t, p.config.EnvSecretData())
	before := p.writes(t)
	began := time.Now()
	program := p.run(t, "--leader-election", propagatorBase)
	p.await(t, p.rendered(t))
	t.Logf("%d Clusters had their objects after %v", n, time.Since(began))
	p.wrote(t, before, map[string]int{"POST secrets": 2 * n, "POST configmaps": n, "POST events": 1}) // of the Lease
	p.owned(t)

	before = p.writes(t)
	p.next(p.config.NoProxy)
	began = time.Now()
	data := p.config.EnvSecretData()
	for name, value := range data {
		data[name] = append(value, '\n') // kubectl create secret --from-file has the file's last byte
	}
	p.install(t, data)
	seen := p.await(t, p.rendered(t))
	p.wrote(t, before, map[string]int{"PUT secrets": 2*n + 1}) // the installation's too
	took := p.perCluster(seen, began)
	memory, err := program.PeakMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all %d Clusters had the new password after %v, the median one after %v; the program had %d MB of memory", n, took[n-1], took[n/2], memory>>20)
	if took[n-1] > 30*time.Second {
		t.Errorf("it took %v, want 30 s", took[n-1])
	}
	if memory > 256<<20 {
		t.Errorf("it took %d MB, want the manifest's 256", memory>>20)
	}
	p.stop(t, program)

	before = p.writes(t)
	program = p.run(t)
	p.bear(t, "witness") // it has its turn after all the others
	p.wrote(t, before, map[string]int{"POST clusters.cluster.x-k8s.io": 1, "POST secrets": 2, "POST configmaps": 1})
	p.stop(t, program)
}

// perCluster returns, sorted, how long after a time the last object of each
// Cluster was seen. Those that did not change do not count.
func (p *propagation) perCluster(seen map[string]time.Time, began time.Time) []time.Duration {
	var took []time.Duration
	for cluster := range p.clusters {
		var last time.Duration
		for _, name := range objectsOf(cluster) {
			last = max(last, seen[name].Sub(began))
		}
		took = append(took, last)
	}
	slices.Sort(took)
	return took
}

// owned wants each object to go with its Cluster: nothing collects garbage here,
// but what would goes by these references.
func (p *propagation) owned(t *testing.T) {
	t.Helper()
	objects := p.held(t, propagatedIn)
	for _, c := range p.clusters {
		for _, name := range objectsOf(c.Name) {
			owners := objects[name].owners
			if len(owners) != 1 || owners[0].APIVersion != clusterv1.GroupVersion.String() || owners[0].Kind != "Cluster" ||
				owners[0].Name != c.Name || owners[0].UID != c.UID || owners[0].Controller != nil || owners[0].BlockOwnerDeletion != nil {
				t.Fatalf("%s: got the owners %+v, want the Cluster alone, not as its controller", name, owners)
			}
		}
	}
}

// A program that is killed while it writes leaves each object as it was or as it
// shall be, in the documented order; the next one does the rest.
func (p *propagation) testKilled(t *testing.T) {
	for attempt := 1; ; attempt++ {
		program := p.run(t)
		old := p.rendered(t)
		p.next(fmt.Sprintf("172.16.0.0/16,attempt%d.example.com", attempt))
		want := p.rendered(t)
		p.install(t, p.config.EnvSecretData())
		p.watched.until(t, "a part of the objects to be written", func(objects map[string]seenObject) error {
			if n := countNew(objects, want); n < len(want)/4 {
				return fmt.Errorf("%d of %d are", n, len(want))
			}
			return nil
		})
		program.Stop()
		left := p.left(t, old, want)
		t.Logf("killed when %d of %d objects were left to be written", left, len(want))
		if left > 0 {
			break
		}
		if attempt == 5 {
			t.Fatal("the program was done each time before it was killed")
		}
	}
	program := p.run(t)
	p.await(t, p.rendered(t))
	p.stop(t, program)
	p.owned(t)
}

func countNew(objects map[string]seenObject, want map[string]string) (n int) {
	for name, text := range want {
		if objects[name].text == text {
			n++
		}
	}
	return n
}

// left returns how many objects are as they were; it wants the others to be as
// they shall, and those of a Cluster to have been written in their order.
func (p *propagation) left(t *testing.T, old, want map[string]string) (left int) {
	t.Helper()
	objects := p.held(t, propagatedIn)
	for cluster := range p.clusters {
		before := ""
		for _, name := range objectsOf(cluster) {
			switch objects[name].text {
			case old[name]:
				left++
				before = name
			case want[name]:
				if before != "" {
					t.Errorf("%s is written, and %s is not", name, before)
				}
			default:
				t.Errorf("%s is neither as it was nor as it shall be", name)
			}
		}
	}
	return left
}

// unchanged wants objects to be the same in all the namespace, but for those
// that are named, and for those that are new.
func (p *propagation) unchanged(t *testing.T, before map[string]seenObject, but ...string) {
	t.Helper()
	after := p.held(t, propagatedIn)
	for name := range before {
		if slices.Contains(but, name) {
			continue
		}
		if after[name].version != before[name].version {
			t.Errorf("%s was written, or deleted", name)
		}
	}
}

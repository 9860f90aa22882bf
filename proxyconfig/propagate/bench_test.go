package propagate_test

import (
	"fmt"
	"testing"

	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// A plan that has nothing to do: what each of many Clusters costs each time.
func BenchmarkPlan(b *testing.B) {
	w := newWorld(b)
	w.settle()
	b.ReportAllocs()
	for b.Loop() {
		if a, err := propagate.Plan(w.cluster, w.held, w.config); err != nil || len(a.Writes) > 0 {
			b.Fatalf("got %v, %v, want nothing", a.Writes, err)
		}
	}
}

// A password that changes: the time until 500 Clusters have it, two Secrets
// each, at the rate that the clients have by default.
func BenchmarkPassword(b *testing.B) {
	const clusters = 500
	bed := newBed(b)
	config := bed.Config()
	config.QPS = 0
	bed.opts.REST = config
	bed.install(proxy)
	for i := range clusters {
		bed.Set("clusters", cluster("org", fmt.Sprint("c", i)))
	}
	bed.run()
	bed.Until(b, "the objects", func() bool { return len(bed.since(0)) == 3*clusters })
	for n := 1; b.Loop(); n++ {
		bed.install(fmt.Sprintf("http://user:p%d@proxy.test:3128", n))
		bed.Until(b, "the change", func() bool { return len(bed.since(0)) == (3+2*n)*clusters })
	}
}

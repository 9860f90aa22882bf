package propagate_test

import (
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

package provider_test

import (
	"testing"
	"time"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// A plan that has nothing to do: what each of many Clusters costs each time.
func BenchmarkPlan(b *testing.B) {
	for name, mode := range map[string]string{"decorate": "decorate", "own": "own", "secondary": "secondary"} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.controlPlane()
			w.annotate("mode", mode)
			w.annotate("proxy-url", proxyA)
			w.annotate("grace-period", "1ns")
			w.settle()
			w.config.Now = time.Now()
			b.ReportAllocs()
			for b.Loop() {
				if a, err := provider.Plan(w.cluster, w.secrets, w.config); err != nil || a.Update != nil {
					b.Fatal("got an Update")
				}
			}
		})
	}
}

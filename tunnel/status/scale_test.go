package status_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

// manyClusters is a fleet of three replicas, each cluster at two of them, whose
// figures move from call to call.
func manyClusters(n int) func(context.Context) []tunnel.ReplicaStatus {
	calls := uint64(0)
	began := time.Now()
	return func(context.Context) []tunnel.ReplicaStatus {
		calls++
		sessions := make([][]tunnel.SessionInfo, 3)
		for i := range n {
			for j := range 2 {
				k := uint64(i%7) * calls * calls
				sessions[(i+j)%3] = append(sessions[(i+j)%3], tunnel.SessionInfo{
					Cluster: fmt.Sprintf("default/cluster-%04d", i), Agent: fmt.Sprintf("agent-%04d", i), ID: fmt.Sprintf("session-%d-%d", i, j),
					Remote: "192.0.2.10:54321", Since: began, Streams: int(k % 9), DialCounts: tunnel.DialCounts{Dials: k}, BytesIn: 1000 * k, BytesOut: 100 * k,
					RoundTrip: time.Duration(1+k%50) * time.Millisecond,
				})
			}
		}
		var f fleet
		for i, list := range sessions {
			r := tunnel.ReplicaStatus{Name: fmt.Sprintf("server-%d", i), Connected: true, Self: i == 0}
			for _, s := range list {
				r.Status.Clusters = append(r.Status.Clusters, tunnel.ClusterStatus{Cluster: s.Cluster, Connected: true, Sessions: []tunnel.SessionInfo{s}})
			}
			f = append(f, r)
		}
		return f
	}
}

// ripen lets a handler see the fleet for ten minutes. The last sample is of a time to
// come, and fresh for as long as a test takes.
func ripen(b *testing.B, h *status.Handler) {
	for i := range 60 {
		h.Sample(b.Context(), time.Now().Add(time.Hour+time.Duration(i)*10*time.Second))
	}
}

// A page of a fleet of 5,000 clusters, its size, and what the handler keeps.
func BenchmarkPage5000(b *testing.B) {
	h := &status.Handler{Fleet: manyClusters(5000)}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ripen(b, h)
	runtime.GC()
	runtime.ReadMemStats(&after)
	var size int
	for b.Loop() {
		body := request(h, "GET", "/live").Body.Bytes()
		size = len(body)
	}
	b.ReportMetric(float64(size), "B/page")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/5000, "B/cluster")
}

// What it costs to take in what the fleet says.
func BenchmarkSample5000(b *testing.B) {
	fleet := manyClusters(5000)(b.Context())
	h := &status.Handler{Fleet: func(context.Context) []tunnel.ReplicaStatus { return fleet }}
	at := time.Now()
	for b.Loop() {
		at = at.Add(10 * time.Second)
		h.Sample(b.Context(), at)
	}
}

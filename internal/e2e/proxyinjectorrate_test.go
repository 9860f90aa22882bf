package e2e

import (
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rate has 200 pods a second admitted, by turns in a namespace that the webhook
// is asked about and in one that it is not. The times are logged and not asserted: the machine
// has other work. That each pod is admitted, and with its variables, is.
func (in *injection) rate(t *testing.T) {
	const rounds, each = 5, 200
	took := map[string][]time.Duration{}
	var spent time.Duration
	for range rounds {
		for _, namespace := range []string{"default", injectNamespace} {
			began := time.Now()
			took[namespace] = append(took[namespace], in.admit(t, namespace, each)...)
			if namespace == injectNamespace {
				spent += time.Since(began)
			}
		}
	}
	for namespace, d := range took {
		if len(d) != rounds*each {
			t.Fatalf("got %d pods in %s, want %d", len(d), namespace, rounds*each)
		}
		slices.Sort(d)
	}
	quantile := func(namespace string, q float64) time.Duration {
		d := took[namespace]
		return d[int(q*float64(len(d)-1))]
	}
	t.Logf("%.0f pods/s; p50 %v and p99 %v, %v and %v without the webhook", rounds*each/spent.Seconds(),
		quantile(injectNamespace, .5), quantile(injectNamespace, .99), quantile("default", .5), quantile("default", .99))
}

// admit has n pods admitted, one each 5 ms or as soon as there is a worker for
// it, and returns the time from when each was due.
func (in *injection) admit(t *testing.T, namespace string, n int) (took []time.Duration) {
	var mu sync.Mutex // guards took
	var wg sync.WaitGroup
	due := make(chan time.Time, n)
	for range 16 {
		wg.Go(func() {
			for began := range due {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "rate-"},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
				got, err := in.clients.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				d := time.Since(began)
				if err != nil {
					t.Error(err)
					continue
				}
				if asked := namespace == injectNamespace; (len(got.Spec.Containers[0].Env) > 0) != asked {
					t.Errorf("got %q in %s", variables(got.Spec.Containers[0].Env), namespace)
				}
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
			}
		})
	}
	next := time.Now()
	for range n {
		next = next.Add(5 * time.Millisecond)
		<-time.After(time.Until(next))
		due <- next
	}
	close(due)
	wg.Wait()
	return took
}

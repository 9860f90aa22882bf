package e2e

import (
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rate has pods admitted by turns in a namespace that the webhook is asked about
// and in one that it is not. The times are logged and not asserted: the machine
// has other work. That each pod is admitted, and with its variables, is.
func (in *injection) rate(t *testing.T) {
	const rounds, each, workers = 5, 100, 8
	took := map[string][]time.Duration{}
	var spent time.Duration
	for range rounds {
		for _, namespace := range []string{"default", injectNamespace} {
			began := time.Now()
			took[namespace] = append(took[namespace], in.admit(t, namespace, each, workers)...)
			if namespace == injectNamespace {
				spent += time.Since(began)
			}
		}
	}
	for _, d := range took {
		slices.Sort(d)
	}
	quantile := func(namespace string, q float64) time.Duration {
		d := took[namespace]
		return d[int(q*float64(len(d)-1))]
	}
	t.Logf("%.0f pods/s by %d workers; p50 %v and p99 %v, %v and %v without the webhook", rounds*each/spent.Seconds(), workers,
		quantile(injectNamespace, .5), quantile(injectNamespace, .99), quantile("default", .5), quantile("default", .99))
}

// admit has n pods admitted, and returns the time that each took.
func (in *injection) admit(t *testing.T, namespace string, n, workers int) (took []time.Duration) {
	var mu sync.Mutex // guards took
	var wg sync.WaitGroup
	jobs := make(chan struct{}, n)
	for range n {
		jobs <- struct{}{}
	}
	close(jobs)
	for range workers {
		wg.Go(func() {
			for range jobs {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "rate-"},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
				began := time.Now()
				got, err := in.clients.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				d := time.Since(began)
				if err != nil {
					t.Error(err)
					return
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
	wg.Wait()
	return took
}

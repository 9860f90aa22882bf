package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkAdmission has 200 pods a second admitted, by turns in a namespace that the
// webhook is asked about and in one that it is not: turns of a tenth of a second, so
// that what else the machine does slows down both. Each pod is admitted, and with its
// variables.
func BenchmarkAdmission(b *testing.B) {
	in := startInjection(b, sharedBed(b))
	in.await("the webhook to be asked", func(env []string, err error) bool { return err == nil && slices.Equal(env, injected) })
	const rounds, each = 50, 20
	took := map[string][]time.Duration{}
	before := in.asked(b)
	var spent time.Duration
	for b.Loop() {
		for range rounds {
			for _, namespace := range []string{"default", in.namespace} {
				began := time.Now()
				took[namespace] = append(took[namespace], in.admit(b, namespace, each)...)
				if namespace == in.namespace {
					spent += time.Since(began)
				}
			}
		}
	}
	pods := b.N * rounds * each
	for namespace, d := range took {
		if len(d) != pods {
			b.Fatalf("got %d pods in %s, want %d", len(d), namespace, pods)
		}
		slices.Sort(d)
	}
	quantile := func(namespace string, q float64) float64 {
		d := took[namespace]
		return float64(d[int(q*float64(len(d)-1))].Microseconds()) / 1000
	}
	b.ReportMetric(float64(pods)/spent.Seconds(), "pods/s")
	for _, q := range []float64{50, 99} {
		b.ReportMetric(quantile(in.namespace, q/100), fmt.Sprintf("p%.0f-ms", q))
		b.ReportMetric(quantile("default", q/100), fmt.Sprintf("p%.0f-ms-without", q))
	}
	after := in.asked(b)
	for le := range after {
		after[le] -= before[le]
	}
	b.Logf("the API server has waited for the webhook, by its own count of seconds: %v", after)
	if n := after["+Inf"]; n < pods {
		b.Errorf("the API server has asked %d times, want %d at least", n, pods)
	}
}

var askedBucket = regexp.MustCompile(`(?m)^apiserver_admission_webhook_admission_duration_seconds_bucket\{name="pods\.proxy-injector[^}]*,le="([^"]+)"\} (\d+)$`)

// asked is how often the API server has waited for the webhook not longer than
// so many seconds.
func (in *injection) asked(t testing.TB) map[string]int {
	t.Helper()
	text, err := in.clients.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, found := range askedBucket.FindAllSubmatch(text, -1) {
		n, err := strconv.Atoi(string(found[2]))
		if err != nil {
			t.Fatal(err)
		}
		counts[string(found[1])] += n
	}
	return counts
}

// admit has n pods admitted, one each 5 ms or as soon as there is a worker for
// it, and returns the time from when each was due.
func (in *injection) admit(t testing.TB, namespace string, n int) (took []time.Duration) {
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
				if asked := namespace == in.namespace; (len(got.Spec.Containers[0].Env) > 0) != asked {
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

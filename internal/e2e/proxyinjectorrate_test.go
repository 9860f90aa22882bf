package e2e

import (
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rate has 200 pods a second admitted, by turns in a namespace that the webhook
// is asked about and in one that it is not: turns of a tenth of a second, so that
// what else the machine does slows down both. The times are logged and not
// asserted. That each pod is admitted, and with its variables, is.
func (in *injection) rate(t *testing.T) {
	const rounds, each = 50, 20
	took := map[string][]time.Duration{}
	before := in.asked(t)
	var spent time.Duration
	for range rounds {
		for _, namespace := range []string{"default", in.namespace} {
			began := time.Now()
			took[namespace] = append(took[namespace], in.admit(t, namespace, each)...)
			if namespace == in.namespace {
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
		return d[int(q*float64(len(d)-1))].Round(10 * time.Microsecond)
	}
	t.Logf("%.0f pods/s; p50 %v, p90 %v and p99 %v, %v, %v and %v without the webhook", rounds*each/spent.Seconds(),
		quantile(in.namespace, .5), quantile(in.namespace, .9), quantile(in.namespace, .99),
		quantile("default", .5), quantile("default", .9), quantile("default", .99))
	after := in.asked(t)
	for le := range after {
		after[le] -= before[le]
	}
	t.Logf("the API server has waited for the webhook, by its own count of seconds: %v", after)
	if n := after["+Inf"]; n < rounds*each {
		t.Errorf("the API server has asked %d times, want %d at least", n, rounds*each)
	}
}

var askedBucket = regexp.MustCompile(`(?m)^apiserver_admission_webhook_admission_duration_seconds_bucket\{name="pods\.proxy-injector[^}]*,le="([^"]+)"\} (\d+)$`)

// asked is how often the API server has waited for the webhook not longer than
// so many seconds.
func (in *injection) asked(t *testing.T) map[string]int {
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

package e2e

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// largeReviews are of 8 MiB: one that is long, and two that become many times as long
// when they are parsed.
func largeReviews() [][]byte {
	const size = 8 << 20
	review := func(object string) []byte {
		return []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","namespace":"a",` +
			`"resource":{"version":"v1","resource":"pods"},"object":` + object + `}}`)
	}
	const few = 1 << 15 // as many as are parsed
	return [][]byte{
		review(`{"metadata":{"annotations":{"a":"` + strings.Repeat("a", size-1024) + `"}}}`),
		review(`{"spec":{"containers":[{}` + strings.Repeat(",{}", (size-1024)/3) + `]}}`),
		review(`{"spec":{"containers":[{"env":[{}` + strings.Repeat(",{}", few) + `]}]},"metadata":{"annotations":{"a":"` + strings.Repeat("a", size-1024-3*few) + `"}}}`),
	}
}

// flood has strangers without credentials send the injector reviews of 8 MiB, and others
// hold connections open, while pods are admitted: all with their variables. The program
// stays within the memory of its manifest. The times are logged and not asserted.
func (in *injection) flood(t *testing.T) {
	const senders, holders = 8, 600
	var answers [3]atomic.Int64 // by the first digit: 2, 4, 5
	stop := make(chan struct{})
	var strangers sync.WaitGroup
	url := "https://" + in.address() + "/pods"
	for _, body := range slices.Repeat(largeReviews(), senders)[:senders] {
		strangers.Go(func() {
			transport := &http.Transport{DialContext: in.bed.Network.API.DialContext, TLSClientConfig: &tls.Config{RootCAs: in.bed.Kube.CA.Pool()}}
			defer transport.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := (&http.Client{Transport: transport}).Post(url, "application/json", bytes.NewReader(body))
				if err != nil {
					continue // it was refused while it wrote
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if n := res.StatusCode/100 - 2; n == 0 {
					answers[0].Add(1)
				} else {
					answers[n-1].Add(1)
				}
			}
		})
	}
	for range holders {
		if conn, err := in.bed.Network.API.DialContext(t.Context(), "tcp", in.address()); err != nil {
			t.Error(err)
		} else {
			defer conn.Close()
		}
	}
	var took []time.Duration
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		took = append(took, in.admit(t, in.namespace, 20)...)
	}
	close(stop)
	strangers.Wait()
	slices.Sort(took)
	quantile := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))].Round(10 * time.Microsecond) }
	peak, err := in.program.PeakMemory()
	if err != nil {
		t.Fatal(err, in.program.Ended())
	}
	t.Logf("%d pods; p50 %v, p90 %v and p99 %v; strangers were answered 2xx %d, 4xx %d and 5xx %d times; peak memory %d MiB of %d",
		len(took), quantile(.5), quantile(.9), quantile(.99), answers[0].Load(), answers[1].Load(), answers[2].Load(), peak>>20, in.memory>>20)
	if int64(peak) >= in.memory {
		t.Errorf("got a peak of %d MiB, more than the %d of the manifest", peak>>20, in.memory>>20)
	}
}

package webhook_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

// slowBody is one whose end comes when it is told to.
type slowBody struct {
	io.Reader
	end chan struct{}
}

func (b slowBody) Read(buf []byte) (int, error) {
	n, err := b.Reader.Read(buf)
	if n == 0 && err != nil {
		<-b.end
	}
	return n, err
}

// While a large review comes, another one waits, and small ones are answered.
func TestLargeReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := webhook.Limit(webhook.New(injector(t, opts), webhook.Options{}))
		small := reviewOf(t, creation(t, somePod()))
		large := append(bytes.Clone(small), bytes.Repeat([]byte(" "), 8<<20-len(small))...)
		end := make(chan struct{})
		first := make(chan int)
		go func() {
			r := httptest.NewRequest(http.MethodPost, "/", slowBody{bytes.NewReader(large), end})
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			first <- w.Code
		}()
		synctest.Wait()
		began := time.Now()
		if w := post(h, large); w.Code != http.StatusServiceUnavailable || time.Since(began) != time.Second {
			t.Errorf("got %d of the second after %v, want 503 after 1s", w.Code, time.Since(began))
		}
		began = time.Now()
		if w := post(h, small); w.Code != http.StatusOK || time.Since(began) != 0 {
			t.Errorf("got %d of a small one after %v, want 200 at once", w.Code, time.Since(began))
		}
		time.AfterFunc(time.Second/2, func() { close(end) })
		if w := post(h, large); w.Code != http.StatusOK || time.Since(began) != time.Second/2 {
			t.Errorf("got %d of the third after %v, want 200 once the first has ended", w.Code, time.Since(began))
		}
		if code := <-first; code != http.StatusOK {
			t.Errorf("got %d of the first, want 200", code)
		}
	})
}

// What would become a hundred times as large is not parsed.
func TestManyValues(t *testing.T) {
	h := webhook.Limit(webhook.New(injector(t, opts), webhook.Options{}))
	for name, values := range map[string]string{
		"containers": "[" + strings.Repeat("{},", 1024) + "{}]",
		"variables":  `[{"env":[` + strings.Repeat("{},", 1<<16) + "{}]}]",
	} {
		if w := post(h, []byte(strings.Replace(question, "[]", values, 1))); w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("many %s: got %d, want 413", name, w.Code)
		}
	}
}

const question = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","namespace":"a",
	"resource":{"version":"v1","resource":"pods"},"object":{"spec":{"containers":[]}}}}`

// A mirror pod is known by its annotation.
func TestMirrorPod(t *testing.T) {
	pod := somePod()
	pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash", "other": "x"}
	h, told := recorder(injector(t, opts), webhook.Options{})
	if a := ask(t, h, creation(t, pod)); len(a.Patch) > 0 || (*told)[0].Reason != proxyconfig.MirrorPod {
		t.Errorf("got patch %s because of %q, want none because it is a mirror pod", a.Patch, (*told)[0].Reason)
	}
}

package webhook_test

import (
	"bytes"
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

const fuzzEnvelope = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","namespace":"a","resource":{"resource":"pods"},`

// fuzzRequests are answered with a patch, with none, and refused.
var fuzzRequests = []string{
	`"operation":"CREATE","object":{"spec":{"containers":[{"name":"c"},{"name":"c","env":null},{"env":[{"name":"no_proxy"}]}]}}}}`,
	`"operation":"CREATE","object":{"metadata":{"labels":{"a":"b"}},"spec":{"initContainers":[{"env":[{"name":"A","value":"a"}],"envFrom":[{"prefix":"H"}]}]}}}}`,
	`"operation":"UPDATE","subResource":"ephemeralcontainers","object":{"spec":{"ephemeralContainers":[{"name":"e"},{"name":"f"}]}},"oldObject":{"spec":{"ephemeralContainers":[{"name":"e"}]}}}}`,
	`"operation":"DELETE","dryRun":true,"object":null}}`,
	`"operation":"CREATE","object":[]}}`,
}

// Whatever is sent, it is answered: with an AdmissionReview that allows it, or as
// the client's mistake. What a patch makes of a pod gets no other.
func FuzzHandler(f *testing.F) {
	f.Add([]byte("{}"))
	for _, request := range fuzzRequests {
		f.Add([]byte(fuzzEnvelope + request))
	}
	i := injector(f, opts)
	f.Fuzz(func(t *testing.T, body []byte) {
		h, told := recorder(i, webhook.Options{})
		w := post(h, body)
		if bytes.Contains(w.Body.Bytes(), []byte(canary)) && !bytes.Contains(body, []byte(canary)) {
			t.Errorf("got the password in %s", w.Body)
		}
		if r := (*told)[0]; r.Status != w.Code || (r.Err != nil) != (w.Code != http.StatusOK) {
			t.Errorf("got %d, told %+v", w.Code, r)
		}
		if w.Code >= 400 && w.Code < 500 {
			return
		}
		var asked admissionv1.AdmissionReview
		if err := utiljson.Unmarshal(body, &asked); err != nil || asked.Request == nil {
			t.Fatalf("got %d for no AdmissionReview (%v)", w.Code, err)
		}
		req := asked.Request
		if ask(t, h, req); !asServed(t, &req.Object) || !asServed(t, &req.OldObject) {
			return
		}
		a := ask(t, h, req)
		again := *req
		again.Object.Raw = apply(t, req.Object.Raw, a.Patch)
		if twice := ask(t, h, &again); len(twice.Patch) > 0 {
			t.Errorf("got %s of what the patch %s has made", twice.Patch, a.Patch)
		}
	})
}

// asServed makes of a pod what the API server makes of it, which has read it
// before it asks: no key is there twice, no container is null. It reports false
// for what is no pod.
func asServed(t testing.TB, object *runtime.RawExtension) bool {
	t.Helper()
	var pod corev1.Pod
	if len(object.Raw) > 0 && utiljson.Unmarshal(object.Raw, &pod) != nil {
		return false
	}
	object.Raw = marshal(t, &pod)
	return true
}

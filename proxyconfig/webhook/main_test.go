package webhook_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"go.uber.org/goleak"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveEnv); dir != "" {
		if err := serveReviews(dir); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const canary = "hunter2-canary"

var opts = proxyconfig.Options{
	Config: proxyconfig.Config{HTTPProxy: "http://proxy:1", HTTPSProxy: "http://user:" + canary + "@proxy:2", NoProxy: "svc"},
	Secret: "proxy",
}

func injector(t testing.TB, opts proxyconfig.Options) *proxyconfig.Injector {
	t.Helper()
	i, err := proxyconfig.NewInjector(opts)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// creation is the request for a pod's creation, as the API server makes it: a
// pod that is created has no namespace of its own yet.
func creation(t testing.TB, pod *corev1.Pod) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		UID:       "uid-1",
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: "default",
		Operation: admissionv1.Create,
		Object:    runtime.RawExtension{Raw: marshal(t, pod)},
	}
}

func reviewOf(t testing.TB, req *admissionv1.AdmissionRequest) []byte {
	return marshal(t, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  req,
	})
}

func post(h http.Handler, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// ask has h review req, and checks of the answer what the API server checks.
func ask(t testing.TB, h http.Handler, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	w := post(h, reviewOf(t, req))
	var got admissionv1.AdmissionReview
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("got %d (%s), %v; want an AdmissionReview", w.Code, w.Header().Get("Content-Type"), err)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("got more than an AdmissionReview")
	}
	a := got.Response
	if got.APIVersion != "admission.k8s.io/v1" || got.Kind != "AdmissionReview" || got.Request != nil || a == nil {
		t.Fatalf("got %s %s with request %v and response %v", got.APIVersion, got.Kind, got.Request, a)
	}
	if a.UID != req.UID || !a.Allowed || (a.PatchType != nil) != (len(a.Patch) > 0) || a.PatchType != nil && *a.PatchType != "JSONPatch" {
		t.Errorf("got uid %q, allowed %t, patch type %v of %d bytes", a.UID, a.Allowed, a.PatchType, len(a.Patch))
	}
	return a
}

// patched is the pod after the API server has applied the answer's patch, which
// it does with the same library.
func patched(t testing.TB, raw, patch []byte) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(apply(t, raw, patch), &pod); err != nil {
		t.Fatal(err)
	}
	return &pod
}

// apply returns an object with the patch of an answer applied, if there is one.
func apply(t testing.TB, raw, patch []byte) []byte {
	t.Helper()
	if len(patch) == 0 {
		return raw
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = p.Apply(raw); err != nil {
		t.Fatal(err)
	}
	return raw
}

// recorder keeps what the Hook is told. Its Handler serves one request at a time.
func recorder(i *proxyconfig.Injector, o webhook.Options) (*webhook.Handler, *[]webhook.Review) {
	told := new([]webhook.Review)
	o.Hooks.Reviewed = func(r webhook.Review) { *told = append(*told, r) }
	return webhook.New(i, o), told
}

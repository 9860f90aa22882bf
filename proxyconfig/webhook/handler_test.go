package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

func ephemeral(name string, env ...corev1.EnvVar) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Env: env}}
}

func somePod() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always, Env: []corev1.EnvVar{{Name: "A", Value: "a"}}}},
			Containers: []corev1.Container{
				{Name: "own", Env: []corev1.EnvVar{{Name: "https_proxy", Value: "http://own"}}},
				{Name: "list", Env: []corev1.EnvVar{{Name: "NO_PROXY", Value: "mine"}, {Name: "B", Value: "$(NO_PROXY)"}}},
				{Name: "bare"},
			},
		},
	}
}

// What the API server has after the patch is what Inject makes of the pod.
func TestCreate(t *testing.T) {
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want []string // containers
	}{
		{"all kinds", somePod(), []string{"init", "sidecar", "list", "bare"}},
		{"no containers", &corev1.Pod{}, nil},
		{"ephemeral at once", &corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{ephemeral("e")}}}, []string{"e"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := injector(t, opts)
			h, told := recorder(i, webhook.Options{})
			req := creation(t, tt.pod)
			a := ask(t, h, req)
			want := tt.pod.DeepCopy()
			i.Inject(&want.Spec)
			got := patched(t, req.Object.Raw, a.Patch)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("want - got +:\n%s", diff)
			}
			if injected := (*told)[0].Injected; !slices.Equal(injected, tt.want) {
				t.Errorf("got %q injected, want %q", injected, tt.want)
			}
			if again := ask(t, h, creation(t, got)); len(again.Patch) > 0 {
				t.Errorf("got %s of the patched pod, want no patch", again.Patch)
			}
			if bytes.Contains(a.Patch, []byte(canary)) {
				t.Errorf("got the password in %s", a.Patch)
			}
		})
	}
}

// An ephemeral container that is there can't be changed: a patch of it, or of
// another container, would have the API server refuse the new one.
func TestEphemeral(t *testing.T) {
	old := somePod()
	old.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("first")}
	pod := old.DeepCopy()
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, ephemeral("second"), ephemeral("third", corev1.EnvVar{Name: "A"}))
	req := creation(t, pod)
	req.Operation, req.SubResource, req.Name = admissionv1.Update, "ephemeralcontainers", "web-1"
	req.OldObject = runtime.RawExtension{Raw: marshal(t, old)}
	i := injector(t, opts)
	h, told := recorder(i, webhook.Options{})
	got := patched(t, req.Object.Raw, ask(t, h, req).Patch)
	want := pod.DeepCopy()
	want.Spec.EphemeralContainers[1].Env = i.Missing(nil)
	want.Spec.EphemeralContainers[2].Env = append(want.Spec.EphemeralContainers[2].Env, i.Missing(nil)...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
	if r := (*told)[0]; r.Name != "web-1" || r.Operation != "UPDATE" || !slices.Equal(r.Injected, []string{"second", "third"}) {
		t.Errorf("got %+v told", r)
	}
}

// What is none of its business is allowed as it is.
func TestAllowed(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*admissionv1.AdmissionRequest)
	}{
		{"update of a pod", func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }},
		{"deletion", func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.Object = admissionv1.Delete, runtime.RawExtension{}
		}},
		{"binding", func(r *admissionv1.AdmissionRequest) { r.SubResource = "binding" }},
		{"another resource", func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "configmaps" }},
		{"another group's pods", func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "metrics.k8s.io" }},
		{"kube-system", func(r *admissionv1.AdmissionRequest) { r.Namespace = "kube-system" }},
		{"opted out", func(r *admissionv1.AdmissionRequest) {
			pod := somePod()
			pod.Labels[proxyconfig.LabelInject] = "false"
			r.Object.Raw = marshal(t, pod)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := creation(t, somePod())
			h := webhook.New(injector(t, opts), webhook.Options{})
			if before := ask(t, h, req); len(before.Patch) == 0 {
				t.Fatal("got no patch of the pod, want one")
			}
			tt.edit(req)
			if a := ask(t, h, req); len(a.Patch) > 0 || len(a.Warnings) > 0 {
				t.Errorf("got patch %s and warnings %q, want none", a.Patch, a.Warnings)
			}
		})
	}
}

// The answer of a dry run is the same: there is no side effect to leave out.
func TestDryRun(t *testing.T) {
	h, told := recorder(injector(t, opts), webhook.Options{})
	req := creation(t, somePod())
	want := ask(t, h, req)
	dry := true
	req.DryRun = &dry
	if got := ask(t, h, req); !bytes.Equal(got.Patch, want.Patch) {
		t.Errorf("got %s, want %s", got.Patch, want.Patch)
	}
	if got := *told; got[0].DryRun || !got[1].DryRun {
		t.Errorf("got %t, %t told, want false, true", got[0].DryRun, got[1].DryRun)
	}
}

const longNumber = "98765432198765432198765"

// TestRefuses is what has the API server do as the failurePolicy says.
func TestRefuses(t *testing.T) {
	valid := reviewOf(t, creation(t, somePod()))
	edited := func(edit func(*admissionv1.AdmissionRequest)) io.Reader {
		req := creation(t, somePod())
		edit(req)
		return bytes.NewReader(reviewOf(t, req))
	}
	text := func(s string) io.Reader { return strings.NewReader(s) }
	const media = "application/json"
	for _, tt := range []struct {
		name, method, media string
		body                io.Reader
		want                int
	}{
		{"GET", "GET", media, bytes.NewReader(valid), 405},
		{"no content type", "POST", "", bytes.NewReader(valid), 415},
		{"another content type", "POST", "application/yaml", bytes.NewReader(valid), 415},
		{"a parameter of it", "POST", media + "; charset=utf-8", bytes.NewReader(valid), 200},
		{"as long as may be", "POST", media, bytes.NewReader(append(bytes.Clone(valid), bytes.Repeat([]byte(" "), 8<<20-len(valid))...)), 200},
		{"longer", "POST", media, bytes.NewReader(append(bytes.Clone(valid), bytes.Repeat([]byte(" "), 8<<20+1-len(valid))...)), 413},
		{"cut off", "POST", media, io.MultiReader(bytes.NewReader(valid[:50]), iotest.ErrReader(io.ErrUnexpectedEOF)), 400},
		{"empty", "POST", media, text(""), 400},
		{"not JSON", "POST", media, text(canary), 400},
		{"such a number in a review", "POST", media, text(`{"response":{"status":{"code":` + longNumber + `}}}`), 400},
		{"another kind", "POST", media, text(`{"apiVersion":"admission.k8s.io/v1","kind":"Pod","request":{"uid":"a"}}`), 400},
		{"another version", "POST", media, bytes.NewReader(bytes.Replace(valid, []byte("k8s.io/v1"), []byte("k8s.io/v1beta1"), 1)), 400},
		{"no request", "POST", media, text(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`), 400},
		{"no uid", "POST", media, edited(func(r *admissionv1.AdmissionRequest) { r.UID = "" }), 400},
		{"no pod", "POST", media, edited(func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`"` + canary + `"`) }), 400},
		{"a number that a parser's error would have in it", "POST", media, edited(func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(`{"spec":{"containers":` + longNumber + `}}`)
		}), 400},
		{"no object", "POST", media, edited(func(r *admissionv1.AdmissionRequest) { r.Object.Raw = nil }), 400},
		{"no old pod", "POST", media, edited(func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.SubResource, r.OldObject.Raw = admissionv1.Update, "ephemeralcontainers", []byte(`[]`)
		}), 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, told := recorder(injector(t, opts), webhook.Options{})
			r := httptest.NewRequest(tt.method, "/", tt.body)
			if tt.media != "" {
				r.Header.Set("Content-Type", tt.media)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			got := *told
			if w.Code != tt.want || len(got) != 1 || got[0].Status != tt.want || (got[0].Err != nil) != (tt.want != 200) {
				t.Errorf("got %d (%s), told %+v; want %d", w.Code, w.Body, got, tt.want)
			}
			if text := w.Body.String() + fmt.Sprintf("%+v", got); strings.Contains(text, canary) || strings.Contains(text, longNumber) {
				t.Errorf("got what was sent in %q or %+v", w.Body, got)
			}
			if allow := w.Header().Get("Allow"); (allow == "POST") != (tt.want == 405) {
				t.Errorf("got Allow %q", allow)
			}
		})
	}
}

func TestUse(t *testing.T) {
	h := webhook.New(nil, webhook.Options{})
	body := reviewOf(t, creation(t, somePod()))
	if w := post(h, body); w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d without an Injector, want 503", w.Code)
	}
	for _, url := range []string{"http://one", "http://two"} {
		h.Use(injector(t, proxyconfig.Options{Config: proxyconfig.Config{HTTPProxy: url}}))
		if a := ask(t, h, creation(t, somePod())); !bytes.Contains(a.Patch, []byte(url)) {
			t.Errorf("got %s, want %s in it", a.Patch, url)
		}
	}
}

func TestReview(t *testing.T) {
	h, told := recorder(injector(t, proxyconfig.Options{Config: opts.Config, Plain: true}), webhook.Options{})
	a := ask(t, h, creation(t, somePod()))
	got := (*told)[0]
	if got.Took <= 0 {
		t.Errorf("got %v, want a duration", got.Took)
	}
	got.Took = 0
	want := webhook.Review{UID: "uid-1", Namespace: "default", Name: "web-*", Operation: "CREATE",
		Injected: []string{"init", "sidecar", "list", "bare"}, Reason: proxyconfig.Default, Status: 200}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
	if !bytes.Contains(a.Patch, []byte(canary)) || strings.Contains(fmt.Sprintf("%+v", *told), canary) {
		t.Errorf("got %s and told %+v, want the password in the former alone", a.Patch, *told)
	}
}

// Requests and Use side by side: each answer is of one Injector.
func TestConcurrent(t *testing.T) {
	h := webhook.New(injector(t, opts), webhook.Options{})
	body := reviewOf(t, creation(t, somePod()))
	want := post(h, body).Body.Bytes()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				h.Use(injector(t, opts))
				if got := post(h, body).Body.Bytes(); !bytes.Equal(got, want) {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkHandler(b *testing.B) {
	h := webhook.New(injector(b, opts), webhook.Options{})
	body := reviewOf(b, creation(b, somePod()))
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if w := post(h, body); w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}

// TestHasSecret: a pod does not wait for a Secret that is not there, and the next one has it.
func TestHasSecret(t *testing.T) {
	there := map[string]bool{}
	h, _ := recorder(injector(t, opts), webhook.Options{HasSecret: func(namespace, secret, key string) bool {
		if namespace != "default" || secret == "" || key == "" {
			t.Errorf("asked for %q, %q, %q", namespace, secret, key)
		}
		return there[key]
	}})
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "bare"}}}}
	keys := map[string]bool{}
	for _, wait := range []bool{false, true} {
		req := creation(t, pod)
		found := 0
		for _, v := range patched(t, req.Object.Raw, ask(t, h, req).Patch).Spec.Containers[0].Env {
			if v.ValueFrom == nil {
				continue
			}
			from := v.ValueFrom.SecretKeyRef
			found, keys[from.Key] = found+1, true
			if optional := from.Optional != nil && *from.Optional; optional == wait {
				t.Errorf("%s: got optional %t while the Secret is there: %t", v.Name, optional, wait)
			}
		}
		if found == 0 {
			t.Fatal("got no reference to a Secret")
		}
		there = keys
	}
}

// TestReviewFunc: a review of another webhook is an HTTP handler, too.
func TestReviewFunc(t *testing.T) {
	review := webhook.ReviewFunc(func(_ context.Context, req *webhook.Request) ([]webhook.Operation, error) {
		if req.Namespace == "broken" {
			return nil, io.ErrUnexpectedEOF
		}
		return []webhook.Operation{{Op: "add", Path: "/metadata/labels", Value: map[string]string{"a": "b"}}}, nil
	})
	req := creation(t, &corev1.Pod{})
	if got := patched(t, req.Object.Raw, ask(t, review, req).Patch); got.Labels["a"] != "b" {
		t.Errorf("got the labels %v, want those of the patch", got.Labels)
	}
	req.Namespace = "broken"
	if w := post(review, reviewOf(t, req)); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "unexpected EOF") {
		t.Errorf("got %d, %s; want 500 and the error", w.Code, w.Body)
	}
	w := httptest.NewRecorder()
	review.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
		t.Errorf("got %d, Allow %q; want 405 and POST", w.Code, w.Header().Get("Allow"))
	}
}

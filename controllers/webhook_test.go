package controllers_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// writtenKubeconfig is what Cluster API writes. It has no route.
func writtenKubeconfig(token string) []byte {
	return []byte(`apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {server: "https://192.0.2.10:6443"}
contexts:
- name: c
  context: {cluster: c, user: c}
users:
- name: c
  user: {token: ` + token + `}
current-context: c
`)
}

// managedSecret returns a kubeconfig Secret as the provider keeps it, and the same
// after Cluster API has regenerated its kubeconfig.
func managedSecret(t *testing.T) (routed, regenerated *corev1.Secret) {
	t.Helper()
	s := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c-kubeconfig", ResourceVersion: "1", Labels: map[string]string{kubeconfig.ClusterNameLabel: "c"}},
		Type:       kubeconfig.SecretType,
		Data:       map[string][]byte{kubeconfig.SecretKey: writtenKubeconfig("old")},
	}
	cluster := provider.Cluster{Namespace: "ns", Name: "c", HasControlPlane: true, Endpoint: kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443}}
	config := provider.Config{Name: "ours", Now: time.Now(), Defaults: provider.Settings{ProxyURL: webhookProxy, NoProbe: true}}
	action, err := provider.Plan(cluster, provider.Secrets{Kubeconfig: s}, config)
	if err != nil || action.Update == nil {
		t.Fatalf("got %+v, %v, want an update", action, err)
	}
	regenerated = action.Update.DeepCopy()
	regenerated.Data[kubeconfig.SecretKey] = writtenKubeconfig("new")
	return action.Update, regenerated
}

const webhookProxy = "http://proxy.test:3128"

// TestKubeconfigWebhook posts what the API server does, at the path that the manager
// serves, and reads the patch as it does.
func TestKubeconfigWebhook(t *testing.T) {
	server := webhook.NewServer(webhook.Options{})
	mgr, err := manager.New(&rest.Config{Host: "127.0.0.1:1"}, manager.Options{WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	w := controllers.KubeconfigWebhook{Config: provider.Config{Name: "ours"}}
	if err := w.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	routed, regenerated := managedSecret(t)
	handedBack := regenerated.DeepCopy()
	delete(handedBack.Annotations, provider.AnnotationManager)
	for name, tt := range map[string]struct {
		old, written *corev1.Secret
		changed      bool
	}{
		"regenerated": {routed, regenerated, true},
		"handed back": {routed, handedBack, false},
		"the same":    {routed, routed, false},
		"created":     {nil, regenerated, false},
		"deleted":     {routed, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			review := &admissionv1.AdmissionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
				Request:  &admissionv1.AdmissionRequest{UID: "uid-1", Object: rawObject(t, tt.written), OldObject: rawObject(t, tt.old)},
			}
			answer, text := postReview(t, server.WebhookMux(), review)
			if r := answer.Response; r == nil || r.UID != "uid-1" || !r.Allowed {
				t.Fatalf("got %s, want it allowed", text)
			}
			if !tt.changed {
				if len(answer.Response.Patch) > 0 {
					t.Fatalf("got the patch %s, want none", answer.Response.Patch)
				}
				return
			}
			var patch []struct{ Op, Path, Value string }
			if err := json.Unmarshal(answer.Response.Patch, &patch); err != nil || len(patch) != 1 {
				t.Fatalf("got the patch %s, %v", answer.Response.Patch, err)
			}
			value, err := base64.StdEncoding.DecodeString(patch[0].Value)
			if err != nil || patch[0].Op != "replace" || patch[0].Path != "/data/value" {
				t.Fatalf("got the patch %v, %v", patch[0], err)
			}
			got, err := clientcmd.Load(value)
			if err != nil {
				t.Fatal(err)
			}
			want, err := clientcmd.Load(writtenKubeconfig("new"))
			if err != nil {
				t.Fatal(err)
			}
			want.Clusters["c"].ProxyURL = webhookProxy
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func rawObject(t *testing.T, s *corev1.Secret) runtime.RawExtension {
	t.Helper()
	if s == nil {
		return runtime.RawExtension{}
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: raw}
}

func postReview(t *testing.T, h http.Handler, review *admissionv1.AdmissionReview) (answer admissionv1.AdmissionReview, text string) {
	t.Helper()
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, controllers.KubeconfigWebhookPath, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	res := httptest.NewRecorder()
	h.ServeHTTP(res, req)
	if res.Code != http.StatusOK {
		t.Fatalf("got %d: %s", res.Code, res.Body)
	}
	text = res.Body.String()
	if err := json.Unmarshal(res.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return answer, text
}

package controllers_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/pki"
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

// managedSecret returns a kubeconfig Secret as the provider keeps it, the same
// after Cluster API has regenerated its kubeconfig, and what the provider remembers.
func managedSecret(t *testing.T) (routed, regenerated, memory *corev1.Secret) {
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
	return action.Update, regenerated, action.Records
}

const webhookProxy = "http://proxy.test:3128"

// TestKubeconfigWebhook posts what the API server does, at the path that the manager
// serves, and reads the patch as it does.
func TestKubeconfigWebhook(t *testing.T) {
	server := newWebhookServer(t, "127.0.0.1:0", nil, true)
	routed, regenerated, _ := managedSecret(t)
	wiped := regenerated.DeepCopy()
	wiped.Annotations = nil
	other, elsewhere := regenerated.DeepCopy(), wiped.DeepCopy()
	other.Name, elsewhere.Namespace = "other-kubeconfig", "elsewhere"
	for name, tt := range map[string]struct {
		old, written *corev1.Secret
		changed      bool
	}{
		"regenerated": {routed, regenerated, true},
		"wiped":       {routed, wiped, true},
		"made anew":   {nil, wiped, true},
		"the same":    {routed, routed, false},
		"another one": {nil, other, false},
		"elsewhere":   {nil, elsewhere, false},
		"deleted":     {routed, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			answer, text := postReview(t, server.WebhookMux(), reviewText(t, tt.old, tt.written))
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

// A replica that does not know yet what is remembered does not let a write pass.
func TestKubeconfigWebhookUnfilled(t *testing.T) {
	server := newWebhookServer(t, "127.0.0.1:0", nil, false)
	routed, regenerated, _ := managedSecret(t)
	for name, old := range map[string]*corev1.Secret{"updated": routed, "made anew": nil} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, controllers.KubeconfigWebhookPath, bytes.NewReader(reviewText(t, old, regenerated)))
		req.Header.Set("Content-Type", "application/json")
		res := httptest.NewRecorder()
		server.WebhookMux().ServeHTTP(res, req)
		if res.Code != http.StatusInternalServerError {
			t.Errorf("%s: got %d: %s, want 500", name, res.Code, res.Body)
		}
	}
}

// newWebhookServer has the webhook registered by a manager, whose cache is started if filled is set.
func newWebhookServer(t *testing.T, address string, config *tls.Config, filled bool) webhook.Server {
	t.Helper()
	api := apitest.New(t)
	_, _, memory := managedSecret(t)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(memory)
	if err != nil {
		t.Fatal(err)
	}
	object["apiVersion"], object["kind"] = "v1", "Secret"
	api.Set("secrets", object)
	server := controllers.NewWebhookServer(address, config)
	mgr, err := manager.New(api.Config(), manager.Options{WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"}, Cache: controllers.CacheOptions("ns")})
	if err != nil {
		t.Fatal(err)
	}
	if filled {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- mgr.GetCache().Start(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	w := controllers.KubeconfigWebhook{Config: provider.Config{Name: "ours"}, Namespaces: []string{"ns"}}
	if err := w.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	return server
}

// startWebhookServer starts one, until the test has ended, and returns the API server's client.
func startWebhookServer(t *testing.T) (server webhook.Server, address string, client *http.Client) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	l.Close()
	ca := pki.NewCA("ca")
	server = newWebhookServer(t, address, &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1")}}, true)
	if server.StartedChecker()(nil) == nil {
		t.Error("got no error of a server that does not listen yet")
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for server.StartedChecker()(nil) != nil {
		goruntime.Gosched()
	}
	return server, address, &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}}
}

// heapBytes is what the heap has now, garbage too.
func heapBytes() int64 {
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

func reviewText(t *testing.T, old, written *corev1.Secret) []byte {
	t.Helper()
	reviewed := written
	if reviewed == nil {
		reviewed = old
	}
	text, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionv1.AdmissionRequest{UID: "uid-1", Namespace: reviewed.Namespace, Name: reviewed.Name, Object: rawObject(t, written), OldObject: rawObject(t, old)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
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

func postReview(t *testing.T, h http.Handler, body []byte) (answer admissionv1.AdmissionReview, text string) {
	t.Helper()
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

// A stranger who keeps 60 reviews of 7 MiB unfinished, or has a kubeconfig parsed that
// becomes a hundred times as large, costs little of the pod's 256 MiB, and the API
// server is answered.
func TestWebhookServerStrangers(t *testing.T) {
	server, address, client := startWebhookServer(t)
	if err := server.StartedChecker()(nil); err != nil {
		t.Errorf("got %v of a server that listens", err)
	}
	routed, regenerated, _ := managedSecret(t)
	evil := regenerated.DeepCopy()
	evil.Data[kubeconfig.SecretKey] = []byte("a: [" + strings.Repeat("a,", 1<<19) + "]")
	evilReview, evilOld := reviewText(t, routed, evil), reviewText(t, evil, regenerated)
	half := bytes.Repeat([]byte("x"), 7<<20-1)
	for name, say := range map[string]struct {
		length int
		body   []byte
	}{"unfinished": {7 << 20, half}, "a kubeconfig of many values": {len(evilReview), evilReview}, "an old one of many values": {len(evilOld), evilOld}} {
		t.Run(name, func(t *testing.T) {
			before := heapBytes()
			var strangers sync.WaitGroup
			for range 60 {
				conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
				if err != nil {
					t.Fatal(err)
				}
				strangers.Go(func() {
					fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", controllers.KubeconfigWebhookPath, say.length)
					conn.Write(say.body)
					io.Copy(io.Discard, conn) // until it is closed
				})
				defer conn.Close()
			}
			var most int64
			for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				most = max(most, heapBytes()-before)
			}
			if most > 64<<20 {
				t.Errorf("got %d MiB more, want 64 at most", most>>20)
			}
			res, err := client.Post("https://"+address+controllers.KubeconfigWebhookPath, "application/json", bytes.NewReader(reviewText(t, routed, regenerated)))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if text, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(text), `"patch":`) {
				t.Errorf("got %s, %v; want a patch", text, err)
			}
		})
	}
}

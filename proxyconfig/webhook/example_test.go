package webhook_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

// The answer to an API server that creates a pod.
func Example() {
	injector, err := proxyconfig.NewInjector(proxyconfig.Options{
		Config: proxyconfig.Config{HTTPSProxy: "http://proxy.example.com:3128"},
		Exact:  true,
	})
	if err != nil {
		log.Fatal(err)
	}
	h := webhook.New(injector, webhook.Options{}) // for http.Server, with TLS

	review := `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
		"uid": "1", "operation": "CREATE", "namespace": "web",
		"kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"},
		"object": {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main", "image": "example"}]}}}}`
	r := httptest.NewRequest("POST", "/", strings.NewReader(review))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)

	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Response.Allowed)
	fmt.Println(string(answer.Response.Patch))
	// Output:
	// true
	// [{"op":"add","path":"/spec/containers/0/env","value":[{"name":"HTTPS_PROXY","value":"http://proxy.example.com:3128"},{"name":"https_proxy","value":"http://proxy.example.com:3128"}]}]
}

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// serveHTTP serves in the API server's namespace until stop is called.
func (c *cell) serveHTTP(address string, pair *tls.Certificate, h http.HandlerFunc) (stop func(), err error) {
	l, err := c.bed.Network.API.Listen(address)
	if err != nil {
		return nil, err
	}
	if pair != nil {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*pair}})
	}
	server := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(l) }()
	return func() { server.Close(); <-done }, nil
}

// apply makes objects with kubectl.
func (c *cell) apply(ctx context.Context, objects string) error {
	_, err := c.hub.Run(ctx, c.kubectl(objects, "apply", "-f", "-"))
	return err
}

// serviceProxy reads the page of a Service's endpoint, and of its pod, through
// kube-apiserver.
func serviceProxy(ctx context.Context, c *cell) error {
	stop, err := c.serveHTTP(webService, nil, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, bed.PodPage) })
	if err != nil {
		return err
	}
	defer stop()
	host, port, _ := strings.Cut(webService, ":")
	if err := c.apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [%s], conditions: {ready: true}, targetRef: {kind: Pod, name: pod, namespace: %s}}]
ports: [{name: http, port: %s}]
`, host, c.namespace, port)); err != nil {
		return err
	}
	// It leads to addresses of pods alone.
	status := fmt.Sprintf(`{"status": {"podIP": %q, "podIPs": [{"ip": %[1]q}]}}`, host)
	if _, err := c.hub.Run(ctx, c.kubectl("", "patch", "pod", "pod", "--subresource=status", "-p", status)); err != nil {
		return err
	}
	for _, what := range []string{"services/web:http", "pods/pod:" + port} {
		if err := c.want(ctx, c.kubectl("", "get", "--raw", "/api/v1/namespaces/"+c.namespace+"/"+what+"/proxy/"), bed.PodPage); err != nil {
			return err
		}
	}
	return nil
}

const refusal = "not while the webhook is asked"

// serviceWebhook has an admission webhook refuse what kubectl wants to make.
func serviceWebhook(ctx context.Context, c *cell) error {
	pair := c.bed.Kube.CA.Server("hook." + c.namespace + ".svc")
	stop, err := c.serveHTTP(webhook, &pair, refuseAdmission)
	if err != nil {
		return err
	}
	defer stop()
	ca, err := json.Marshal(c.bed.Kube.CA.CertPEM()) // base64
	if err != nil {
		return err
	}
	if err := c.apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: hook}
spec: {clusterIP: %s, ports: [{port: 443}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: hook.example.com
  clientConfig: {service: {namespace: %s, name: hook}, caBundle: %s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`, webhookIP, c.namespace, ca)); err != nil {
		return err
	}
	// kube-apiserver takes a moment to know it.
	return bed.Poll(ctx, "the webhook to be asked", func(ctx context.Context) error {
		out, err := c.hub.Run(ctx, c.kubectl("", "create", "configmap", "refused", "--dry-run=server"))
		if err == nil || !strings.Contains(err.Error(), refusal) {
			return errors.Join(fmt.Errorf("got %q, want that the webhook refuses", out), err)
		}
		return nil
	})
}

// serveExtension has a webhook that is asked about updates of ConfigMaps, and an aggregated
// API, until stop is called.
func serveExtension(ctx context.Context, c *cell) (stop func() error, err error) {
	pair := c.bed.Kube.CA.Server("extension." + c.namespace + ".svc")
	end, err := c.serveHTTP(extension, &pair, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/apis") {
			io.WriteString(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "extension.example.com/v1", "resources": []}`)
			return
		}
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": %q, "allowed": true}}`, review.Request.UID)
	})
	if err != nil {
		return nil, err
	}
	ca, err := json.Marshal(c.bed.Kube.CA.CertPEM()) // base64
	if err != nil {
		return nil, err
	}
	objects := fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: one}
---
apiVersion: v1
kind: Service
metadata: {name: extension}
spec: {clusterIP: %s, ports: [{port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: extension, labels: {kubernetes.io/service-name: extension}}
addressType: IPv4
endpoints: [{addresses: [%s], conditions: {ready: true}}]
ports: [{port: 18444}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: extension}
webhooks:
- name: extension.example.com
  clientConfig: {service: {namespace: %s, name: extension}, caBundle: %s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}]
  sideEffects: None
  timeoutSeconds: 2
  admissionReviewVersions: [v1]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.extension.example.com}
spec: {group: extension.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, caBundle: %[4]s, service: {namespace: %[3]s, name: extension}}
`, extensionIP, bed.APIIP, c.namespace, ca)
	if err := c.apply(ctx, objects); err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return func() error {
		defer end()
		_, err := c.hub.Run(ctx, c.kubectl(objects, "delete", "-f", "-"))
		return err
	}, nil
}

func refuseAdmission(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: refusal}}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(review)
}

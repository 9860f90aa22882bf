package provider_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

func TestNew(t *testing.T) {
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	kube, dyn := kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config)
	for _, tt := range []struct {
		name string
		opts provider.Options
		ok   bool
	}{
		{"REST", provider.Options{REST: config}, true},
		{"clients", provider.Options{Kubernetes: kube, Dynamic: dyn}, true},
		{"nothing", provider.Options{}, false},
		{"half of the clients", provider.Options{REST: config, Kubernetes: kube}, false},
		{"bad REST", provider.Options{REST: &rest.Config{Host: "http://a b"}}, false},
		{"bad TLS", provider.Options{REST: &rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}}, false},
		{"negative workers", provider.Options{REST: config, Workers: -1}, false},
		{"negative probes", provider.Options{REST: config, Probes: -1}, false},
		{"negative timeout", provider.Options{REST: config, ProbeTimeout: -1}, false},
		{"election", provider.Options{REST: config, LeaderElection: &provider.LeaderElection{Namespace: "n"}}, true},
		{"election nowhere", provider.Options{REST: config, LeaderElection: &provider.LeaderElection{}}, false},
		{"election in no time", provider.Options{REST: config, LeaderElection: &provider.LeaderElection{Namespace: "n", Lease: time.Second}}, false},
	} {
		p, err := provider.New(tt.opts)
		if (err == nil) != tt.ok || (p != nil) != tt.ok {
			t.Errorf("%s: got %v, %v", tt.name, p, err)
		}
	}
	if config.QPS != 0 {
		t.Errorf("got QPS %v in the caller's rest.Config, want it as it was", config.QPS)
	}
}

// TestEndBeforeBegin: Run returns though the API server never answers.
func TestEndBeforeBegin(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	p, err := provider.New(provider.Options{REST: &rest.Config{Host: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	<-asked
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

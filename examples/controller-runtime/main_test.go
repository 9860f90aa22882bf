package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Example reaches, through a proxy, an API server with two nodes.
func Example() {
	server := httptest.NewTLSServer(http.HandlerFunc(twoNodes))
	defer server.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	p := &proxytest.HTTP{}
	proxy := proxytest.Serve(l, p.Handle)
	defer proxy.Close()

	address := server.Listener.Addr().(*net.TCPAddr)
	config, err := kubeconfig.Spec{
		Name:        "prod",
		Endpoint:    kubeconfig.Endpoint{Host: "127.0.0.1", Port: int32(address.Port)},
		CA:          pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		Credentials: kubeconfig.Credentials{Token: "token"},
		Route:       kubeconfig.Route{ProxyURL: "http://" + proxy.Addr()},
	}.Build()
	if err != nil {
		log.Fatal(err)
	}
	secret, err := kubeconfig.Secret("prod", "default", config, nil)
	if err != nil {
		log.Fatal(err)
	}
	n, err := nodes(context.Background(), secret, scheme.Scheme)
	fmt.Println(n, err)
	// Output: 2 <nil>
}

// twoNodes is as much of an API server as the client and the manager ask for.
func twoNodes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/api":
		json.NewEncoder(w).Encode(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case "/apis":
		json.NewEncoder(w).Encode(metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{{
				Name:             "cluster.x-k8s.io",
				Versions:         []metav1.GroupVersionForDiscovery{{GroupVersion: "cluster.x-k8s.io/v1beta2", Version: "v1beta2"}},
				PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "cluster.x-k8s.io/v1beta2", Version: "v1beta2"},
			}},
		})
	case "/api/v1":
		json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{Name: "nodes", SingularName: "node", Kind: "Node"},
				{Name: "secrets", SingularName: "secret", Kind: "Secret", Namespaced: true},
				{Name: "namespaces", SingularName: "namespace", Kind: "Namespace"},
			},
		})
	case "/apis/cluster.x-k8s.io/v1beta2":
		json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "cluster.x-k8s.io/v1beta2",
			APIResources: []metav1.APIResource{{Name: "clusters", SingularName: "cluster", Kind: "Cluster", Namespaced: true}},
		})
	case "/api/v1/nodes":
		json.NewEncoder(w).Encode(corev1.NodeList{
			TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, Items: make([]corev1.Node, 2),
		})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func TestNodesOfWhatIsNoKubeconfig(t *testing.T) {
	for name, data := range map[string]string{"empty": "", "not YAML": "{", "no server": "kind: Config"} {
		secret := &corev1.Secret{Data: map[string][]byte{kubeconfig.SecretKey: []byte(data)}}
		if _, err := nodes(t.Context(), secret, runtime.NewScheme()); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// TestManager is put together, and not started.
func TestManager(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(twoNodes))
	defer server.Close()
	m, err := newManager(t.Context(), &rest.Config{Host: server.URL}, provider.Settings{ProxyURL: "http://proxy:3128"}, "system")
	if err != nil || m == nil {
		t.Errorf("got %v, want a manager", err)
	}
}

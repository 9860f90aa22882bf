package connect_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
)

// A redirect that leads away from the API server is not followed: the transport
// would send the token there.
func TestRedirectKeepsToken(t *testing.T) {
	var (
		mu       sync.Mutex
		received []string // what came to the servers that are not the API server
		location string
	)
	record := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		received = append(received, r.Host+" "+r.Header.Get("Authorization"))
	})
	plain, other := httptest.NewServer(record), httptest.NewTLSServer(record)
	defer plain.Close()
	defer other.Close()
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/base/from":
			http.Redirect(w, r, location, http.StatusTemporaryRedirect)
		case "/base/to":
			w.Write([]byte(r.Header.Get("Authorization")))
		default:
			record(w, r)
		}
	}))
	defer api.Close()
	config := clientcmdapi.NewConfig()
	config.CurrentContext = "c"
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: api.URL + "/base", InsecureSkipTLSVerify: true}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: kubetest.Canary}
	client := kubetest.NewClient(t, config, nil)
	byConfig, err := rest.HTTPClientFor(client.Config())
	if err != nil {
		t.Fatal(err)
	}
	for kind, h := range map[string]*http.Client{"HTTP": client.HTTP(), "Config": byConfig} {
		for _, test := range []struct{ location, want string }{
			{plain.URL + "/base/to", "redirects to http://127.0.0.1"},
			{strings.Replace(api.URL, "https:", "http:", 1) + "/base/to", "redirects to http://127.0.0.1"},
			{other.URL + "/base/to", "redirects to https://127.0.0.1"},
			{"/elsewhere", "redirects to https://127.0.0.1"},
			{"https://a%e2%80%aeb.test/", "redirects to https://a?b.test: not followed"},
			{"to", ""},
			{api.URL + "/base/to", ""},
		} {
			location = test.location
			resp, err := h.Get(api.URL + "/base/from")
			if resp != nil {
				resp.Body.Close()
			}
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%s: redirect to %s: got %v, want %q", kind, test.location, err, test.want)
			}
		}
	}
	if received != nil {
		t.Errorf("another server than the API server got %q", received)
	}
}

package route_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

func TestForward(t *testing.T) {
	const now, old, front = "https://new.test:6443", "https://old.test:6443", "https://front.test/k8s/clusters/c-1"
	for _, test := range []struct {
		name  string
		known []string // the newest first
		url   string
		want  string
	}{
		{"for the server", []string{now, old}, now + "/api?x=1", now + "/api?x=1"},
		{"for the former", []string{now, old}, old + "/api?x=1", now + "/api?x=1"},
		{"in upper case", []string{now, old}, "https://OLD.test:6443/api", now + "/api"},
		{"for another host", []string{now, old}, "https://other.test:6443/api", "https://other.test:6443/api"},
		{"for another port", []string{now, old}, "https://old.test/api", "https://old.test/api"},
		{"by another scheme", []string{now, old}, "http://old.test:6443/api", "http://old.test:6443/api"},
		{"with the port left out", []string{now, "https://old.test:443"}, "https://old.test/api", now + "/api"},
		{"into a path", []string{front, old}, old + "/api", front + "/api"},
		{"out of a path", []string{now, front + "/"}, front + "/api", now + "/api"},
		{"within a host", []string{"https://front.test/k8s/clusters/c-2", front}, front + "/api", "https://front.test/k8s/clusters/c-2/api"},
		{"from the host's root into a path", []string{front, "https://front.test"}, "https://front.test/api", front + "/api"},
		{"in a path of the host's root", []string{front, "https://front.test"}, front + "/api", front + "/api"},
		{"a path that only begins alike", []string{now, front}, front + "1/api", front + "1/api"},
		{"escaped", []string{now, front}, front + "/a%2Fb", now + "/a%2Fb"},
		{"two generations back", []string{now, old, front}, front + "/api", now + "/api"},
	} {
		req, err := http.NewRequest(http.MethodGet, test.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := route.ForwardURLs(req, test.known...)
		if err != nil {
			t.Fatal(err)
		}
		want, err := url.Parse(test.want)
		if err != nil {
			t.Fatal(err)
		}
		if got.URL.String() != test.want || got.Host != want.Host {
			t.Errorf("%s: got %s for %s, want %s", test.name, got.URL, got.Host, test.want)
		}
		if req.URL.String() != test.url {
			t.Errorf("%s: the request was changed", test.name)
		}
	}
}

// A Host that the caller has set stays.
func TestForwardHost(t *testing.T) {
	req, err := http.NewRequest(http.MethodGet, "https://old.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "own.test"
	got, err := route.ForwardURLs(req, "https://new.test", "https://old.test")
	if err != nil || got.Host != "own.test" || got.URL.Host != "new.test" {
		t.Errorf("got %s for %s, %v", got.URL, got.Host, err)
	}
}

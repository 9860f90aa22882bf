package kubernetes_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

var authorityKey = apitest.Named("secrets", namespace, "authority")

func authoritySecret(t *testing.T, api *apitest.Server) kubernetes.AuthoritySecret {
	return kubernetes.AuthoritySecret{Client: client(t, api), Namespace: namespace, Name: "authority"}
}

// Several replicas that start at once have one authority.
func TestAuthorityOnce(t *testing.T) {
	api := apitest.New(t)
	if _, err := authoritySecret(t, api).Load(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
	pins := make([]string, 8)
	var wg sync.WaitGroup
	for n := range pins {
		s := authoritySecret(t, api)
		wg.Go(func() {
			a, err := s.LoadOrCreate(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			pins[n] = a.Pin()
		})
	}
	wg.Wait()
	again, err := authoritySecret(t, api).LoadOrCreate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pin := range pins {
		if pin != again.Pin() {
			t.Fatalf("got %q, want %s of all", pins, again.Pin())
		}
	}
	if n := api.Wrote("POST secrets"); n != 1 {
		t.Errorf("got %d Secrets created, want 1", n)
	}
	if kind, _, _ := unstructured.NestedString(api.Get(authorityKey).Object, "type"); kind != "kubernetes.io/tls" {
		t.Errorf("got the type %q", kind)
	}
}

func authority(t *testing.T) *tunnel.Authority {
	t.Helper()
	a, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// put writes the Secret, as a person does.
func put(api *apitest.Server, cert, key, trusted []byte) {
	data := map[string]any{}
	for name, value := range map[string][]byte{"tls.crt": cert, "tls.key": key, kubernetes.DataTrusted: trusted} {
		data[name] = base64.StdEncoding.EncodeToString(value)
	}
	api.Set("secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data,
		"metadata": map[string]any{"namespace": namespace, "name": "authority"},
	})
}

func pem(t *testing.T, a *tunnel.Authority) (cert, key []byte) {
	t.Helper()
	cert, key, err := a.PEM()
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// What is written to the Secret is the authority of a Server that runs, unless
// it can't be one.
func TestAuthorityWatch(t *testing.T) {
	api := apitest.New(t)
	first, next := authority(t), authority(t)
	firstCert, firstKey := pem(t, first)
	nextCert, nextKey := pem(t, next)
	put(api, firstCert, firstKey, nil)
	api.SetFault(func(r *http.Request) int {
		// What a right to this one Secret covers.
		if r.Method == http.MethodGet && r.URL.Query().Get("fieldSelector") != "metadata.name=authority" {
			return http.StatusForbidden
		}
		return 0
	})
	s := authoritySecret(t, api)
	got, errs := make(chan *tunnel.Authority, 10), make(chan error, 10)
	s.Error = tell(errs)
	server := &tunnel.Server{Authority: first}
	defer server.Close()
	stop := start(t, func(ctx context.Context) error {
		return s.Watch(ctx, func(a *tunnel.Authority) error {
			defer tell(got)(a)
			return server.SetAuthority(a)
		})
	})
	wants := func(signs *tunnel.Authority, trusted int) {
		t.Helper()
		if a := receive(t, got, "the authority"); a.Pin() != signs.Pin() || len(a.Trusted) != trusted {
			t.Errorf("got %s with %d more, want %s with %d", a.Pin(), len(a.Trusted), signs.Pin(), trusted)
		}
	}
	fails := func(want string) {
		t.Helper()
		if err := receive(t, errs, want); !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-text") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	wants(first, 0)
	for n := range 50 {
		api.Change(authorityKey, func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"n": fmt.Sprint(n)}) })
	}
	put(api, firstCert, firstKey, nextCert)
	wants(first, 1)
	put(api, firstCert, nextKey, nil)
	fails("private key does not match public key")
	put(api, []byte("secret-text"), []byte("secret-text"), nil)
	fails("failed to find any PEM data")
	api.Remove(authorityKey)
	fails("file does not exist")
	put(api, nextCert, nextKey, firstCert)
	wants(next, 1)
	if inv, err := server.Invite(t.Context(), "c", 0); err != nil || inv.Pin != next.Pin() {
		t.Errorf("got %v, %v of the server, want the pin %s", inv, err, next.Pin())
	}
	stop()
	if len(got)+len(errs) > 0 {
		t.Errorf("got %d authorities and %d errors more", len(got), len(errs))
	}
}

// An authority that can't be read is no reason to make another.
func TestAuthorityKept(t *testing.T) {
	api := apitest.New(t)
	put(api, []byte("secret-text"), nil, nil)
	var e *tunnel.Error
	_, err := authoritySecret(t, api).LoadOrCreate(t.Context())
	if !errors.As(err, &e) || e.Code != tunnel.CodeConfig || strings.Contains(err.Error(), "secret-text") {
		t.Errorf("got %v, want an error with %v", err, tunnel.CodeConfig)
	}
	away(api)
	if _, err := authoritySecret(t, api).LoadOrCreate(t.Context()); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want the API server's error", err)
	}
	if n := api.Tried("POST", "secrets"); n != 0 {
		t.Errorf("got %d Secrets created, want none", n)
	}
}

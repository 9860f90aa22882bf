package oidc_test

import (
	"context"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/oidc"
)

// fetchWorld has one cluster, whose keys are fetched, and a clock.
type fetchWorld struct {
	*clock
	server  *issuerServer
	url     string
	issuers *oidc.Issuers
}

func newFetchWorld(t *testing.T, keys ...*key) *fetchWorld {
	w := &fetchWorld{server: newIssuerServer(t)}
	w.url = w.server.add("a", keys...)
	w.issuers = newIssuers(t, w.server.registration("prod/a", w.url))
	w.clock = newClock(w.issuers)
	return w
}

// token is one that is valid by the clock.
func (w *fetchWorld) token(k *key, changes object) string {
	return k.token(w.url, object{"iat": w.unix(0), "nbf": w.unix(0), "exp": w.unix(10 * time.Minute)}.with(changes))
}

func (w *fetchWorld) enroll(t *testing.T, token string) error {
	t.Helper()
	_, err := w.issuers.Enroll(testContext(t), tunnel.Enrollment{Cluster: "prod/a", Token: token, Key: anyKey})
	return err
}

// wantFetches compares the number of requests since the last call.
func (w *fetchWorld) wantFetches(t *testing.T, what string, want int64) {
	t.Helper()
	if got := w.server.fetches.Swap(0); got != want {
		t.Errorf("%s: the issuer got %d requests, want %d", what, got, want)
	}
}

// TestRotation: a new key counts once a token needs it, a removed one for five minutes.
func TestRotation(t *testing.T) {
	was, is := newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P256())
	w := newFetchWorld(t, was)
	for range 3 {
		if err := w.enroll(t, w.token(was, nil)); err != nil {
			t.Fatal(err)
		}
	}
	w.wantFetches(t, "the first key", 2)
	w.server.add("a", was, is)
	w.advance(oidc.FirstPause)
	if err := w.enroll(t, w.token(is, nil)); err != nil {
		t.Errorf("a new key: %v", err)
	}
	if err := w.enroll(t, w.token(was, nil)); err != nil {
		t.Errorf("the key before: %v", err)
	}
	w.wantFetches(t, "a new key", 2)
	w.server.add("a", is)
	w.advance(oidc.KeysFresh - time.Second)
	if err := w.enroll(t, w.token(was, nil)); err != nil {
		t.Errorf("a removed key within five minutes: %v", err)
	}
	w.advance(time.Second)
	if err := w.enroll(t, w.token(was, nil)); !errors.Is(err, oidc.ErrUnknownKey) {
		t.Errorf("a removed key: got %v, want %v", err, oidc.ErrUnknownKey)
	}
	if err := w.enroll(t, w.token(is, nil)); err != nil {
		t.Errorf("the key that is left: %v", err)
	}
	w.wantFetches(t, "a removed key", 2)
}

// TestUnknownKeys: however many tokens with names of keys that nobody has are shown, and
// by however many at once, the issuer is asked once in ten seconds.
func TestUnknownKeys(t *testing.T) {
	good, stranger := newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P256())
	w := newFetchWorld(t, good)
	flood := func() {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 25 {
					header := stranger.header().with(object{"kid": rand.Text()}).json()
					if err := w.enroll(t, stranger.sign(header, claims(w.url).json())); !errors.Is(err, oidc.ErrUnknownKey) {
						t.Errorf("got %v, want %v", err, oidc.ErrUnknownKey)
					}
				}
			})
		}
		wg.Wait()
	}
	flood()
	w.wantFetches(t, "200 unknown keys", 2)
	if err := w.enroll(t, w.token(good, nil)); err != nil {
		t.Errorf("an agent after the flood: %v", err)
	}
	w.advance(oidc.FirstPause)
	flood()
	w.wantFetches(t, "200 more after ten seconds", 2)
	for _, test := range []struct{ name, token string }{
		{"a wrong signature with a key's name", zeroSignature(good, claims(w.url).json())},
		{"a wrong audience", stranger.token(w.url, object{"aud": []string{"x"}})},
		{"a wrong subject", stranger.token(w.url, object{"sub": "x"})},
		{"expired", stranger.token(w.url, object{"exp": w.unix(-time.Hour)})},
	} {
		w.advance(oidc.FirstPause)
		if err := w.enroll(t, test.token); err == nil {
			t.Errorf("%s: no error", test.name)
		}
		w.wantFetches(t, test.name, 0)
	}
}

// TestIssuerAway: the keys that are known count for an hour, and the pause between two
// attempts grows to a minute.
func TestIssuerAway(t *testing.T) {
	good, stranger := newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P256())
	w := newFetchWorld(t, good)
	if err := w.enroll(t, w.token(good, nil)); err != nil {
		t.Fatal(err)
	}
	w.server.fetches.Store(0)
	w.server.handle("/a/openid/v1/jwks", http.NotFound)
	w.advance(oidc.KeysFresh)
	if err := w.enroll(t, w.token(good, nil)); err != nil {
		t.Errorf("a known key: %v", err)
	}
	if err := w.enroll(t, w.token(stranger, nil)); !errors.Is(err, oidc.ErrUnavailable) || !strings.Contains(err.Error(), "status 404") {
		t.Errorf("an unknown key: got %v, want %v", err, oidc.ErrUnavailable)
	}
	w.wantFetches(t, "the first failure", 2)
	attempts := 0
	for range 600 { // ten minutes
		w.advance(time.Second)
		w.enroll(t, w.token(stranger, nil))
		attempts += int(w.server.fetches.Swap(0)) / 2
	}
	if attempts < 10 || attempts > 12 {
		t.Errorf("got %d attempts in ten minutes, want about one a minute", attempts)
	}
	w.advance(oidc.KeysKept)
	if err := w.enroll(t, w.token(good, nil)); !errors.Is(err, oidc.ErrUnavailable) {
		t.Errorf("a known key after an hour: got %v, want %v", err, oidc.ErrUnavailable)
	}
	w.server.add("a", good)
	w.advance(time.Minute)
	if err := w.enroll(t, w.token(good, nil)); err != nil {
		t.Errorf("the issuer is back: %v", err)
	}
}

// TestHostileIssuers: what an issuer answers leads the server nowhere else, and costs a
// bounded time and memory.
func TestHostileIssuers(t *testing.T) {
	good := newECDSA(t, elliptic.P256())
	var strayed atomic.Int64
	stray := func(http.ResponseWriter, *http.Request) { strayed.Add(1) }
	plain := httptest.NewServer(http.HandlerFunc(stray))
	t.Cleanup(plain.Close)
	other := httptest.NewTLSServer(http.HandlerFunc(stray))
	t.Cleanup(other.Close)
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
	}
	const document, keys = "/a/.well-known/openid-configuration", "/a/openid/v1/jwks"
	says := func(w *fetchWorld, changes object) http.HandlerFunc {
		return answer(object{"issuer": w.url, "jwks_uri": w.url + "/openid/v1/jwks"}.with(changes).json())
	}
	huge := func(w http.ResponseWriter, _ *http.Request) {
		block := []byte(strings.Repeat(" ", 64<<10))
		for range 160 { // 10 MiB
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	for _, test := range []struct {
		name, path string
		handler    func(w *fetchWorld) http.HandlerFunc
		want       string
	}{
		{"another issuer", document, func(w *fetchWorld) http.HandlerFunc { return says(w, object{"issuer": w.server.URL + "/b"}) }, "of another issuer"},
		{"no issuer", document, func(w *fetchWorld) http.HandlerFunc { return says(w, object{"issuer": nil}) }, "of another issuer"},
		{"a slash more", document, func(w *fetchWorld) http.HandlerFunc { return says(w, object{"issuer": w.url + "/"}) }, "of another issuer"},
		{"not JSON", document, func(*fetchWorld) http.HandlerFunc { return answer([]byte("<html>")) }, "is not JSON"},
		{"keys by http", document, func(w *fetchWorld) http.HandlerFunc { return says(w, object{"jwks_uri": plain.URL}) }, "want a URL https"},
		{"keys in a file", document, func(w *fetchWorld) http.HandlerFunc { return says(w, object{"jwks_uri": "file:///etc/passwd"}) }, "want a URL https"},
		{"keys at another host", document, func(w *fetchWorld) http.HandlerFunc { return says(w, object{"jwks_uri": other.URL}) }, "on another host"},
		{"no keys", document, func(w *fetchWorld) http.HandlerFunc { return says(w, object{"jwks_uri": nil}) }, "want a URL https"},
		{"redirect to http", document, func(*fetchWorld) http.HandlerFunc { return redirect(plain.URL) }, "a redirect to another host"},
		{"redirect to another host", document, func(*fetchWorld) http.HandlerFunc { return redirect(other.URL) }, "a redirect to another host"},
		{"keys redirect to http", keys, func(*fetchWorld) http.HandlerFunc { return redirect(plain.URL) }, "a redirect to another host"},
		{"keys redirect to another host", keys, func(*fetchWorld) http.HandlerFunc { return redirect(other.URL) }, "a redirect to another host"},
		{"redirects without end", keys, func(w *fetchWorld) http.HandlerFunc { return redirect(w.url + "/openid/v1/jwks") }, "too many redirects"},
		{"a document of 10 MiB", document, func(*fetchWorld) http.HandlerFunc { return huge }, "more than 262144 bytes"},
		{"keys of 10 MiB", keys, func(*fetchWorld) http.HandlerFunc { return huge }, "more than 262144 bytes"},
		{"keys that are none", keys, func(*fetchWorld) http.HandlerFunc { return answer([]byte("[]")) }, "neither a JWK set nor PEM"},
		{"no key", keys, func(*fetchWorld) http.HandlerFunc { return answer([]byte(`{"keys":[]}`)) }, "there is no key in it"},
		{"keys that hang", keys, func(*fetchWorld) http.HandlerFunc {
			return func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		}, "context deadline exceeded"},
		{"keys that drip", keys, func(*fetchWorld) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				for {
					w.Write([]byte(" "))
					w.(http.Flusher).Flush()
					select {
					case <-r.Context().Done():
						panic(http.ErrAbortHandler) // the end of the handler would be that of the keys
					case <-time.After(100 * time.Millisecond):
					}
				}
			}
		}, "context deadline exceeded"},
		{"many headers", keys, func(*fetchWorld) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 64<<10)) }
		}, "headers exceeded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // two of them take five seconds
			w := newFetchWorld(t, good)
			w.server.handle(test.path, test.handler(w))
			err := w.enroll(t, w.token(good, nil))
			if !errors.Is(err, oidc.ErrUnavailable) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	t.Cleanup(func() {
		if n := strayed.Load(); n != 0 {
			t.Errorf("other servers were asked %d times, want none", n)
		}
	})
}

// TestCertificates: an issuer without the right certificate has no keys.
func TestCertificates(t *testing.T) {
	good := newECDSA(t, elliptic.P256())
	w := newFetchWorld(t, good)
	r := w.server.registration("prod/a", w.url)
	r.RootCAs = nil
	if err := w.issuers.Register(r); err != nil {
		t.Fatal(err)
	}
	if err := w.enroll(t, w.token(good, nil)); !errors.Is(err, oidc.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, want one about the certificate", err)
	}
}

// TestDial: the issuer is reached by the registration's own function.
func TestDial(t *testing.T) {
	good := newECDSA(t, elliptic.P256())
	w := newFetchWorld(t, good)
	r := w.server.registration("prod/a", w.url)
	var dialed atomic.Int64
	r.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	if err := w.issuers.Register(r); err != nil {
		t.Fatal(err)
	}
	if err := w.enroll(t, w.token(good, nil)); err != nil {
		t.Fatal(err)
	}
	if n := dialed.Load(); n != 1 {
		t.Errorf("got %d connections, want one for both requests", n)
	}
}

// TestLeavers: a client that does not wait for the answer keeps nobody from the keys.
func TestLeavers(t *testing.T) {
	good, stranger := newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P256())
	w := newFetchWorld(t, good)
	asked, release := make(chan struct{}), make(chan struct{})
	w.server.handle("/a/openid/v1/jwks", func(rw http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-release
		rw.Write(jwks(good))
	})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := w.issuers.Enroll(ctx, tunnel.Enrollment{Cluster: "prod/a", Token: w.token(stranger, nil), Key: anyKey})
		left <- err
	}()
	<-asked
	leave()
	if err := <-left; !errors.Is(err, oidc.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("who leaves: got %v", err)
	}
	agent := make(chan error, 1)
	go func() { agent <- w.enroll(t, w.token(good, nil)) }()
	close(release)
	if err := <-agent; err != nil {
		t.Errorf("the agent: %v", err)
	}
	w.wantFetches(t, "both", 2)
}

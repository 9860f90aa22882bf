package connect_test

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

func configBytes(t *testing.T, config *clientcmdapi.Config) []byte {
	t.Helper()
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func cacheSecret(t *testing.T, name string, version int, config *clientcmdapi.Config) *corev1.Secret {
	t.Helper()
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(version)},
		Data:       map[string][]byte{kubeconfig.SecretKey: configBytes(t, config)},
	}
}

func newCache(t *testing.T, api *apiServer, size int) *connect.Cache {
	t.Helper()
	cache := &connect.Cache{Size: size, Options: func(*corev1.Secret) *connect.Options {
		return &connect.Options{Dialer: api.dialer()}
	}}
	t.Cleanup(func() {
		if err := cache.Close(); err != nil {
			t.Error(err)
		}
	})
	return cache
}

func mustGet(t *testing.T, cache *connect.Cache, secret *corev1.Secret) (*connect.Client, func()) {
	t.Helper()
	client, release, err := cache.Get(secret)
	if err != nil {
		t.Fatal(err)
	}
	return client, release
}

func wantOpen(t *testing.T, what string, client *connect.Client, open bool) {
	t.Helper()
	if err := namespaces(client.Config()); (err == nil) != open || !open && !errors.Is(err, net.ErrClosed) {
		t.Errorf("%s: got %v, want open %t", what, err, open)
	}
}

func TestCacheFollows(t *testing.T) {
	api := newAPIServer(t)
	cache := newCache(t, api, 0)
	config := build(t, api, kubeconfig.Route{})
	client, release := mustGet(t, cache, cacheSecret(t, "a", 10, config))
	defer release()
	old := client.Config()
	wantToken := func(what, want string) {
		t.Helper()
		if err := namespaces(old); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := api.lastHeader().Get("Authorization"); got != want {
			t.Errorf("%s: got Authorization %q, want %q", what, got, want)
		}
	}
	wantToken("at first", "")
	again, releaseAgain := mustGet(t, cache, cacheSecret(t, "a", 11, withToken(config, "new")))
	releaseAgain()
	if again != client {
		t.Error("another version of the Secret gets another Client")
	}
	wantToken("after a change", "Bearer new")
	_, releaseOlder := mustGet(t, cache, cacheSecret(t, "a", 9, config))
	releaseOlder()
	wantToken("after an older Secret", "Bearer new")

	bad := cacheSecret(t, "a", 12, config)
	bad.Data[kubeconfig.SecretKey] = []byte("s3cret: {")
	if _, _, err := cache.Get(bad); err == nil || err.Error() != `kubeconfig: Secret ns/a: key "value": is not YAML, or not a mapping` {
		t.Errorf("of a broken Secret: got %v", err)
	}
	delete(bad.Data, kubeconfig.SecretKey)
	if _, _, err := cache.Get(bad); err == nil {
		t.Error("of a Secret without a kubeconfig: no error")
	}
	wantToken("after a broken Secret", "Bearer new")
}

func TestCacheIgnoresOlder(t *testing.T) {
	api := newAPIServer(t)
	config := build(t, api, kubeconfig.Route{})
	newest := func() *corev1.Secret { return cacheSecret(t, "a", 20, withToken(config, "good")) }
	tests := map[string]struct{ newest, older func() *corev1.Secret }{
		"after the same kubeconfig": {newest, func() *corev1.Secret { return cacheSecret(t, "a", 15, withToken(config, "old")) }},
		"after a broken Secret": {func() *corev1.Secret {
			broken := newest()
			broken.Data = nil
			return broken
		}, func() *corev1.Secret { return cacheSecret(t, "a", 15, withToken(config, "old")) }},
		"of another UID": {newest, func() *corev1.Secret {
			deleted := cacheSecret(t, "a", 15, withToken(config, "old"))
			deleted.UID = "deleted"
			return deleted
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cache := newCache(t, api, 0)
			client, release := mustGet(t, cache, cacheSecret(t, "a", 10, withToken(config, "good")))
			defer release()
			if _, release, err := cache.Get(test.newest()); err == nil {
				release()
			}
			again, releaseAgain := mustGet(t, cache, test.older())
			defer releaseAgain()
			if again != client {
				t.Error("got another Client")
			}
			wantOpen(t, "the Client", client, true)
			if got, want := api.lastHeader().Get("Authorization"), "Bearer good"; got != want {
				t.Errorf("got Authorization %q, want %q", got, want)
			}
		})
	}
}

func TestCacheAfterPanic(t *testing.T) {
	api := newAPIServer(t)
	cache := &connect.Cache{Options: func(*corev1.Secret) *connect.Options { panic("by the caller") }}
	defer cache.Close()
	secret := cacheSecret(t, "a", 10, build(t, api, kubeconfig.Route{}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _, _ = cache.Get(secret)
	}()
	cache.Options = func(*corev1.Secret) *connect.Options { return &connect.Options{Dialer: api.dialer()} }
	client, release := mustGet(t, cache, secret)
	release()
	cache.Forget("ns", "a")
	wantOpen(t, "nobody uses it", client, false)
}

func TestCacheGetDuringClose(t *testing.T) {
	api := newAPIServer(t)
	entered, proceed := make(chan struct{}), make(chan struct{})
	cache := &connect.Cache{Options: func(*corev1.Secret) *connect.Options {
		close(entered)
		<-proceed
		return &connect.Options{Dialer: api.dialer()}
	}}
	secret := cacheSecret(t, "a", 10, build(t, api, kubeconfig.Route{}))
	got := make(chan error)
	go func() {
		_, _, err := cache.Get(secret)
		got <- err
	}()
	<-entered
	closed := make(chan error)
	go func() { closed <- cache.Close() }()
	empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}
	for begun := false; !begun; { // Close itself waits for Options
		_, _, err := cache.Get(empty)
		begun = errors.Is(err, net.ErrClosed)
	}
	close(proceed)
	if err := <-got; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestCacheSecretMadeAgain(t *testing.T) {
	api := newAPIServer(t)
	cache := newCache(t, api, 0)
	secret := cacheSecret(t, "a", 10, build(t, api, kubeconfig.Route{}))
	first, releaseFirst := mustGet(t, cache, secret)
	next := secret.DeepCopy()
	next.UID = "next"
	second, releaseSecond := mustGet(t, cache, next)
	defer releaseSecond()
	if first == second {
		t.Fatal("a Secret that was made again has the Client of the one before")
	}
	wantOpen(t, "in use", first, true)
	releaseFirst()
	releaseFirst() // does nothing
	wantOpen(t, "released", first, false)
	wantOpen(t, "the new one", second, true)
}

func TestCacheEvicts(t *testing.T) {
	api := newAPIServer(t)
	cache := newCache(t, api, 2)
	config := build(t, api, kubeconfig.Route{})
	secret := func(name string) *corev1.Secret { return cacheSecret(t, name, 1, config) }
	a, releaseA := mustGet(t, cache, secret("a"))
	b, releaseB := mustGet(t, cache, secret("b"))
	c, releaseC := mustGet(t, cache, secret("c"))
	wantOpen(t, "a, in use", a, true)
	releaseB()
	wantOpen(t, "b, unused", b, false) // there were three
	releaseA()
	releaseC()
	wantOpen(t, "a, kept", a, true)
	// Asking for a makes c the one that was asked for longest ago.
	_, releaseA = mustGet(t, cache, secret("a"))
	releaseA()
	_, releaseD := mustGet(t, cache, secret("d"))
	releaseD()
	wantOpen(t, "a, asked for again", a, true)
	wantOpen(t, "c", c, false)
}

func TestCacheForgets(t *testing.T) {
	api := newAPIServer(t)
	cache := newCache(t, api, 0)
	secret := cacheSecret(t, "a", 1, build(t, api, kubeconfig.Route{}))
	one, releaseOne := mustGet(t, cache, secret)
	_, releaseTwo := mustGet(t, cache, secret)
	cache.Forget("ns", "a")
	cache.Forget("ns", "unknown")
	releaseOne()
	wantOpen(t, "with a user", one, true)
	releaseTwo()
	wantOpen(t, "without users", one, false)
	other, releaseOther := mustGet(t, cache, secret)
	releaseOther()
	wantOpen(t, "unused", other, true)
	cache.Forget("ns", "a")
	wantOpen(t, "unused and forgotten", other, false)
}

func TestCacheCloses(t *testing.T) {
	api := newAPIServer(t)
	cache := newCache(t, api, 0)
	secret := cacheSecret(t, "a", 1, build(t, api, kubeconfig.Route{}))
	client, release := mustGet(t, cache, secret)
	if err := cache.Close(); err != nil {
		t.Error(err)
	}
	wantOpen(t, "in use", client, false)
	release()
	if _, _, err := cache.Get(secret); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: got %v, want net.ErrClosed", err)
	}
}

// Whoever has a Client may use it until they release it, whatever others do.
func TestCacheAtOnce(t *testing.T) {
	api := newAPIServer(t)
	cache := newCache(t, api, 2)
	config := build(t, api, kubeconfig.Route{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 10 {
				secret := cacheSecret(t, fmt.Sprint("c", (i+j)%4), i*10+j, withToken(config, fmt.Sprint("t", j%2)))
				client, release, err := cache.Get(secret)
				if err != nil && strings.Contains(err.Error(), "there is a newer one") {
					continue // whose Client another goroutine is about to make
				}
				if err != nil {
					t.Error(err)
					return
				}
				if err := namespaces(client.Config()); err != nil {
					t.Errorf("%s: %v", secret.Name, err)
				}
				if j == 5 {
					cache.Forget("ns", secret.Name)
				}
				release()
			}
		})
	}
	wg.Wait()
}

func TestCacheWithoutSecret(t *testing.T) {
	var cache connect.Cache
	if _, _, err := cache.Get(nil); err == nil {
		t.Error("no error for no Secret")
	}
	if _, err := kubeconfig.FromSecret(nil); err == nil {
		t.Error("no error of FromSecret for no Secret")
	}
}

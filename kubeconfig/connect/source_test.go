package connect_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/kubeconfig/connect"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// sourceConfig is a kubeconfig that is told from others by its token.
func sourceConfig(token string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.CurrentContext = "c"
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://api.test"}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	return config
}

func sourceBytes(t *testing.T, config *clientcmdapi.Config) []byte {
	t.Helper()
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// heard is what a Source told: tokens, and "error" for each error.
type heard struct {
	mu   sync.Mutex
	log  []string
	errs []error
}

func (h *heard) use(config *clientcmdapi.Config, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.log, h.errs = append(h.log, "error"), append(h.errs, err)
		return
	}
	h.log = append(h.log, config.AuthInfos["u"].Token)
}

// want compares what was told since the last time, and forgets it.
func (h *heard) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, h.told()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (h *heard) told() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	log := h.log
	h.log = nil
	return log
}

// watchSource runs in a synctest bubble; what it returns ends the watch.
func watchSource(t *testing.T, s connect.Source) (*heard, func()) {
	h, done := &heard{}, make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		s.Watch(ctx, h.use)
	}()
	return h, func() { cancel(); <-done }
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFileSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	writeFile(t, path, sourceBytes(t, sourceConfig("one")))
	synctest.Test(t, func(t *testing.T) {
		h, stop := watchSource(t, connect.FileSource(path))
		defer stop()
		pass := func() { time.Sleep(2500 * time.Millisecond) }
		pass()
		h.want(t, "at first", "one")
		pass()
		h.want(t, "unchanged")
		writeFile(t, path, sourceBytes(t, sourceConfig("two")))
		pass()
		h.want(t, "in place", "two")
		writeFile(t, path+".new", sourceBytes(t, sourceConfig("three")))
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		pass()
		h.want(t, "renamed", "three")
		writeFile(t, path, sourceBytes(t, sourceConfig("four"))[:100])
		time.Sleep(1100 * time.Millisecond) // one look at it
		writeFile(t, path, sourceBytes(t, sourceConfig("four")))
		pass()
		h.want(t, "half-written for a second", "four")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		pass()
		h.want(t, "removed", "error")
		writeFile(t, path, sourceBytes(t, sourceConfig("four")))
		pass()
		h.want(t, "back", "four")
		writeFile(t, path, nil)
		pass()
		h.want(t, "empty", "error")
		writeFile(t, path, []byte("s3cret: [s3cret"))
		pass()
		h.want(t, "not a kubeconfig", "error")
		if !errors.Is(h.errs[0], fs.ErrNotExist) {
			t.Errorf("got %v, want that there is no file", h.errs[0])
		}
		for _, err := range h.errs {
			if strings.Contains(err.Error(), "s3cret") || !strings.HasPrefix(err.Error(), "connect: file "+path) {
				t.Errorf("got %v, want the path without the content", err)
			}
		}
	})
}

// The kubelet swaps a link to a directory, and leaves all others.
func TestFileSourceMounted(t *testing.T) {
	dir := t.TempDir()
	mount := func(version, token, ca string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		config := sourceConfig(token)
		config.Clusters["c"].CertificateAuthority = "ca.crt"
		writeFile(t, filepath.Join(dir, version, "value"), sourceBytes(t, config))
		writeFile(t, filepath.Join(dir, version, "ca.crt"), []byte(ca))
		link := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(version, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	mount("..1", "one", "ca")
	for _, name := range []string{"value", "ca.crt"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	source := connect.FileSource(filepath.Join(dir, "value"))
	config, err := source.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := config.Clusters["c"].CertificateAuthority, filepath.Join(dir, "ca.crt"); got != want {
		t.Errorf("got CA file %s, want %s", got, want)
	}
	synctest.Test(t, func(t *testing.T) {
		h, stop := watchSource(t, source)
		defer stop()
		pass := func() { time.Sleep(2500 * time.Millisecond) }
		pass()
		h.want(t, "at first", "one")
		mount("..2", "two", "ca")
		pass()
		h.want(t, "swapped", "two")
		mount("..3", "two", "another ca")
		pass()
		h.want(t, "only a file that it names", "two")
	})
}

func secretWith(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1-kubeconfig", ResourceVersion: "7"}, Data: data}
}

func (*secretAPI) secret(t *testing.T, token string) *corev1.Secret {
	return secretWith(map[string][]byte{"value": sourceBytes(t, sourceConfig(token)), "other": []byte("x")})
}

// secretAPI is an API server whose list and watches a test scripts.
type secretAPI struct {
	*fake.Clientset
	mu       sync.Mutex // guards the fields below
	items    []corev1.Secret
	listErr  error
	watchErr error
	lists    int
	versions []string // where watches began
	watcher  *watch.FakeWatcher
}

func newSecretAPI(t *testing.T) *secretAPI {
	a := &secretAPI{Clientset: fake.NewClientset()}
	check := func(r k8stesting.ListRestrictions, namespace string) {
		if got := r.Fields.String(); got != "metadata.name=c1-kubeconfig" || namespace != "ns" {
			t.Errorf("asked for %q in %q", got, namespace)
		}
	}
	a.PrependReactor("list", "secrets", func(action k8stesting.Action) (bool, runtime.Object, error) {
		check(action.(k8stesting.ListAction).GetListRestrictions(), action.GetNamespace())
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lists++
		return true, &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(100 * a.lists)}, Items: a.items}, a.listErr
	})
	a.PrependWatchReactor("secrets", func(action k8stesting.Action) (bool, watch.Interface, error) {
		w := action.(k8stesting.WatchActionImpl)
		check(k8stesting.ListRestrictions{Fields: w.WatchRestrictions.Fields}, action.GetNamespace())
		a.mu.Lock()
		defer a.mu.Unlock()
		a.versions = append(a.versions, w.WatchRestrictions.ResourceVersion)
		if a.watchErr != nil {
			err := a.watchErr
			a.watchErr = nil
			return true, nil, err
		}
		a.watcher = watch.NewFake()
		return true, a.watcher, nil
	})
	return a
}

// answer scripts what comes from now on.
func (a *secretAPI) answer(listErr, watchErr error, items ...*corev1.Secret) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listErr, a.watchErr, a.items = listErr, watchErr, nil
	for _, item := range items {
		a.items = append(a.items, *item)
	}
}

func TestSecretSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSecretAPI(t)
		a.answer(nil, nil, a.secret(t, "one"))
		h, stop := watchSource(t, connect.SecretSource(a.CoreV1().Secrets("ns"), "c1-kubeconfig"))
		defer stop()
		h.want(t, "list", "one")
		a.watcher.Modify(a.secret(t, "two"))
		h.want(t, "modified", "two")
		same := a.secret(t, "two")
		same.Labels = map[string]string{"new": "label"}
		a.watcher.Modify(same)
		h.want(t, "another's change")
		a.watcher.Modify(secretWith(nil))
		h.want(t, "no value", "error")
		a.watcher.Modify(secretWith(map[string][]byte{"value": []byte("s3cret: [s3cret")}))
		h.want(t, "corrupt", "error")
		a.watcher.Modify(a.secret(t, "two"))
		h.want(t, "mended", "two")
		a.watcher.Delete(a.secret(t, "two"))
		h.want(t, "deleted", "error")
		if !apierrors.IsNotFound(h.errs[2]) {
			t.Errorf("got %v, want that it is not found", h.errs[2])
		}
		a.watcher.Add(a.secret(t, "two"))
		h.want(t, "created again", "two")
		other := a.secret(t, "other")
		other.Name = "other"
		a.watcher.Add(other)
		h.want(t, "another Secret")
		for _, err := range h.errs {
			_, text, ok := strings.Cut(err.Error(), "c1-kubeconfig: ")
			if !ok || strings.Contains(text, "s3cret") {
				t.Errorf("got %v, want the Secret's name without its content", err)
			}
		}
	})
}

// A watch that ends goes on where it was; one that can't begins with a list.
func TestSecretSourceResumes(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old")
	synctest.Test(t, func(t *testing.T) {
		a := newSecretAPI(t)
		a.answer(nil, nil, a.secret(t, "one"))
		h, stop := watchSource(t, connect.SecretSource(a.CoreV1().Secrets("ns"), "c1-kubeconfig"))
		defer stop()
		h.want(t, "list", "one")
		time.Sleep(time.Minute)
		bookmark := secretWith(nil)
		bookmark.Name, bookmark.ResourceVersion = "", "150"
		a.watcher.Action(watch.Bookmark, bookmark)
		a.watcher.Stop()
		h.want(t, "ended in its time")
		time.Sleep(time.Minute)
		a.answer(nil, nil, a.secret(t, "two"))
		a.watcher.Error(&expired.ErrStatus)
		time.Sleep(time.Minute)
		h.want(t, "expired", "two")
		a.answer(nil, expired, a.secret(t, "two"))
		a.watcher.Stop()
		h.want(t, "expired before it began")
		if diff := cmp.Diff([]string{"100", "150", "200", "200", "300"}, a.versions); diff != "" {
			t.Errorf("where watches began (-want +got):\n%s", diff)
		}
	})
}

// What fails is told, and tried again ever more slowly.
func TestSecretSourceRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSecretAPI(t)
		a.answer(apierrors.NewForbidden(corev1.Resource("secrets"), "c1-kubeconfig", errors.New("no")), nil)
		h, stop := watchSource(t, connect.SecretSource(a.CoreV1().Secrets("ns"), "c1-kubeconfig"))
		defer stop()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := len(h.errs); n < 20 || n > 150 || !apierrors.IsForbidden(h.errs[0]) {
			t.Errorf("got %d errors in ten minutes, the first %v", n, h.errs[0])
		}
		h.told()
		a.answer(nil, nil, a.secret(t, "one"))
		time.Sleep(time.Minute)
		h.want(t, "allowed", "one")
		a.answer(errors.New("down"), nil)
		a.watcher.Error(&apierrors.NewInternalError(errors.New("broken")).ErrStatus)
		time.Sleep(time.Minute)
		h.told()
		a.answer(nil, nil, a.secret(t, "one"))
		time.Sleep(time.Minute)
		h.want(t, "the same as before an error", "one")
	})
}

func TestSecretSourceRead(t *testing.T) {
	a := &secretAPI{}
	source := connect.SecretSource(fake.NewClientset(a.secret(t, "one")).CoreV1().Secrets("ns"), "c1-kubeconfig")
	config, err := source.Read(t.Context())
	if err != nil || config.AuthInfos["u"].Token != "one" {
		t.Errorf("got %v, %v", config, err)
	}
	_, err = connect.SecretSource(fake.NewClientset().CoreV1().Secrets("ns"), "c1-kubeconfig").Read(t.Context())
	if !apierrors.IsNotFound(err) || !strings.HasPrefix(err.Error(), "connect: Secret c1-kubeconfig") {
		t.Errorf("got %v, want that it is not found", err)
	}
}

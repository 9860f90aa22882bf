package controllers_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/kubeconfig"
)

// TestOmittedData: what a cache has only the names of is read from the API server.
func TestOmittedData(t *testing.T) {
	defer controllers.KeepData(0)()
	t.Run("kubeconfigs", TestRun)
	t.Run("route Secrets", TestStolenTicket)
	t.Run("proxies", TestProxyRun)
	t.Run("tunnels", TestTunnel)
	t.Run("edits", TestTunnelEdited)
	t.Run("SSH keys", TestTunnelKey)
}

// TestTrimmedData: a namespace with many Secrets takes half of the bound, and others half of
// what is left.
func TestTrimmedData(t *testing.T) {
	const most = 4 << 20
	trim, held := controllers.NewTrim(most)
	var all []any // as in a cache
	add := func(namespace string) (whole bool) {
		object, err := trim(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(len(all)), Labels: map[string]string{kubeconfig.ClusterNameLabel: "zz", "other": "x"}},
			Data:       map[string][]byte{"value": make([]byte, 1<<20-4<<10)},
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
		s := object.(*corev1.Secret)
		if s.Labels[kubeconfig.ClusterNameLabel] != "zz" || s.Namespace != namespace {
			t.Errorf("got %v, want that it is known whose it is", s.ObjectMeta)
		}
		return len(s.Data) > 0
	}
	wholes := func(namespace string, n int) (whole int) {
		for range n {
			if add(namespace) {
				whole++
			}
		}
		return whole
	}
	if got := wholes("tenant", 300); got != 2 {
		t.Errorf("got %d whole Secrets of a namespace, want half of 4", got)
	}
	if got := wholes("another", 3); got != 1 {
		t.Errorf("got %d whole Secrets of another one, want half of the rest", got)
	}
	if again, _ := trim(all[299]); len(again.(*corev1.Secret).Data) > 0 {
		t.Error("a second call has changed a Secret")
	}
	runtime.KeepAlive(all)
	all = nil
	for began := time.Now(); held("tenant")+held("another") > 0; runtime.GC() {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("got %d and %d bytes of Secrets that are gone", held("tenant"), held("another"))
		}
	}
}

// TestKeptMemory: what Secrets of a namespace hold is counted, whatever they are made of.
func TestKeptMemory(t *testing.T) {
	const most = 8 << 20
	for what, fill := range map[string]func(s *corev1.Secret, n string){
		"owners": func(s *corev1.Secret, n string) {
			s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{APIVersion: "a" + n, Kind: "b" + n, Name: "c" + n, UID: types.UID("d" + n)})
		},
		"finalizers":  func(s *corev1.Secret, n string) { s.Finalizers = append(s.Finalizers, "a.b/"+n) },
		"keys":        func(s *corev1.Secret, n string) { s.Data[n] = nil },
		"labels":      func(s *corev1.Secret, n string) { s.Labels[n] = "" },
		"annotations": func(s *corev1.Secret, n string) { s.Annotations[n] = "" },
		"its type":    func(s *corev1.Secret, n string) { s.Type += corev1.SecretType(n) },
	} {
		t.Run(what, func(t *testing.T) {
			trim, _ := controllers.NewTrim(most)
			before := heapSize()
			var all []any
			for range 50 {
				s := &corev1.Secret{Data: map[string][]byte{}}
				s.Namespace, s.Labels, s.Annotations = "tenant", map[string]string{}, map[string]string{}
				for n := range 5000 {
					fill(s, fmt.Sprintf("%05x", n))
				}
				kept, err := trim(s)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, kept)
			}
			if held := heapSize() - before; held > most/2 {
				t.Errorf("50 Secrets hold %d KiB, want at most half of 8 MiB", held>>10)
			}
			runtime.KeepAlive(all)
		})
	}
}

func heapSize() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestPages: lists are read a few objects at a time, and all of them are.
func TestPages(t *testing.T) {
	t.Parallel()
	const clusters = 19
	largest := map[string]int{"secrets": 8, "namespaces": 8, "clusters": 2, "testclusters": 2}
	b := newBed(t)
	b.SetFault(func(r *http.Request) int {
		most := largest[path.Base(r.URL.Path)]
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		if r.Method == http.MethodGet && r.URL.Query().Get("watch")+r.URL.Query().Get("fieldSelector") == "" && most > 0 && (limit < 1 || limit > most || r.URL.Query().Get("resourceVersion") != "") {
			return http.StatusRequestEntityTooLarge
		}
		return 0
	})
	for n := range clusters {
		name := fmt.Sprint("c", n)
		b.Set("namespaces", namespace(name, nil))
		b.Set("clusters", cluster(name, "one", route("p1:1")))
	}
	b.run(t)
	b.Until(t, "all routes", func() bool { return b.Wrote("PATCH clusters") == clusters })
	b.Gap(func() { b.Set("clusters", cluster("c3", "another", route("p1:1"))) })
	b.Until(t, "a list after a gap", func() bool { return b.Wrote("PATCH clusters") == clusters+1 })
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestDecodingTakesTurns: what one watch has brought is decoded before another one's is read.
func TestDecodingTakesTurns(t *testing.T) {
	for _, tt := range []struct {
		name, query string
		next        func(first io.ReadCloser) // of the first watch, after a tenth of a second
		want        time.Duration             // until the other one has its object
	}{
		{"the next is read", "?watch=true", func(first io.ReadCloser) { go first.Read(make([]byte, 1)) }, time.Second / 10},
		{"it ends", "?watch=1", func(first io.ReadCloser) { first.Close() }, time.Second / 10},
		{"its reader hangs", "?watch=true", func(io.ReadCloser) {}, time.Second / 2},
		{"no watch", "?limit=8", func(io.ReadCloser) {}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := controllers.TakeTurns(&http.Client{Transport: transportFunc(func(*http.Request) (*http.Response, error) {
					near, far := net.Pipe()
					go far.Write([]byte("x"))
					t.Cleanup(func() { far.Close() })
					return &http.Response{StatusCode: http.StatusOK, Body: near}, nil
				})})
				open := func() io.ReadCloser {
					resp, err := client.Get("http://a/b" + tt.query)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { resp.Body.Close() })
					return resp.Body
				}
				first, second := open(), open()
				began := time.Now()
				io.ReadFull(first, make([]byte, 1))
				go func() {
					time.Sleep(time.Second / 10)
					tt.next(first)
				}()
				if _, err := io.ReadFull(second, make([]byte, 1)); err != nil || time.Since(began) != tt.want {
					t.Errorf("got %v after %v, want the object after %v", err, time.Since(began), tt.want)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

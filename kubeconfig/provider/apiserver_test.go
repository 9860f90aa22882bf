package provider_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// apiServer is as much of an API server as the provider needs, with faults on
// order. It keeps objects as they come.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex // guards the fields below
	version  int
	objects  map[objectKey]*unstructured.Unstructured
	events   []change
	oldest   int              // watches from before are refused
	writes   map[string]int   // "PUT secrets" and so on, that succeeded
	requests []*http.Request  // writes, whatever came of them
	bodies   []string         // of requests
	served   map[string]group // by name
	tick     chan struct{}    // closed at each change, and replaced
	held     map[string]bool  // resources whose watches stand still
	fault    func(*http.Request) int
}

type objectKey struct{ resource, namespace, name string }

type change struct {
	kind    string // as in a watch
	version int
	key     objectKey
	object  *unstructured.Unstructured
}

type group struct {
	version string
	kinds   map[string]string // resource -> kind
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{
		objects: map[objectKey]*unstructured.Unstructured{},
		writes:  map[string]int{},
		held:    map[string]bool{},
		tick:    make(chan struct{}),
		version: 10,
		served: map[string]group{
			"cluster.x-k8s.io":                {"v1beta2", map[string]string{"clusters": "Cluster"}},
			"infrastructure.cluster.x-k8s.io": {"v1beta2", map[string]string{"testclusters": "TestCluster"}},
		},
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) config() *rest.Config {
	return &rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// touch wakes up who waits in until.
func (s *apiServer) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touchLocked()
}

func (s *apiServer) touchLocked() {
	close(s.tick)
	s.tick = make(chan struct{})
}

// until waits for done, which is asked after each change.
func (s *apiServer) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		s.mu.Lock()
		tick := s.tick
		s.mu.Unlock()
		if done() {
			return
		}
		select {
		case <-tick:
		case <-limit:
			t.Fatalf("%s: nothing came in a minute", what)
		}
	}
}

// set makes or replaces an object, as another client does.
func (s *apiServer) set(resource string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := (&unstructured.Unstructured{Object: object}).DeepCopy()
	s.putLocked(objectKey{resource, u.GetNamespace(), u.GetName()}, u)
}

// change edits an object, as another client does.
func (s *apiServer) change(key objectKey, edit func(*unstructured.Unstructured)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.objects[key].DeepCopy()
	edit(u)
	s.putLocked(key, u)
}

func (s *apiServer) remove(key objectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(key)
}

func (s *apiServer) get(key objectKey) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key].DeepCopy()
}

// list returns the objects of a resource.
func (s *apiServer) list(resource string) (found []*unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, u := range s.objects {
		if key.resource == resource {
			found = append(found, u)
		}
	}
	return found
}

func (s *apiServer) wrote(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes[what]
}

func (s *apiServer) allWrites() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.writes)
	delete(all, "PUT leases")
	delete(all, "POST leases")
	return all
}

// tried counts the writes of a resource, whatever came of them.
func (s *apiServer) tried(method, resource string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.Method == method && strings.HasSuffix(r.URL.Path, "/"+resource) {
			n++
		}
	}
	return n
}

// hold stops the watches of a resource, or lets them go on.
func (s *apiServer) hold(resource string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[resource] = on
	s.touchLocked()
}

// gap forgets what happened, ends the watches, and calls f before they can
// come back.
func (s *apiServer) gap(f func()) {
	s.mu.Lock()
	s.oldest = 1 << 30
	s.touchLocked()
	s.mu.Unlock()
	f()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, s.oldest = nil, s.version
}

func (s *apiServer) setFault(f func(*http.Request) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

func (s *apiServer) putLocked(key objectKey, u *unstructured.Unstructured) {
	s.version++
	kind := "MODIFIED"
	if s.objects[key] == nil {
		kind = "ADDED"
		u.SetUID(types.UID(fmt.Sprint("uid-", s.version)))
	} else {
		u.SetUID(s.objects[key].GetUID())
	}
	u.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[key] = u
	s.events = append(s.events, change{kind, s.version, key, u})
	s.touchLocked()
}

func (s *apiServer) removeLocked(key objectKey) {
	s.version++
	u := s.objects[key].DeepCopy()
	u.SetResourceVersion(strconv.Itoa(s.version))
	delete(s.objects, key)
	s.events = append(s.events, change{"DELETED", s.version, key, u})
	s.touchLocked()
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	fault := s.fault
	if r.Method != http.MethodGet {
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
		s.touchLocked()
	}
	s.mu.Unlock()
	if fault != nil {
		if code := fault(r); code != 0 {
			fail(w, code, map[bool]string{true: "Invalid", false: "InternalError"}[code == http.StatusUnprocessableEntity])
			return
		}
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "apis" && len(parts) <= 3 {
		s.discover(w, parts)
		return
	}
	if parts[0] == "apis" {
		parts = parts[1:]
	}
	parts = parts[2:] // group and version, or api and v1
	var key objectKey
	if parts[0] == "namespaces" && len(parts) > 2 {
		key.namespace, parts = parts[1], parts[2:]
	}
	key.resource = parts[0]
	if len(parts) > 1 {
		key.name = parts[1]
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.watch(w, r, key)
	case r.Method == http.MethodGet && key.name == "":
		s.answerList(w, r, key)
	default:
		s.one(w, r, key, body)
	}
}

func (s *apiServer) discover(w http.ResponseWriter, parts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(parts) < 2 {
		fail(w, http.StatusNotFound, "NotFound")
		return
	}
	g, ok := s.served[parts[1]]
	switch {
	case !ok || len(parts) == 3 && parts[2] != g.version:
		fail(w, http.StatusNotFound, "NotFound")
	case len(parts) == 2:
		v := metav1.GroupVersionForDiscovery{GroupVersion: parts[1] + "/" + g.version, Version: g.version}
		answer(w, metav1.APIGroup{Name: parts[1], Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	default:
		list := metav1.APIResourceList{GroupVersion: parts[1] + "/" + g.version}
		for name, kind := range g.kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Kind: kind, Namespaced: true})
		}
		answer(w, list)
	}
}

func selected(r *http.Request, key objectKey, u *unstructured.Unstructured, of objectKey) bool {
	if of.resource != key.resource || key.namespace != "" && key.namespace != of.namespace {
		return false
	}
	if name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); ok && name != of.name {
		return false
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	return err == nil && selector.Matches(labels.Set(u.GetLabels()))
}

func (s *apiServer) answerList(w http.ResponseWriter, r *http.Request, key objectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for of, u := range s.objects {
		if selected(r, key, u, of) {
			items = append(items, u.Object)
		}
	}
	kind := map[string]string{"secrets": "SecretList", "namespaces": "NamespaceList", "clusters": "ClusterList"}[key.resource]
	answer(w, map[string]any{
		"apiVersion": "v1", "kind": cmp.Or(kind, "List"), "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)},
	})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, key objectKey) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		fail(w, http.StatusUnprocessableEntity, "Invalid") // the client lists instead
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		w.(http.Flusher).Flush()
		s.mu.Lock()
		if from < s.oldest {
			s.mu.Unlock()
			json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": statusOf(http.StatusGone, "Expired")})
			return
		}
		var next []change
		if !s.held[key.resource] {
			next = slices.DeleteFunc(slices.Clone(s.events), func(c change) bool { return c.version <= from || !selected(r, key, c.object, c.key) })
		}
		tick := s.tick
		s.mu.Unlock()
		for _, c := range next {
			json.NewEncoder(w).Encode(map[string]any{"type": c.kind, "object": c.object.Object})
			from = c.version
		}
		if len(next) > 0 {
			continue
		}
		select {
		case <-tick:
		case <-r.Context().Done():
			return
		}
	}
}

// one is what concerns one object.
func (s *apiServer) one(w http.ResponseWriter, r *http.Request, key objectKey, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := &unstructured.Unstructured{Object: map[string]any{}}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &sent.Object); err != nil {
			fail(w, http.StatusBadRequest, "BadRequest")
			return
		}
	}
	if r.Method == http.MethodPost {
		key.name = sent.GetName()
	}
	has := s.objects[key]
	code, reason := check(r.Method, has, sent)
	if code != 0 {
		fail(w, code, reason)
		return
	}
	switch r.Method {
	case http.MethodGet:
		answer(w, has.Object)
		return
	case http.MethodPost, http.MethodPut:
		s.putLocked(key, sent)
		answer(w, sent.Object)
	case http.MethodDelete:
		s.removeLocked(key)
		answer(w, statusOf(http.StatusOK, ""))
	case http.MethodPatch:
		u := has.DeepCopy()
		for _, path := range [][]string{{"status", "conditions"}, {"status", "v1beta2", "conditions"}} {
			if list, ok, _ := unstructured.NestedSlice(sent.Object, path...); ok {
				merge(u, path, list[0].(map[string]any))
			}
		}
		s.putLocked(key, u)
		answer(w, u.Object)
	}
	s.writes[r.Method+" "+key.resource]++
	s.touchLocked()
}

func merge(u *unstructured.Unstructured, path []string, entry map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, path...)
	list = slices.DeleteFunc(list, func(c any) bool { return c.(map[string]any)["type"] == entry["type"] })
	unstructured.SetNestedSlice(u.Object, append(list, entry), path...)
}

func check(method string, has, sent *unstructured.Unstructured) (code int, reason string) {
	version, uid := sent.GetResourceVersion(), string(sent.GetUID())
	if method == http.MethodDelete {
		version, _, _ = unstructured.NestedString(sent.Object, "preconditions", "resourceVersion")
		uid, _, _ = unstructured.NestedString(sent.Object, "preconditions", "uid")
	}
	switch {
	case method == http.MethodPost && has != nil:
		return http.StatusConflict, "AlreadyExists"
	case method == http.MethodPost:
	case has == nil:
		return http.StatusNotFound, "NotFound"
	case version != "" && version != has.GetResourceVersion(), uid != "" && uid != string(has.GetUID()):
		return http.StatusConflict, "Conflict"
	}
	return 0, ""
}

func statusOf(code int, reason string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Status", "status": map[bool]string{true: "Success", false: "Failure"}[code == http.StatusOK],
		"reason": reason, "code": code, "message": fmt.Sprint("the server says ", reason),
	}
}

func fail(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(statusOf(code, reason))
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

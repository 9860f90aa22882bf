// Package apitest is as much of an API server as the tests of controllers need,
// with faults on order.
package apitest

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Server keeps objects as they come. Make one by [New] or [NewHandler].
type Server struct {
	*httptest.Server

	mu            sync.Mutex // guards the fields below
	version       int
	objects       map[Key]*unstructured.Unstructured
	events        []change
	oldest        int              // watches from before are refused
	gaps          int              // watches from before one have ended
	writes        map[string]int   // "PUT secrets" and so on, that succeeded
	requests      []*http.Request  // writes, whatever came of them
	bodies        []string         // of requests
	served        map[string]Group // by name
	changed       chan struct{}    // closed at each change, and replaced
	applied       map[string]any   // the type of the condition that a manager of fields has applied to an object
	heldResources map[string]bool  // resources whose watches stand still
	fault         func(*http.Request) int
}

// Key names an object.
type Key struct{ Resource, Namespace, Name string }

// Named is the Key of a resource ("secrets"), a Namespace ("" for none) and a
// name.
func Named(resource, namespace, name string) Key { return Key{resource, namespace, name} }

type change struct {
	kind    string // as in a watch
	version int
	key     Key
	object  *unstructured.Unstructured
}

// Group is what is served of an API group.
type Group struct {
	Version string
	Kinds   map[string]string // resource -> kind
}

// New returns a server that serves Clusters of v1beta2 and TestClusters, until
// the test ends.
func New(t testing.TB) *Server {
	s := NewHandler()
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// NewHandler returns what New serves, for a listener of the caller's.
func NewHandler() *Server {
	return &Server{
		objects:       map[Key]*unstructured.Unstructured{},
		writes:        map[string]int{},
		applied:       map[string]any{},
		heldResources: map[string]bool{},
		changed:       make(chan struct{}),
		version:       10,
		served: map[string]Group{
			"cluster.x-k8s.io":                {"v1beta2", map[string]string{"clusters": "Cluster"}},
			"infrastructure.cluster.x-k8s.io": {"v1beta2", map[string]string{"testclusters": "TestCluster"}},
		},
	}
}

// Config leads to the server, in JSON and as fast as it can.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// Touch wakes up who waits in Until.
func (s *Server) Touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeWaitersLocked()
}

func (s *Server) wakeWaitersLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Serve serves a group from now on, or none of that name for nil. It returns
// what was served before, nil for nothing.
func (s *Server) Serve(name string, g *Group) (before *Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.served[name]; ok {
		before = &was
	}
	if delete(s.served, name); g != nil {
		s.served[name] = *g
	}
	return before
}

// Until waits for done, which is asked after each change.
func (s *Server) Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		s.mu.Lock()
		tick := s.changed
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

// Set makes or replaces an object, as another client does.
func (s *Server) Set(resource string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := (&unstructured.Unstructured{Object: object}).DeepCopy()
	s.putObjectLocked(Key{resource, u.GetNamespace(), u.GetName()}, u)
}

// Change edits an object, as another client does.
func (s *Server) Change(key Key, edit func(*unstructured.Unstructured)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.objects[key].DeepCopy()
	edit(u)
	s.putObjectLocked(key, u)
}

// Remove deletes an object, as another client does.
func (s *Server) Remove(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeObjectLocked(key)
}

// Get returns a copy of an object, nil if there is none.
func (s *Server) Get(key Key) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key].DeepCopy()
}

// List returns the objects of a resource.
func (s *Server) List(resource string) (found []*unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, u := range s.objects {
		if key.Resource == resource {
			found = append(found, u)
		}
	}
	return found
}

// Wrote counts what succeeded, such as "PUT secrets".
func (s *Server) Wrote(what string) int {
	return s.AllWrites()[what]
}

// AllWrites counts what succeeded, but for Leases.
func (s *Server) AllWrites() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.writes)
	delete(all, "PUT leases")
	delete(all, "POST leases")
	return all
}

// Tried counts the writes of a resource, whatever came of them.
func (s *Server) Tried(method, resource string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.Method == method && strings.HasSuffix(r.URL.Path, "/"+resource) {
			n++
		}
	}
	return n
}

// Hold stops the watches of a resource, or lets them go on.
func (s *Server) Hold(resource string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heldResources[resource] = on
	s.wakeWaitersLocked()
}

// Gap forgets what happened, ends the watches, and calls f before they can
// come back.
func (s *Server) Gap(f func()) {
	s.mu.Lock()
	s.oldest = 1 << 30
	s.gaps++
	s.wakeWaitersLocked()
	s.mu.Unlock()
	f()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, s.oldest = nil, s.version
}

// SetFault has f asked before each request for the status to fail with, 0 for
// none.
func (s *Server) SetFault(f func(*http.Request) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

func (s *Server) putObjectLocked(key Key, u *unstructured.Unstructured) {
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
	s.wakeWaitersLocked()
}

func (s *Server) removeObjectLocked(key Key) {
	s.version++
	u := s.objects[key].DeepCopy()
	u.SetResourceVersion(strconv.Itoa(s.version))
	delete(s.objects, key)
	s.events = append(s.events, change{"DELETED", s.version, key, u})
	s.wakeWaitersLocked()
}

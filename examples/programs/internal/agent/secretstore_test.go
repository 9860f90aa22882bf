package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// A secretServer is an API server with one Secret, which it gives to one token.
type secretServer struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex // guards the fields below
	token    string
	version  int
	object   map[string]any                                               // nil: the Secret does not exist
	before   func(w http.ResponseWriter, r *http.Request) (answered bool) // nil: nothing
	requests []string
}

const secretPath = "/api/v1/namespaces/agents/secrets/state"

// newSecretServer returns a server with an empty Secret, and the store of its pod.
func newSecretServer(t *testing.T) (*secretServer, *secretStore) {
	t.Helper()
	s := &secretServer{t: t, token: "token-1", version: 1, object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": map[string]any{"name": "state", "annotations": map[string]any{"a": "b"}},
	}}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	store := &secretStore{api: &podClient{dir: t.TempDir(), address: s.Listener.Addr().String()}, name: "state"}
	s.mount(store, "token-1", s.authority())
	return s, store
}

func (s *secretServer) authority() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// mount puts the files of the pod where the kubelet does.
func (s *secretServer) mount(store *secretStore, token, authority string) {
	s.t.Helper()
	for name, text := range map[string]string{"token": token + "\n", "ca.crt": authority, "namespace": "agents"} {
		if err := os.WriteFile(filepath.Join(store.api.dir, name), []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// ServeHTTP does with the Secret what an API server does.
func (s *secretServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method)
	if s.before != nil && s.before(w, r) {
		return
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		writeStatus(w, 401, "Unauthorized")
	case s.object == nil || r.URL.Path != secretPath:
		writeStatus(w, 404, `secrets "state" not found`)
	case r.Method == http.MethodGet:
		s.writeObjectLocked(w)
	case r.Method == http.MethodPut:
		s.replaceLocked(w, r)
	}
}

func (s *secretServer) writeObjectLocked(w io.Writer) {
	object := maps.Clone(s.object)
	object["metadata"] = maps.Clone(object["metadata"].(map[string]any))
	object["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(s.version)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		s.t.Error(err)
	}
}

func (s *secretServer) replaceLocked(w http.ResponseWriter, r *http.Request) {
	var object map[string]any
	if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
		s.t.Error(err)
	}
	meta := object["metadata"].(map[string]any)
	if meta["resourceVersion"] != fmt.Sprint(s.version) {
		writeStatus(w, 409, "the object has been modified")
		return
	}
	delete(meta, "resourceVersion")
	s.object, s.version = object, s.version+1
	s.writeObjectLocked(w)
}

func writeStatus(w http.ResponseWriter, code int, message string) {
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "message": message})
}

// do changes the server while no request is served.
func (s *secretServer) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// saved returns what the Secret has of the agent.
func (s *secretServer) saved() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(s.object)
	if err != nil {
		s.t.Error(err)
	}
	var object struct{ Data map[string][]byte }
	if err := json.Unmarshal(text, &object); err != nil {
		s.t.Error(err)
	}
	return string(object.Data[credentialsKey])
}

// newCredentials returns those of an agent that has not enrolled.
func newCredentials(t *testing.T) (c *tunnel.Credentials, text string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c = &tunnel.Credentials{Key: key}
	pem, err := c.PEM()
	if err != nil {
		t.Fatal(err)
	}
	return c, string(pem)
}

// load wants the store to have the credentials of a text; none for "".
func load(t *testing.T, store *secretStore, want string) {
	t.Helper()
	c, err := store.Load(t.Context())
	got := ""
	if c != nil {
		text, err := c.PEM()
		if err != nil {
			t.Fatal(err)
		}
		got = string(text)
	}
	if err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestSecretStore(t *testing.T) {
	// It would have to be asked for the API server.
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	s, store := newSecretServer(t)
	s.object["data"] = map[string]any{"other": "b3RoZXI="}
	load(t, store, "")
	for range 3 {
		c, text := newCredentials(t)
		if err := store.Save(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		load(t, store, text)
		// A pod that starts elsewhere.
		load(t, &secretStore{api: store.api, name: "state"}, text)
	}
	data := s.object["data"].(map[string]any)
	if annotation := s.object["metadata"].(map[string]any)["annotations"].(map[string]any)["a"]; len(data) != 2 || data["other"] != "b3RoZXI=" || annotation != "b" || s.object["type"] != "Opaque" {
		t.Errorf("got %v, want the rest of the Secret as it was", s.object)
	}
}

// What else happens to the Secret between a Load and a Save.
func TestSecretStoreSave(t *testing.T) {
	other, otherText := newCredentials(t)
	for _, tt := range []struct {
		name   string
		change func(s *secretServer, second *secretStore)
		want   string // of the error; "": saved
	}{
		{"nothing", func(*secretServer, *secretStore) {}, ""},
		{"an annotation comes while it is replaced", func(s *secretServer, _ *secretStore) {
			s.before = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPut {
					s.version++
					s.before = nil
				}
				return false
			}
		}, ""},
		{"others change it all the time", func(s *secretServer, _ *secretStore) {
			s.before = func(_ http.ResponseWriter, r *http.Request) bool {
				s.version++
				return false
			}
		}, "modified"},
		{"another agent writes", func(_ *secretServer, second *secretStore) {
			load(t, second, "")
			if err := second.Save(t.Context(), other); err != nil {
				t.Error(err)
			}
		}, "another agent has saved its credentials"},
		{"it is deleted", func(s *secretServer, _ *secretStore) { s.object = nil }, "apply the agent's manifest"},
		{"the token has another audience", func(s *secretServer, _ *secretStore) { s.token = "token-2" }, "it does not take the pod's token"},
		{"no right", func(s *secretServer, _ *secretStore) {
			s.before = func(w http.ResponseWriter, _ *http.Request) bool {
				writeStatus(w, 403, `secrets "state" is forbidden: `+strings.Repeat("x", 10_000))
				return true
			}
		}, "a Role must allow get and update"},
		{"a page of a proxy", func(s *secretServer, _ *secretStore) {
			s.before = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(502); return true }
		}, "502"},
		{"no Secret", func(s *secretServer, _ *secretStore) {
			s.before = func(w http.ResponseWriter, _ *http.Request) bool { io.WriteString(w, "<html>"); return true }
		}, "not a Secret"},
		{"an answer without an end", func(s *secretServer, _ *secretStore) {
			s.before = func(w http.ResponseWriter, _ *http.Request) bool {
				line := strings.Repeat(" ", 1<<16)
				for range 2 * maxAnswer >> 16 {
					io.WriteString(w, line)
				}
				return true
			}
		}, "not a Secret"},
		{"a redirect", func(s *secretServer, _ *secretStore) {
			s.before = func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "/else", http.StatusFound)
				return true
			}
		}, "302"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, store := newSecretServer(t)
			load(t, store, "")
			second := &secretStore{api: store.api, name: "state"}
			tt.change(s, second)
			c, text := newCredentials(t)
			err := store.Save(t.Context(), c)
			if tt.want == "" {
				if err != nil || s.saved() != text {
					t.Errorf("got %v, and %q is saved", err, s.saved())
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "the Secret state: ") || len(err.Error()) > 2*maxReason || strings.Contains(err.Error(), "token-1") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if strings.HasPrefix(tt.name, "another agent") && (s.saved() != otherText || !errors.Is(err, tunnel.ErrCredentialsChanged)) {
				t.Errorf("got %v, and what the other one wrote is gone: %t", err, s.saved() != otherText)
			}
			// An agent tries again, and finds what is there now.
			s.do(func() { s.before, s.token = nil, "token-1" })
			if strings.HasPrefix(tt.name, "another agent") {
				load(t, store, otherText)
			}
			s.do(func() {
				if s.object == nil {
					s.object = map[string]any{"metadata": map[string]any{"name": "state"}}
				}
			})
			if err := store.Save(t.Context(), c); err != nil || s.saved() != text {
				t.Errorf("got %v at the next attempt, and %q is saved", err, s.saved())
			}
		})
	}
}

// The API server has saved it, but its answer is lost.
func TestSecretStoreLostAnswer(t *testing.T) {
	s, store := newSecretServer(t)
	load(t, store, "")
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			s.replaceLocked(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		return false
	}
	first, text := newCredentials(t)
	if err := store.Save(t.Context(), first); err == nil || s.saved() != text {
		t.Errorf("got %v, and %q is saved", err, s.saved())
	}
	s.do(func() { s.before = nil })
	next, text := newCredentials(t)
	if err := store.Save(t.Context(), next); err != nil || s.saved() != text {
		t.Errorf("got %v at the next attempt, and %q is saved", err, s.saved())
	}
}

// The kubelet replaces the token and the authority.
func TestSecretStoreRotation(t *testing.T) {
	s, store := newSecretServer(t)
	load(t, store, "")
	s.do(func() { s.token = "token-2" })
	if _, err := store.Load(t.Context()); err == nil {
		t.Error("the token of before was taken")
	}
	s.mount(store, "token-2", "no certificate")
	if _, err := store.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "ca.crt has no certificate") {
		t.Errorf("got %v, want the file's name", err)
	}
	s.mount(store, "token-2", s.authority())
	load(t, store, "")
	for _, file := range []string{"token", "ca.crt", "namespace"} {
		if err := os.Remove(filepath.Join(store.api.dir, file)); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Load(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("got %v without the file %s", err, file)
		}
		s.mount(store, "token-2", s.authority())
	}
}

func TestSecretStoreBroken(t *testing.T) {
	s, store := newSecretServer(t)
	_, text := newCredentials(t)
	s.object["data"] = map[string]any{credentialsKey: []byte(text[:len(text)/2])}
	if _, err := store.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "the Secret state: entry credentials.pem") || !strings.Contains(err.Error(), "remove the entry") {
		t.Errorf("got %v", err)
	}
	s.before = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
	if _, err := store.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "the API server at "+store.api.address) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Load(ctx); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("got %v, want that it was canceled", err)
	}
}

// Pods that start at once and share a Secret are one agent: with one token, one key and
// one certificate, also after they have renewed it.
func TestSecretStoreShared(t *testing.T) {
	const pods = 5
	s, store := newSecretServer(t)
	server, address := startServer(t, &tunnel.Server{CertificateLife: 6 * time.Second})
	inv := invite(t, server, address)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran, renewed := make(chan error, pods), make(chan string, 100)
	for n := range pods {
		agent := &tunnel.Agent{
			Replica: fmt.Sprint("pod-", n), Credentials: &secretStore{api: store.api, name: "state"}, Grace: -1,
			Invitation: func(context.Context) (tunnel.Invitation, error) { return inv, nil },
			Hooks: tunnel.AgentHooks{
				Failed:  func(_ string, err error, _ time.Duration) { t.Errorf("pod-%d: %v", n, err) },
				Renewed: func(id tunnel.Identity, _ time.Time) { renewed <- fmt.Sprint("pod-", n, " ", id.Agent) },
			},
		}
		go func() { ran <- agent.Run(ctx) }()
	}
	who := map[string]bool{}
	for len(who) < pods {
		who[<-renewed] = true
	}
	cancel()
	for range pods {
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}
	saved, err := tunnel.ParseCredentials([]byte(s.saved()))
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(fmt.Sprint(saved), ",") // tunnel.Credentials{default/prod (agent NAME), until ...}
	for name := range who {
		if _, agent, _ := strings.Cut(name, " "); !strings.HasSuffix(id, "(agent "+agent+")") {
			t.Errorf("%s is not that of the Secret, %s", name, id)
		}
	}
}

func TestReplicaName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		flags flags
		want  string
	}{
		{flags{}, ""},
		{flags{secret: "state"}, host[:min(len(host), maxReplica)]},
		{flags{secret: "state", replica: "pod-1"}, "pod-1"},
	} {
		if got, err := tt.flags.replicaName(); err != nil || got != tt.want {
			t.Errorf("%+v: got %q, %v, want %q", tt.flags, got, err, tt.want)
		}
	}
	if _, err := (&flags{replica: "pod-1"}).replicaName(); err == nil || !strings.Contains(err.Error(), "--replica is for --secret") {
		t.Errorf("got %v", err)
	}
}

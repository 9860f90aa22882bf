package tunnel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

func TestStatusHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		a := b.agent(&tunnel.Agent{})
		busy := b.echo()
		ours, its := b.s.StatusHandler(), a.StatusHandler()
		cluster := "?cluster=" + url.QueryEscape(testCluster)
		for _, h := range []http.Handler{ours, its} {
			for _, path := range []string{"/healthz", "/readyz", "/status"} {
				checkHTTP(t, h, "GET", path, 200)
				checkHTTP(t, h, "HEAD", path, 200)
				checkHTTP(t, h, "POST", path, 405)
			}
			checkHTTP(t, h, "GET", "/", 404)
		}
		checkHTTP(t, ours, "GET", "/readyz"+cluster, 200)
		checkHTTP(t, ours, "GET", "/readyz?cluster=other", 503)
		checkHTTP(t, ours, "GET", "/status?cluster=other", 404)

		var status tunnel.Status
		text := checkHTTP(t, ours, "GET", "/status", 200)
		if err := json.Unmarshal([]byte(text), &status); err != nil || len(status.Clusters) != 1 || !status.Clusters[0].Connected {
			t.Fatalf("got %v from %s, want one cluster", err, text)
		}
		var one tunnel.ClusterStatus
		if err := json.Unmarshal([]byte(checkHTTP(t, ours, "GET", "/status"+cluster, 200)), &one); err != nil || one.Cluster != testCluster {
			t.Errorf("got %+v, %v, want %s", one, err, testCluster)
		}
		s := one.Sessions[0]
		if s.Streams != 1 || s.Dials != 1 || s.Failed != 0 || s.BytesIn < 5 || s.BytesOut < 5 || s.Draining || s.Remote == "" || s.Agent == "" {
			t.Errorf("got %+v, want a stream and its bytes", s)
		}
		var agents tunnel.AgentStatus
		text += checkHTTP(t, its, "GET", "/status", 200)
		if err := json.Unmarshal([]byte(text[strings.LastIndex(text, "\n{"):]), &agents); err != nil || !agents.Connected ||
			agents.Cluster != testCluster || len(agents.Sessions) != 1 || agents.Sessions[0].Streams != 1 {
			t.Errorf("got %+v, %v, want a session with a stream", agents, err)
		}
		for _, secret := range []string{"echo", "192.0.2.1"} {
			if strings.Contains(text, secret) {
				t.Errorf("a status has the target %q: %s", secret, text)
			}
		}
		busy.Close()
		a.stop()
		checkHTTP(t, its, "GET", "/readyz", 503)
		checkHTTP(t, its, "GET", "/healthz", 200)
		checkHTTP(t, ours, "GET", "/readyz"+cluster, 503)
		checkHTTP(t, ours, "GET", "/status"+cluster, 200)
		checkHTTP(t, ours, "GET", "/readyz", 200)
		b.s.Close()
		checkHTTP(t, ours, "GET", "/readyz", 503)
		checkHTTP(t, ours, "GET", "/healthz", 200)
	})
}

// checkHTTP returns the body of the answer.
func checkHTTP(t *testing.T, h http.Handler, method, target string, code int) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	if w.Code != code {
		t.Errorf("%s %s: got %d, want %d", method, target, w.Code, code)
	}
	return w.Body.String()
}

// No hook of a server is given a target's address.
func TestHooksHaveNoTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var said []string
		note := func(args ...any) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, fmt.Sprintf("%+v", args))
		}
		b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{
			Disconnected: func(i tunnel.SessionInfo, err error) { note(i, err) },
			Refused:      func(a net.Addr, err error) { note(a, err) },
			Dialed:       func(c string, took time.Duration, err error) { note(c, took, err) },
		}})
		a := b.agent(&tunnel.Agent{})
		for _, target := range []string{"secret:7", "secret:1", "secret:443", "secret:4", "secret", "10.9.8.7:443", "secret:99999"} {
			conn, err := b.dial(target)
			if err == nil {
				conn.Close()
			}
		}
		a.stop()
		b.dial("secret:7")
		b.s.Close()
		if len(said) < 9 {
			t.Errorf("got %q, want each dial", said)
		}
		if i := slices.IndexFunc(said, func(s string) bool {
			return strings.Contains(s, "secret") || strings.Contains(s, "10.9.8.7") || strings.Contains(s, "192.0.2")
		}); i >= 0 {
			t.Errorf("a hook got %s", said[i])
		}
	})
}

// The end of a session is the agent's last error.
func TestAgentLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan error, 1)
		b := newBed(t, &tunnel.Server{})
		a := b.agent(&tunnel.Agent{FirstBackoff: time.Hour, MaxBackoff: time.Hour, Hooks: tunnel.AgentHooks{
			Disconnected: func(_ string, err error) { left <- err },
		}})
		synctest.Wait() // until the agent knows of its session
		b.w.cut()
		err := <-left
		if codeOf(err) != tunnel.CodeLost || !strings.Contains(err.Error(), "closed pipe") && !strings.Contains(err.Error(), "EOF") {
			t.Errorf("got %v, want the cause of the loss", err)
		}
		if op := new(net.OpError); errors.As(err, &op) && op.Net == "tunnel" {
			t.Errorf("got %v, want nothing of a stream", err)
		}
		synctest.Wait()
		if status := a.Status(); status.LastError != err.Error() || status.Connected || status.LastErrorAt.IsZero() {
			t.Errorf("got %+v, want %v", status, err)
		}
	})
}

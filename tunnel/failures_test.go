package tunnel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// The status of a Server tells why dials failed, where to look, and who asked for what.
func TestStatusTellsWhyDialsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{Targets: tunnel.Targets{
			Allow: []string{"*:7"}, Resolver: &targettest.Network{Hosts: map[string]string{"echo": "192.0.2.1"}},
		}})
		dial := func(caller, cluster, target string) {
			conn, err := b.s.Dialer(cluster).DialContext(tunnel.WithCaller(t.Context(), caller), "tcp", target)
			if err == nil {
				conn.Close()
				t.Fatalf("got a connection to %s", target)
			}
		}
		for range 3 {
			dial("ann", testCluster, "ssh.example.com:22")
			time.Sleep(time.Second)
		}
		dial("bob", testCluster, "nowhere:7")
		dial("eve", "default/other", "echo:7")
		status := b.s.Status()
		now := time.Now()
		want := []tunnel.DialFailures{
			{Cluster: "default/other", Code: tunnel.CodeNoAgent, Reason: "no agent is connected", Side: tunnel.SideTunnel, Count: 1, Last: now, Target: "echo:7", Caller: "eve"},
			{Cluster: testCluster, Code: tunnel.CodeNotFound, Reason: "the agent finds no address for the target's name", Side: tunnel.SideTarget, Count: 1, Last: now, Target: "nowhere:7", Caller: "bob"},
			{Cluster: testCluster, Code: tunnel.CodeDenied, Reason: "the agent's policy does not allow the target", Side: tunnel.SidePolicy, Count: 3, Last: now.Add(-time.Second), Target: "ssh.example.com:22", Caller: "ann"},
		}
		if diff := cmp.Diff(want, status.Failures, cmpopts.IgnoreFields(tunnel.DialFailures{}, "Text")); diff != "" {
			t.Error(diff)
		}
		for _, f := range status.Failures {
			if !strings.HasPrefix(f.Text, f.Reason) {
				t.Errorf("got the text %q of %q", f.Text, f.Reason)
			}
		}
		w := httptest.NewRecorder()
		b.s.StatusHandler().ServeHTTP(w, httptest.NewRequest("GET", "/status?cluster="+testCluster, nil))
		var one struct{ Failures []tunnel.DialFailures }
		if err := json.Unmarshal(w.Body.Bytes(), &one); err != nil || len(one.Failures) != 2 || one.Failures[0].Text != status.Failures[1].Text {
			t.Errorf("got %v and %+v of the cluster, want its failures", err, one)
		}
		if s := status.Clusters[0].Sessions[0]; s.Failed != 4 || s.Denied != 3 {
			t.Errorf("got %d failed, %d denied; want 4 and 3", s.Failed, s.Denied)
		}
		time.Sleep(25 * time.Hour)
		if got := b.s.Status().Failures; len(got) > 0 {
			t.Errorf("got %+v a day later", got)
		}
	})
}

// A caller may name any cluster of its namespace: the failures of so many are kept, the latest.
// None is kept of what is no name.
func TestFailuresAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		fail := func(cluster string, want tunnel.Code) {
			t.Helper()
			_, err := b.s.Dialer(cluster).DialContext(t.Context(), "tcp", "echo:7")
			if e, ok := errors.AsType[*tunnel.Error](err); !ok || e.Code != want {
				t.Fatalf("%.20q: got %v, want %v", cluster, err, want)
			}
			time.Sleep(time.Millisecond)
		}
		const n, most = 5100, 5000
		fail("another/real", tunnel.CodeNoAgent)
		for i := range n {
			fail(fmt.Sprintf("default/%05d", i), tunnel.CodeNoAgent)
		}
		for _, cluster := range []string{"", "default/\x1b[31m", "default/a b", "default/" + strings.Repeat("x", 500)} {
			fail(cluster, tunnel.CodeConfig)
		}
		got := b.s.Status().Failures
		if len(got) != most || got[0].Cluster != "another/real" || got[1].Cluster != fmt.Sprintf("default/%05d", n-most+1) {
			t.Errorf("got %d from %s and %s, want those of another namespace and the last %d", len(got), got[0].Cluster, got[1].Cluster, most-1)
		}
	})
}

// A lost agent leaves who and where it was, what it ran, and why it left.
func TestStatusKeepsTheLastSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		a := b.agent(&tunnel.Agent{Program: "causeway-agent v1.2.3", Replica: "pod-1"})
		s := b.s.Status().Clusters[0].Sessions[0]
		if s.Program != "causeway-agent v1.2.3" || b.s.Status().Clusters[0].Last != nil {
			t.Errorf("got %+v", b.s.Status().Clusters[0])
		}
		a.stop()
		synctest.Wait()
		last := b.s.Status().Clusters[0].Last
		if last == nil || last.Agent != s.Agent || last.Remote != s.Remote || last.Replica != "pod-1" || last.Program != s.Program || !last.Ended.Equal(time.Now()) {
			t.Errorf("got %+v, want what %+v was", last, s)
		}
	})
}

// The status tells who was refused, and forgets it a day later.
func TestStatusTellsWhoWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		for range 2 {
			stranger := b.wire()
			stranger.Write([]byte("hello, this is no TLS\n"))
			io.Copy(io.Discard, stranger)
		}
		synctest.Wait()
		got := b.s.Status().Refusals
		want := []tunnel.Refusals{{Op: "connect", Code: tunnel.CodeBadRequest, Reason: tunnel.CodeBadRequest.String(), Count: 2, Last: time.Now()}}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(tunnel.Refusals{}, "Text", "Remote")); diff != "" {
			t.Error(diff)
		}
		if len(got) == 1 && (!strings.Contains(got[0].Text, "TLS") || got[0].Remote == "") {
			t.Errorf("got %+v", got[0])
		}
		time.Sleep(25 * time.Hour)
		if got := b.s.Status().Refusals; len(got) > 0 {
			t.Errorf("got %+v a day later", got)
		}
	})
}

// handled is a listener that tells when its refusals have a handler.
type handled struct {
	net.Listener
	set chan struct{}
}

func (h handled) HandleRefused(f func(context.Context, net.Addr, error)) {
	h.Listener.(interface {
		HandleRefused(func(context.Context, net.Addr, error))
	}).HandleRefused(f)
	close(h.set)
}

// So it is with those whom the listener for WebSockets refuses before the tunnel's own TLS.
func TestRefusedByWebSocket(t *testing.T) {
	refused := make(chan error, 10)
	b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{Refused: func(_ net.Addr, err error) { refused <- err }}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := handled{tunnel.ListenWebSocket(l, nil), make(chan struct{})}
	b.serveAlso(served)
	<-served.set
	for _, tt := range []struct{ say, want string }{
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "the answer is 426"},
		{"garbage\r\n\r\n", "the answer is 400"},
		{"GET /", "EOF"},
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, tt.say)
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, conn)
		conn.Close()
		if err := <-refused; codeOf(err) != tunnel.CodeBadRequest || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want %q", tt.say, err, tt.want)
		}
	}
	if got := b.s.Status().Refusals; len(got) != 1 || got[0].Count != 3 {
		t.Errorf("got %+v, want one row that counts three", got)
	}
}

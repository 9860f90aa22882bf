package server

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// clustersAPI is an API server with one Cluster that has the label.
func clustersAPI(t *testing.T) (api *apitest.Server, config string) {
	t.Helper()
	api = apitest.New(t)
	api.Set("clusters", map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
		"metadata": map[string]any{"namespace": "default", "name": "prod", "labels": map[string]any{provider.LabelTunnel: "true"}},
		"spec":     map[string]any{"controlPlaneEndpoint": map[string]any{"host": "192.0.2.1", "port": int64(6443)}},
	})
	config = filepath.Join(t.TempDir(), "management.conf")
	c := clientcmdapi.NewConfig()
	c.Clusters["m"], c.Contexts["m"], c.CurrentContext = &clientcmdapi.Cluster{Server: api.URL}, &clientcmdapi.Context{Cluster: "m"}, "m"
	if err := clientcmd.WriteToFile(*c, config); err != nil {
		t.Fatal(err)
	}
	return api, config
}

// freePort returns an address that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// text is a key of a Secret; "" if there is none.
func text(api *apitest.Server, namespace, name, key string) string {
	u := api.Get(apitest.Named("secrets", namespace, name))
	if u == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(u.Object, "data", key)
	plain, _ := base64.StdEncoding.DecodeString(value)
	return string(plain)
}

func tunnelStatus(api *apitest.Server) string {
	u := api.Get(apitest.Named("clusters", "default", "prod"))
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range list {
		if c := c.(map[string]any); c["type"] == provider.ConditionTunnel {
			return c["status"].(string) + " " + c["reason"].(string)
		}
	}
	return ""
}

// A Cluster's agent comes by the Secret, the condition says so, and the door takes the
// Secret's ticket; and while the API server is away, the tunnel goes on.
func TestClusters(t *testing.T) {
	t.Parallel()
	api, config := clustersAPI(t)
	agents, door := freePort(t), freePort(t)
	p := clitest.Start(t, run, nil, "server", "--secrets", "tunnel-server/tunnel", "--kubeconfig", config, "--listen", agents, "--advertise", agents,
		"--status", "127.0.0.1:0", "--connect", door, "--gateway", "http://"+door, "--clusters", "--forward", "127.0.0.1:0=default/prod/api:443", "--grace", "1s")
	api.Until(t, "the Secrets", func() bool {
		return text(api, "default", "prod-tunnel-agent", provider.KeyAgentInvitation) != "" && text(api, "default", "prod-tunnel-route", provider.KeyPassword) != ""
	})
	inv, err := tunnel.ParseInvitation(text(api, "default", "prod-tunnel-agent", provider.KeyAgentInvitation))
	if err != nil || inv.Cluster != "default/prod" || len(inv.Servers) != 1 || inv.Servers[0] != agents {
		t.Fatalf("got %v, %v", inv, err)
	}
	agent := startAgent(t, inv, echo(t), nil)
	receive(t, "session", agent.connected)
	api.Until(t, "the condition", func() bool { return tunnelStatus(api) == "True Connected" })
	clitest.CheckMetrics(t, "http://"+address(p, "status")+"/metrics", `causeway_managed_clusters{connected="true"} 1`,
		`causeway_tunnel_clusters{state="connected"} 1`, `leader_election_master_status{name="tunnel-clusters"} 1`, `workqueue_depth{`)
	ticket := text(api, "default", "prod-tunnel-route", provider.KeyUsername) + ":" + text(api, "default", "prod-tunnel-route", provider.KeyPassword)
	if got := throughDoor(t, door, ticket); got != http.StatusOK {
		t.Errorf("got status %d at the door with the Secret's ticket, want 200", got)
	}

	var away atomic.Bool
	away.Store(true)
	api.SetFault(func(*http.Request) int {
		if away.Load() {
			return http.StatusInternalServerError
		}
		return 0
	})
	p.Await(`leader election lost|Failed to update lease`)
	if got := throughDoor(t, door, ticket); got != http.StatusOK {
		t.Errorf("got status %d while the API server is away, want 200", got)
	}
	away.Store(false)
	api.Change(apitest.Named("clusters", "default", "prod"), func(u *unstructured.Unstructured) { u.SetLabels(nil) })
	api.Until(t, "the Secrets' end", func() bool { return text(api, "default", "prod-tunnel-agent", provider.KeyAgentInvitation) == "" })
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

// A stranger who names a Cluster causes no call to the API server. An agent whose invitation
// proves the Cluster causes an Event.
func TestClustersStrangers(t *testing.T) {
	t.Parallel()
	api, config := clustersAPI(t)
	agents := freePort(t)
	p := clitest.Start(t, run, nil, "server", "--secrets", "tunnel-server/tunnel", "--kubeconfig", config, "--listen", agents, "--advertise", agents,
		"--status", "", "--clusters", "--grace", "1s")
	api.Until(t, "the Secret", func() bool { return text(api, "default", "prod-tunnel-agent", provider.KeyAgentInvitation) != "" })
	inv, err := tunnel.ParseInvitation(text(api, "default", "prod-tunnel-agent", provider.KeyAgentInvitation))
	if err != nil {
		t.Fatal(err)
	}
	target, now := echo(t), time.Now().Unix()
	for name, claims := range map[string]string{
		"expired":   fmt.Sprintf(`{"iss":%q,"sub":%q,"aud":["causeway:x"],"iat":%d,"nbf":%[3]d,"exp":%d,"kubernetes.io":{"pod":{"name":"a","uid":"1"}}}`, kubernetesIssuer, joinSubject, now-1200, now-600),
		"made up":   fmt.Sprintf(`{"iss":%q,"sub":%q,"aud":["causeway:x"],"iat":%d,"nbf":%[3]d,"exp":%d,"kubernetes.io":{"pod":{"name":"a","uid":"1"}}}`, kubernetesIssuer, joinSubject, now, now+600),
		"malformed": `{}`,
	} {
		made := inv
		made.Token = encodeParts(`{"alg":"ES256"}`, claims, "no signature")
		err := receive(t, "refusal", startAgent(t, made, target, nil).failed)
		if e, ok := errors.AsType[*tunnel.Error](err); !ok || e.Op != "enroll" {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	for range 17 { // the invitation is for 16
		startAgent(t, inv, target, nil)
	}
	var told []string
	api.Until(t, "the Event of an agent", func() bool {
		told = nil
		for _, e := range api.List("events") {
			if text := fmt.Sprint(e.Object["message"]); strings.Contains(text, "refused") {
				told = append(told, text)
			}
		}
		return slices.ContainsFunc(told, func(text string) bool { return strings.Contains(text, "was used by another agent") })
	})
	if len(told) != 1 { // in their order
		t.Errorf("got the Events %q, want none of a stranger", told)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func encodeParts(parts ...string) string {
	for i, part := range parts {
		parts[i] = base64.RawURLEncoding.EncodeToString([]byte(part))
	}
	return strings.Join(parts, ".")
}

// throughDoor asks the door for api:443, and returns its status.
func throughDoor(t *testing.T, door, ticket string) int {
	t.Helper()
	conn, err := net.Dial("tcp", door)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("CONNECT api:443 HTTP/1.1\r\nHost: api:443\r\nProxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(ticket)) + "\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

func TestClustersFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--clusters", "--clusters goes with --secrets"},
		{"--clusters --secrets a/b --agent-proxy ftp://proxy:1", "--agent-proxy"},
		{"--clusters --secrets a/b --agent-image x:\u2060y", "--agent-image has a space"},
		{"--clusters --secrets a/b --agent-no-proxy svc", "--agent-no-proxy is for --agent-proxy"},
		{"--clusters --secrets a/b --ticket-life 0", "--ticket-life must be a second or more"},
	} {
		var f serveFlags
		if err := parse(&f, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.args, err, tt.want)
		}
	}
}

// What is kept of a Cluster that is gone is kept as long as certificates live, however long
// its tickets do.
func TestEndOfCluster(t *testing.T) {
	api := apitest.New(t)
	st, flags := newSecrets(t, api), []string{"--secrets", "tunnel-server/tunnel", "--kubeconfig", kubeconfigOf(t, api.URL)}
	server, err := st.server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	clusters := clusterServer{server, st}
	before := len(api.List("secrets"))
	if _, err := clusters.InviteAgents(t.Context(), cluster, 2, time.Hour); err != nil {
		t.Fatal(err)
	}
	output(t, "", append([]string{"ticket", cluster, "--gateway", "http://gateway:3128", "--life", "8760h"}, flags...)...)
	for _, data := range [][]byte{[]byte("key"), nil} {
		if err := st.setPayload(t.Context(), cluster, tunnel.Payload{Name: "authorized_keys", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	if err := clusters.EndCluster(t.Context(), cluster, 8760*time.Hour); err != nil {
		t.Fatal(err)
	}
	left := 0.0
	for _, u := range api.List("secrets") {
		var revoked struct{ Until time.Time }
		if json.Unmarshal([]byte(text(api, "tunnel-server", u.GetName(), "value")), &revoked) == nil && !revoked.Until.IsZero() {
			left = time.Until(revoked.Until).Hours() / 24
		}
	}
	if left < 7.99 || left > 8.01 {
		t.Errorf("the revocation is kept for %.2f days, want 8", left)
	}
	if n := len(api.List("secrets")) - before; n != 2 { // the revocation, and the key of tickets
		t.Errorf("got %d more Secrets than those of the authority, want 2", n)
	}
}

// A ticket ends with its Cluster. The next Cluster of the name refuses it, even if nothing is kept of
// the former; a ticket that is at most a day older than a Cluster's first invitation is good.
func TestFormerClustersTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, st := t.Context(), newMemoryState()
		server, err := newMemoryServer(st)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		clusters, id := clusterServer{server, st}, gateway.Identity{Name: cluster, Cluster: cluster}
		all := newServingTickets(t, st)
		invite := func() {
			t.Helper()
			if _, err := clusters.InviteAgents(ctx, cluster, 1, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		first := issueTicket(t, all, id)
		invite()
		time.Sleep(24 * time.Hour)
		invite()
		all.want(t, "the Cluster's", first, "")
		if err := clusters.EndCluster(ctx, cluster, 8760*time.Hour); err != nil {
			t.Fatal(err)
		}
		all.want(t, "that of a Cluster that is gone", first, "the ticket was revoked")
		time.Sleep(9 * 24 * time.Hour)
		if ended, err := server.EndedClusters(ctx); err != nil || len(ended) > 0 {
			t.Fatalf("got %v, %v, want that the end is forgotten", ended, err)
		}
		second := issueTicket(t, all, id)
		time.Sleep(23 * time.Hour)
		invite()
		all.want(t, "the former Cluster's", first, "the ticket was revoked")
		all.want(t, "the new Cluster's", second, "")
		if err := st.deleteValue(ctx, clusterFile(cluster)); err != nil {
			t.Fatal(err)
		}
		all.want(t, "one of a state without a record of the cluster", second, "")
	})
}

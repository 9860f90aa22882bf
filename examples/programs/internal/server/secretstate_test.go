package server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

func newSecrets(t *testing.T, api *apitest.Server) *state {
	t.Helper()
	config := api.Config()
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	config.Transport = transport
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return newSecretState(client, "tunnel-server", "tunnel", slog.New(slog.DiscardHandler))
}

// following returns a state whose memory is filled, until the test ends.
func following(t *testing.T, api *apitest.Server, st *state) *state {
	t.Helper()
	server, err := st.server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { st.follow(ctx, server) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	var asked atomic.Int64
	api.SetFault(func(*http.Request) int { asked.Add(1); return 0 })
	defer api.SetFault(nil)
	wait(t, "memory", func() bool {
		before := asked.Load()
		_, err := st.Store.List(t.Context(), tunnel.KindPayload, "")
		return err == nil && asked.Load() == before
	})
	return st
}

// wait is for what no event tells of.
func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); !done(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not in a minute", what)
		}
	}
}

// What is written by one is read by all, whatever keeps it.
func TestStates(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (writer, reader *state){
		"directory": func(t *testing.T) (*state, *state) {
			st, err := openDir(t.TempDir(), 0)
			if err != nil {
				t.Fatal(err)
			}
			return st, st
		},
		"Secrets": func(t *testing.T) (*state, *state) {
			api := apitest.New(t)
			return newSecrets(t, api), newSecrets(t, api)
		},
		"memory": func(t *testing.T) (*state, *state) {
			api := apitest.New(t)
			return newSecrets(t, api), following(t, api, newSecrets(t, api))
		},
	} {
		t.Run(name, func(t *testing.T) {
			writer, reader := open(t)
			testValues(t, writer, reader)
			testPayloads(t, writer, reader)
		})
	}
}

func testValues(t *testing.T, writer, reader *state) {
	ctx := t.Context()
	if _, err := reader.read(ctx, gatewayFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that there is none", err)
	}
	for _, made := range []string{"first", "second"} {
		got, err := writer.readOrCreate(ctx, gatewayFile, func() ([]byte, error) { return []byte(made), nil })
		if err != nil || string(got) != "first" {
			t.Fatalf("got %q, %v, want the first one", got, err)
		}
	}
	reads := func(want string) {
		t.Helper()
		wait(t, "the value "+want, func() bool {
			got, err := reader.read(ctx, gatewayFile)
			return err == nil && string(got) == want
		})
	}
	reads("first")
	if err := writer.Put(ctx, valueRecord(gatewayFile, []byte("third"))); err != nil {
		t.Fatal(err)
	}
	reads("third")
	if err := writer.putChanged(ctx, valueRecord(serversFile, []byte("a:1\nb:2\n"))); err != nil { // replaces nothing
		t.Fatal(err)
	}
	wait(t, "the servers", func() bool {
		got, err := advertisedServers(ctx, reader)
		return err == nil && slices.Equal(got, []string{"a:1", "b:2"})
	})
}

func testPayloads(t *testing.T, writer, reader *state) {
	ctx := t.Context()
	names := []string{"../a", "b", "c", "d", "e", "z"}
	for _, name := range names {
		for _, p := range []struct{ cluster, data string }{{"default/prod", "old"}, {"default/prod", "new"}, {"default/other", "other"}} {
			if err := writer.setPayload(ctx, p.cluster, tunnel.Payload{Name: name, Data: []byte(p.data)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for cluster, data := range map[string]string{"default/prod": "new", "default/other": "other"} {
		all := func() bool {
			got, err := reader.payloads(ctx, cluster)
			if err != nil {
				t.Fatal(err)
			}
			return slices.EqualFunc(got, names, func(p tunnel.Payload, name string) bool { return p.Name == name && string(p.Data) == data })
		}
		wait(t, "the payloads of "+cluster, all)
		for range 10 { // in their order, each time
			if !all() {
				t.Errorf("got other payloads of %s when asked again", cluster)
			}
		}
	}
	if other, err := reader.payloads(ctx, "default/none"); err != nil || len(other) > 0 {
		t.Errorf("got %v, %v of a cluster without payloads", other, err)
	}
}

// All replicas that start at once have one authority, and one key.
func TestSecretsAreMadeOnce(t *testing.T) {
	api := apitest.New(t)
	pins, passwords := make([]string, 5), make([]gateway.Credentials, 5)
	all := make([]tickets, 5)
	var starting sync.WaitGroup
	for i := range pins {
		st := newSecrets(t, api)
		starting.Go(func() {
			server, err := st.server(t.Context())
			if err == nil {
				pins[i] = server.Authority.Pin()
				err = loadTickets(t.Context(), st, &all[i])
			}
			if err == nil {
				passwords[i].User, passwords[i].Password, err = all[i].Issue(gateway.Identity{Name: "u", Cluster: cluster}, time.Hour)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	if len(slices.Compact(pins)) != 1 {
		t.Errorf("got pins %q, want one", pins)
	}
	for i := range all {
		if _, err := all[i].Authenticate(t.Context(), passwords[0]); err != nil {
			t.Errorf("replica %d refuses a ticket of the first: %v", i, err)
		}
	}
}

// replicas are two servers that share Secrets and find each other by a Service.
type replicas struct {
	t       *testing.T
	api     *apitest.Server
	flags   []string // of servers and commands
	servers [2]*clitest.Program
}

func startReplicas(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{t: t, api: apitest.New(t)}
	r.flags = []string{"--secrets", "tunnel-server/tunnel", "--kubeconfig", kubeconfigOf(t, r.api.URL)}
	for i := range r.servers {
		r.servers[i] = clitest.Start(t, run, nil, append([]string{"--listen", "127.0.0.1:0", "--status", "", "--watch", "10ms", "--grace", "5s",
			"--connect", "127.0.0.1:0", "--forward", "127.0.0.1:0=" + cluster + "/api:443", "--name", "replica-" + strconv.Itoa(i),
			"--peers-service", "peers"}, r.flags...)...)
		host, port, err := net.SplitHostPort(address(r.servers[i], "listen"))
		if err != nil {
			t.Fatal(err)
		}
		number, _ := strconv.Atoi(port)
		r.api.Set("endpointslices", map[string]any{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
			"metadata":  map[string]any{"namespace": "tunnel-server", "name": "peers-" + strconv.Itoa(i), "labels": map[string]any{"kubernetes.io/service-name": "peers"}},
			"endpoints": []any{map[string]any{"addresses": []any{host}, "conditions": map[string]any{"ready": true}}},
			"ports":     []any{map[string]any{"name": "agents", "port": int64(number), "protocol": "TCP"}},
		})
	}
	return r
}

func (r *replicas) output(stdin string, args ...string) string {
	r.t.Helper()
	return output(r.t, stdin, append(args, r.flags...)...)
}

// What a command writes reaches all replicas, and a client of any the agent,
// wherever that is connected.
func TestReplicas(t *testing.T) {
	r := startReplicas(t)
	inv, err := tunnel.ParseInvitation(r.output("", "enroll", cluster, "--format", "env", "--server", address(r.servers[0], "listen")))
	if err != nil {
		t.Fatal(err)
	}
	r.output("first", "payload", cluster, "name")
	e := startAgent(t, inv, echo(t), nil)
	id := receive(t, "connection", e.connected)
	if got := receive(t, "payload", e.payloads); got != "name=first" {
		t.Errorf("got payload %q", got)
	}
	for i, s := range r.servers {
		wait(t, "the agent by replica "+strconv.Itoa(i), func() bool {
			return echoes(address(s, "forward"))
		})
	}
	r.output("second", "payload", cluster, "name")
	for receive(t, "changed payload", e.payloads) != "name=second" { // the first may come from either replica
	}
	ticket := r.output("", "ticket", cluster, "--gateway", "http://"+address(r.servers[1], "connect"))
	if err := through(t, ticket, nil); err != nil {
		t.Errorf("with a ticket: %v", err)
	}
	r.output("", "ticket", "--revoke-all")
	wait(t, "the ticket's end", func() bool { return through(t, ticket, nil) != nil })
	r.output("", "revoke", id.Cluster, id.Agent)
	receive(t, "end of the session", e.disconnected)
	for {
		var refused *tunnel.Error
		if err := receive(t, "refusal", e.failed); errors.As(err, &refused) && refused.Code == tunnel.CodeRevoked {
			break
		}
	}
}

// echoes reports whether the target answers behind a listener, which may reset.
func echoes(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write([]byte("hello")); err != nil {
		return false
	}
	got, err := io.ReadAll(io.LimitReader(conn, 5))
	return err == nil && string(got) == "hello"
}

func TestReplicaFlags(t *testing.T) {
	for _, tt := range []struct {
		args, want string
		usage      bool
	}{
		{"--secrets tunnel", "NAMESPACE/PREFIX", true},
		{"--secrets /tunnel", "NAMESPACE/PREFIX", true},
		{"--secrets a/Tunnel", "NAMESPACE/PREFIX", true},
		{"--secrets a/b --kubeconfig /none", "--kubeconfig", false},
		{"--peers-service a", "goes with --secrets", true},
		{"--secrets a/b --peers-service a --peers b:1", "exclude each other", true},
	} {
		err := run(t.Context(), append(strings.Fields(tt.args), "--listen", "127.0.0.1:0"), nil, io.Discard, io.Discard)
		var mistake cli.UsageError
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, &mistake) != tt.usage {
			t.Errorf("%s: got %v, want %q, a mistake of usage %v", tt.args, err, tt.want, tt.usage)
		}
	}
}

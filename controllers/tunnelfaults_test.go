package controllers_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

var errAway = errors.New("the store is away")

// settled waits until a Cluster has its Secrets and its condition.
func (b *tunnelBed) settled(names ...string) {
	b.t.Helper()
	b.Until(b.t, "the Secrets and conditions", func() bool {
		for _, name := range names {
			if b.Get(agentSecret(name)) == nil || b.Get(routeOf(name)) == nil || b.tunnelCondition(apitest.Named("clusters", "a", name)) == "" {
				return false
			}
		}
		return true
	})
}

// invitations returns how many were made for a Cluster.
func (b *tunnelBed) invitations(cluster string) (n int) {
	b.read(func() bool { n = len(b.invited[cluster]); return true })
	return n
}

// untilLooked waits for n more looks at all replicas.
func (b *tunnelBed) untilLooked(n int) {
	b.t.Helper()
	var from int
	b.read(func() bool { from = b.looks; return true })
	for range n {
		b.change(func() {})
		b.Until(b.t, "a look", func() bool {
			select {
			case b.changed <- struct{}{}:
			default:
			}
			return b.read(func() bool { return b.looks > from })
		})
		from++
	}
}

// TestTunnelManyIdle: a second manager has nothing to write for what the first has written.
func TestTunnelManyIdle(t *testing.T) {
	const clusters = 400
	b := newTunnelBed(t)
	var names []string
	for n := range clusters {
		names = append(names, fmt.Sprintf("c%04d", n))
		b.labelled(names[n])
		b.agents["a/"+names[n]] = []string{"x", "y"}
	}
	began := time.Now()
	stop := b.runTunnel(t)
	b.Until(t, "all", func() bool { return b.Wrote("PATCH clusters") == clusters && b.Wrote("POST secrets") == 3*clusters })
	t.Logf("%d Clusters took %v", clusters, time.Since(began))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	written := b.AllWrites()
	b.runTunnel(t)
	b.untilLooked(3)
	witness := b.labelled("witness")
	b.untilCondition(witness, "False NeverConnected")
	b.settled("witness")
	got := b.AllWrites()
	for verb, n := range map[string]int{"POST secrets": 3, "PUT secrets": 2, "PATCH clusters": 1} {
		got[verb] -= n // the witness's
	}
	delete(got, "POST events")
	delete(written, "POST events")
	if !maps.Equal(got, written) {
		t.Errorf("got writes %v after %v, want no more", got, written)
	}
}

// TestTunnelLabelValue: a mistyped value changes nothing, and an Event says so.
func TestTunnelLabelValue(t *testing.T) {
	b, one := settledOne(t)
	b.Change(one, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{provider.LabelTunnel: "ture"}) })
	b.Until(t, "the Event", func() bool { return slices.Contains(b.eventReasons(), "InvalidTunnelLabel") })
	if b.isRevoked() || b.Get(agentSecret("one")) == nil {
		t.Error("a mistyped label ended the agents")
	}
	b.Change(one, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{provider.LabelTunnel: "false"}) })
	b.Until(t, "the end", func() bool { return b.Get(agentSecret("one")) == nil && b.tunnelCondition(one) == "" })
}

// TestTunnelEdited: what was edited by hand is put right, a token by a new one; what others
// added stays.
func TestTunnelEdited(t *testing.T) {
	b := newTunnelBed(t)
	b.labelled("one")
	b.runTunnel(t)
	b.settled("one")
	edit := func(key apitest.Key, name, value string) {
		b.Change(key, func(u *unstructured.Unstructured) {
			unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString([]byte(value)), "data", name)
		})
	}
	unit, env := b.value(agentSecret("one"), provider.KeyAgentUnit), b.value(agentSecret("one"), provider.KeyAgentInvitation)
	edit(agentSecret("one"), provider.KeyAgentUnit, "other")
	b.Until(t, "the unit", func() bool { return b.value(agentSecret("one"), provider.KeyAgentUnit) == unit })
	edit(agentSecret("one"), "mine", "kept")
	edit(agentSecret("one"), provider.KeyAgentInvitation, strings.Replace(env, "CAUSEWAY_CLUSTER=a/one", "CAUSEWAY_CLUSTER=a/two", 1))
	b.Until(t, "an invitation", func() bool {
		i, err := tunnel.ParseInvitation(b.value(agentSecret("one"), provider.KeyAgentInvitation))
		return err == nil && i.Cluster == "a/one"
	})
	if b.value(agentSecret("one"), "mine") != "kept" {
		t.Error("another's key is gone")
	}
	edit(routeOf("one"), provider.KeyPassword, "wrong")
	b.Until(t, "a ticket", func() bool { return b.value(routeOf("one"), provider.KeyPassword) != "wrong" })
	b.Remove(agentSecret("one"))
	b.Until(t, "the Secret", func() bool { return b.Get(agentSecret("one")) != nil })
	if n := b.invitations("a/one"); n > 3 {
		t.Errorf("got %d invitations", n)
	}
}

// TestTunnelRenewal: a token has at least half of its life left, a used up or void one is
// replaced, and so is a ticket of a former key.
func TestTunnelRenewal(t *testing.T) {
	b, one := settledOne(t)
	env := func() string { return b.value(agentSecret("one"), provider.KeyAgentInvitation) }
	poke := func() {
		b.Change(one, func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{provider.Prefix + "look": fmt.Sprint(time.Now().UnixNano())})
		})
	}
	for what, change := range map[string]func(){
		"half of the life":       func() { b.change(func() { b.ahead += 12 * time.Hour }) },
		"a clock that was ahead": func() { b.change(func() { b.ahead -= 24 * time.Hour }) },
		"used up": func() {
			b.change(func() { b.ahead, b.invited["a/one"] = b.ahead+time.Minute, nil })
			b.connect("a/one", "x")
		},
	} {
		first := env()
		change()
		poke()
		b.Until(t, what, func() bool { return env() != first })
	}
	ticket := b.value(routeOf("one"), provider.KeyPassword)
	if err := b.r.Tickets.SetKeys([]byte(strings.Repeat("k", 32))); err != nil {
		t.Fatal(err)
	}
	poke()
	b.Until(t, "a ticket of the new key", func() bool { return b.value(routeOf("one"), provider.KeyPassword) != ticket })
}

// TestTicketLife: a ticket lives for a year, so that who keeps a kubeconfig in memory for months
// loses nothing. After half of it there is a new one, and the former one is good until its end.
func TestTicketLife(t *testing.T) {
	const day = 24 * time.Hour
	b, one := settledOne(t)
	ticket := func() gateway.Credentials {
		return gateway.Credentials{User: b.value(routeOf("one"), provider.KeyUsername), Password: b.value(routeOf("one"), provider.KeyPassword)}
	}
	first := ticket()
	lookLater := func(d time.Duration) {
		env := b.value(agentSecret("one"), provider.KeyAgentInvitation)
		b.change(func() { b.ahead += d })
		b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.Prefix+"look", fmt.Sprint(b.ahead)) })
		b.Until(t, "a look at the Cluster", func() bool { return b.value(agentSecret("one"), provider.KeyAgentInvitation) != env })
	}
	for range 3 {
		lookLater(45 * day)
	}
	if ticket().Password != first.Password {
		t.Error("there is a new ticket after 135 days")
	}
	lookLater(50 * day)
	b.Until(t, "a new ticket after half a year", func() bool { return ticket().Password != first.Password })
	if _, err := b.r.Tickets.Authenticate(t.Context(), first); err != nil {
		t.Errorf("the former ticket: %v", err)
	}
	b.Change(one, func(u *unstructured.Unstructured) { u.SetLabels(nil) })
	b.Until(t, "the tunnel's end", func() bool { return b.read(func() bool { return b.keep == 365*day }) })
}

// TestShortTicketLife: a short life is renewed in time, without anything else that happens.
func TestShortTicketLife(t *testing.T) {
	t.Parallel()
	b := newTunnelBed(t)
	b.r.TicketLife = 4 * time.Second
	b.labelled("one")
	b.runTunnel(t)
	b.settled("one")
	used := map[string]bool{}
	b.Until(t, "four tickets", func() bool {
		c := gateway.Credentials{User: b.value(routeOf("one"), provider.KeyUsername), Password: b.value(routeOf("one"), provider.KeyPassword)}
		used[c.Password] = true
		if _, err := b.r.Tickets.Authenticate(t.Context(), c); err != nil {
			t.Fatalf("the Secret's ticket, after %d: %v", len(used), err)
		}
		return len(used) == 4
	})
}

// TestTunnelDisconnected: the condition follows within ten seconds, not each flap of a
// session, and one Event tells of it.
func TestTunnelDisconnected(t *testing.T) {
	t.Parallel()
	b := newTunnelBed(t)
	one := b.labelled("one")
	b.agents["a/one"] = []string{"x"}
	b.runTunnel(t)
	b.untilCondition(one, "True Connected: one agent is connected")
	b.settled("one")
	b.change(func() { b.ahead = time.Minute }) // past the start
	writes := b.Wrote("PATCH clusters")
	for range 3 { // it is back before anybody has to know
		b.connect("a/one")
		b.untilLooked(1)
		b.connect("a/one", "x")
		b.untilLooked(1)
	}
	if got := b.Wrote("PATCH clusters"); got != writes {
		t.Errorf("got %d writes for sessions that came back, want none", got-writes)
	}
	began := time.Now()
	b.change(func() { b.lastErr = "session lost: no answer" })
	b.connect("a/one")
	b.untilCondition(one, "False Disconnected: no agent is connected; the last session ended with: session lost: no answer")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("disconnected after %v, want 10 s at most", took)
	}
	b.connect("a/one", "x")
	b.untilCondition(one, "True Connected")
	b.Until(t, "the Events", func() bool {
		return slices.Equal(b.eventReasons(), []string{"TunnelConnected", "TunnelDisconnected"})
	})
}

// TestTunnelSilentReplica: a replica that does not answer may have the agent.
func TestTunnelSilentReplica(t *testing.T) {
	t.Parallel()
	b := newTunnelBed(t)
	one := b.labelled("one")
	b.agents["a/one"] = []string{"x"}
	b.runTunnel(t)
	b.untilCondition(one, "True Connected")
	b.change(func() { b.ahead, b.silent = time.Minute, "connection refused" })
	b.connect("a/one")
	b.untilCondition(one, "Unknown ReplicaDoesNotAnswer: no agent is known, and replica two of the server does not answer")
	b.change(func() { b.silent = "" })
	b.untilCondition(one, "False Disconnected")
	b.change(func() { b.silent = "connection refused" })
	b.untilLooked(2)
	if got := b.tunnelCondition(one); !strings.HasPrefix(got, "False Disconnected") {
		t.Errorf("got %s, want what was known", got)
	}
}

// TestTunnelEndpoint: files without the endpoint must not get onto the first machine.
func TestTunnelEndpoint(t *testing.T) {
	b := newTunnelBed(t)
	c := cluster("a", "one", nil)
	c["metadata"].(map[string]any)["labels"] = map[string]any{provider.LabelTunnel: "true"}
	spec := c["spec"].(map[string]any)
	delete(spec, "controlPlaneEndpoint")
	spec["clusterNetwork"] = map[string]any{"apiServerPort": int64(7443)}
	b.Set("clusters", c)
	one := apitest.Named("clusters", "a", "one")
	b.runTunnel(t)
	b.untilCondition(one, "False WaitingForEndpoint")
	b.Until(t, "the ticket", func() bool { return b.Get(routeOf("one")) != nil })
	if b.Get(agentSecret("one")) != nil {
		t.Fatal("there is a Secret for machines before the endpoint is known")
	}
	b.Change(one, func(u *unstructured.Unstructured) {
		unstructured.SetNestedMap(u.Object, map[string]any{"host": "2001:db8::1", "port": int64(443)}, "spec", "controlPlaneEndpoint")
	})
	b.Until(t, "the Secret", func() bool { return b.Get(agentSecret("one")) != nil })
	unit := b.value(agentSecret("one"), provider.KeyAgentUnit)
	for _, want := range []string{" --alias=[2001:db8::1]:443=127.0.0.1:7443\n", " --alias=kubernetes.default.svc:443=127.0.0.1:7443 "} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit lacks %q:\n%s", want, unit)
		}
	}
}

// TestTunnelKey: the Secret's key reaches the agents, and a missing Secret is made.
func TestTunnelKey(t *testing.T) {
	b := newTunnelBed(t)
	one := b.labelled("one")
	b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationTunnelSSH, "one-ssh") })
	b.runTunnel(t)
	key := apitest.Named("secrets", "a", "one-ssh")
	payload := func(want string) func() bool {
		return func() bool { return b.read(func() bool { return b.payloads["a/one"] == "authorized_keys="+want }) }
	}
	b.Until(t, "a key", func() bool { return b.Get(key) != nil })
	first := b.value(key, provider.KeySSHPublic)
	if !strings.HasPrefix(first, "ssh-ed25519 ") || b.Get(key).Object["type"] != string(corev1.SecretTypeSSHAuth) {
		t.Errorf("got %q in a Secret of the type %v", first, b.Get(key).Object["type"])
	}
	b.Until(t, "the payload", payload(first))
	b.settled("one")
	if unit := b.value(agentSecret("one"), provider.KeyAgentUnit); !strings.Contains(unit, " --allow=127.0.0.1:22 --authorized-keys=/root/.ssh/authorized_keys\n") {
		t.Errorf("got the unit\n%s", unit)
	}
	b.labelled("two")
	b.Change(apitest.Named("clusters", "a", "two"), func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationTunnelSSH, "two-ssh") })
	second := apitest.Named("secrets", "a", "two-ssh")
	b.Until(t, "another key", func() bool { return b.Get(second) != nil })
	data := b.Get(second).Object["data"]
	b.Change(key, func(u *unstructured.Unstructured) { u.Object["data"] = data })
	b.Until(t, "the changed key", payload(b.value(second, provider.KeySSHPublic)))
	b.Change(key, func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, "data", "ssh-privatekey") })
	b.Until(t, "the Event", func() bool { return slices.Contains(b.eventReasons(), "InvalidSSHKey") })
	_, large := pki.NewCA("large").LargeRSA()
	b.Change(key, func(u *unstructured.Unstructured) {
		unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString(large), "data", "ssh-privatekey")
	})
	b.Until(t, "the Event of a large key", func() bool { return slices.ContainsFunc(b.List("events"), tooLarge) })
	b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationTunnelSSH, "two-sa") })
	b.Until(t, "the Event of a name that is taken", func() bool {
		return slices.ContainsFunc(b.List("events"), func(e *unstructured.Unstructured) bool {
			return strings.Contains(fmt.Sprint(e.Object["message"]), provider.AnnotationTunnelSSH+": the Secret two-sa is not made")
		})
	})
	b.Change(one, func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
	b.Until(t, "no key", payload(""))
}

func tooLarge(event *unstructured.Unstructured) bool {
	return strings.Contains(fmt.Sprint(event.Object["message"]), "too large: want RSA with at most 8192 bits")
}

// TestTunnelServerErrors: what the API server or the store refuses is tried again, and no
// invitation is made for each try.
func TestTunnelServerErrors(t *testing.T) {
	t.Parallel()
	b := newTunnelBed(t)
	b.labelled("one")
	var refuse atomic.Bool
	refuse.Store(true)
	b.SetFault(func(r *http.Request) int {
		if refuse.Load() && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/namespaces/a/secrets") {
			return http.StatusForbidden
		}
		return 0
	})
	b.runTunnel(t)
	b.Until(t, "some tries, and the Event", func() bool {
		return b.Tried(http.MethodPost, "secrets") > 8 && slices.Contains(b.eventReasons(), "TunnelWriteFailed")
	})
	if n := b.invitations("a/one"); n != 1 {
		t.Errorf("got %d invitations for tries that failed, want 1", n)
	}
	refuse.Store(false)
	b.settled("one")
	b.change(func() { b.fail = errAway })
	b.labelled("two")
	b.Until(t, "the Event", func() bool { return slices.Contains(b.eventReasons(), "InvitationFailed") })
	b.change(func() { b.fail = nil })
	b.settled("two")
}

// TestTunnelConflict: a write of another between our read and our write is planned for anew.
func TestTunnelConflict(t *testing.T) {
	b, one := settledOne(t)
	var once atomic.Bool
	b.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, provider.SuffixTunnelAgent) && once.CompareAndSwap(false, true) {
			b.Change(agentSecret("one"), func(u *unstructured.Unstructured) { unstructured.SetNestedField(u.Object, "eA==", "data", "theirs") })
		}
		return 0
	})
	b.Change(one, func(u *unstructured.Unstructured) {
		unstructured.SetNestedField(u.Object, "other.example.com", "spec", "controlPlaneEndpoint", "host")
	})
	b.Until(t, "both", func() bool {
		return strings.Contains(b.value(agentSecret("one"), provider.KeyAgentUnit), "other.example.com:6443") && b.value(agentSecret("one"), "theirs") == "x"
	})
	if n := b.invitations("a/one"); n != 1 || !once.Load() {
		t.Errorf("got %d invitations, want 1", n)
	}
}

// TestTunnelLeaders: of two processes one works; when it ends, the other finds nothing to do.
func TestTunnelLeaders(t *testing.T) {
	b := newTunnelBed(t)
	elect(b.bed)
	b.opts.LeaderElectionID = "tunnel"
	b.labelled("one")
	stop := b.runTunnel(t)
	b.settled("one")
	b.runTunnel(t)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.labelled("two")
	b.settled("two")
	if n := b.invitations("a/one"); n != 1 || b.Wrote("POST secrets") != 6 {
		t.Errorf("got %d invitations and %v, want each once", n, b.AllWrites())
	}
}

// TestTunnelTwoAtOnce: two that both believe to lead come to one result, and stop writing.
func TestTunnelTwoAtOnce(t *testing.T) {
	t.Parallel()
	b := newTunnelBed(t)
	b.opts.LeaderElection = false
	b.runTunnel(t)
	b.runTunnel(t)
	const clusters = 20
	for n := range clusters {
		b.labelled(fmt.Sprint("c", n))
	}
	for n := range clusters {
		b.settled(fmt.Sprint("c", n))
	}
	made := func() (n int) {
		for c := range clusters {
			n += b.invitations(fmt.Sprint("a/c", c))
		}
		return n
	}
	b.Until(t, "one result", func() bool {
		for n := range clusters {
			name := fmt.Sprint("c", n)
			i, err := tunnel.ParseInvitation(b.value(agentSecret(name), provider.KeyAgentInvitation))
			record := b.value(b.recordKey("a/"+name), "token")
			if err != nil || i.Cluster != "a/"+name || record != fmt.Sprintf("%x", sha256.Sum256([]byte(i.Token))) {
				return false
			}
		}
		return true
	})
	for round := 0; ; round++ {
		invitations, writes := made(), b.AllWrites()
		b.untilLooked(2)
		if made() == invitations && maps.Equal(b.AllWrites(), writes) {
			break
		}
		if round == 30 {
			t.Fatalf("got %d invitations and %v after %d and %v: they write against each other", made(), b.AllWrites(), invitations, writes)
		}
	}
}

// TestTunnelRefused: an Event tells of an agent that was refused, if it was the Cluster's. An
// invitation that was revoked is replaced within a minute then.
func TestTunnelRefused(t *testing.T) {
	b := newTunnelBed(t)
	refused := make(chan error)
	b.r.Refused = refused
	one := b.labelled("one")
	b.runTunnel(t)
	b.settled("one")
	for _, cluster := range []string{"", "b/none", "a/one", "a/one"} {
		refused <- &tunnel.Error{Op: "enroll", Cluster: cluster, Code: tunnel.CodeTokenUsed}
	}
	b.Until(t, "the Event", func() bool { return slices.Equal(b.eventReasons(), []string{"TunnelAgentRefused"}) })
	refused <- &tunnel.Error{Op: "enroll", Cluster: "a/one", Code: tunnel.CodeTokenUnknown}
	b.Until(t, "another Event", func() bool { return len(b.eventReasons()) == 2 })
	first := b.value(agentSecret("one"), provider.KeyAgentInvitation)
	b.change(func() { b.ahead, b.invited["a/one"] = b.ahead+time.Minute, nil })
	b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.Prefix+"look", "x") })
	b.Until(t, "an invitation", func() bool { return b.value(agentSecret("one"), provider.KeyAgentInvitation) != first })
}

// TestTunnelCheck: each field that can't be used is named.
func TestTunnelCheck(t *testing.T) {
	for field, change := range map[string]func(*controllers.TunnelReconciler){
		"Server": func(r *controllers.TunnelReconciler) { r.Server = nil }, "Tickets": func(r *controllers.TunnelReconciler) { r.Tickets = nil },
		"Servers": func(r *controllers.TunnelReconciler) { r.Servers = nil }, "Records": func(r *controllers.TunnelReconciler) { r.Records = "a" },

		"TicketLife":     func(r *controllers.TunnelReconciler) { r.TicketLife = time.Millisecond },
		"Gateway":        func(r *controllers.TunnelReconciler) { r.Gateway = "http://user:canary@gateway:1" },
		"Environment[1]": func(r *controllers.TunnelReconciler) { r.Environment = []string{"A=b", "C=canary\nd"} },
	} {
		b := newTunnelBed(t)
		change(b.r)
		if err := b.r.Check(); err == nil || !strings.Contains(err.Error(), "TunnelReconciler."+field) || strings.Contains(err.Error(), "canary") {
			t.Errorf("got %v, want an error that names %s", err, field)
		}
	}
}

// TestTunnelHost: a host that is none is in no file, not even in one that was written before.
func TestTunnelHost(t *testing.T) {
	b, one := settledOne(t)
	unit, pod := b.value(agentSecret("one"), provider.KeyAgentUnit), b.value(agentSecret("one"), provider.KeyAgentPod)
	setHost := func(host string) {
		b.Change(one, func(u *unstructured.Unstructured) {
			unstructured.SetNestedField(u.Object, host, "spec", "controlPlaneEndpoint", "host")
		})
	}
	for _, host := range []string{"x\rExecStartPre=/bin/sh -c id\r", `x" ; /bin/sh "`, "x\u0085ExecStartPre=/bin/sh", "${PATH}", "$(HOSTNAME)"} {
		setHost(host)
		b.untilCondition(one, "False NoInvitation: machines can't get an agent: the Secret one-tunnel-agent can't be written: provider: spec.controlPlaneEndpoint: the host ")
		b.Until(t, "the Event, and no files", func() bool {
			return slices.Contains(b.eventReasons(), "TunnelWriteFailed") &&
				b.value(agentSecret("one"), provider.KeyAgentUnit) == "" && b.value(agentSecret("one"), provider.KeyAgentPod) == ""
		})
		setHost("192.0.2.1")
		b.Until(t, "the files", func() bool {
			return b.value(agentSecret("one"), provider.KeyAgentUnit) == unit && b.value(agentSecret("one"), provider.KeyAgentPod) == pod
		})
	}
	if n := b.invitations("a/one"); n != 1 {
		t.Errorf("got %d invitations, want 1", n)
	}
	setHost("https://192.0.2.1") // as CAPA writes it for EKS
	b.Until(t, "the files once more", func() bool { return b.value(agentSecret("one"), provider.KeyAgentUnit) == unit })
}

// TestTunnelNoInvitation: the condition says why machines get no agent, and what to do.
func TestTunnelNoInvitation(t *testing.T) {
	b := newTunnelBed(t)
	b.Set("secrets", map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "a", "name": "one" + provider.SuffixTunnelAgent}})
	one := b.labelled("one")
	long := b.labelled(strings.Repeat("n", 64))
	c := cluster("a", "host", nil)
	c["metadata"].(map[string]any)["labels"] = map[string]any{provider.LabelTunnel: "true"}
	unstructured.SetNestedField(c, "[fe80::1%eth0]", "spec", "controlPlaneEndpoint", "host")
	b.Set("clusters", c)
	b.runTunnel(t)
	b.untilCondition(apitest.Named("clusters", "a", "host"), "False NoInvitation: machines can't get an agent: the Secret host-tunnel-agent can't be written: provider: ")
	if got := b.tunnelCondition(apitest.Named("clusters", "a", "host")); !strings.Contains(got, "spec.controlPlaneEndpoint: the host") {
		t.Errorf("got %s, want the field's name", got)
	}
	b.untilCondition(one, "False NoInvitation: machines can't get an agent: the Secret one-tunnel-agent can't be written: a Secret of this name is there, and not the server's: delete it")
	b.untilCondition(long, "False NoInvitation: machines can't get an agent: the Secret "+long.Name+"-tunnel-agent can't be written: the Cluster's name has 64 characters")
	b.Remove(agentSecret("one"))
	b.Change(one, func(u *unstructured.Unstructured) { annotate(u, "look", "again") })
	b.untilCondition(one, "False NeverConnected")
	if b.Get(agentSecret("one")) == nil {
		t.Error("there is no Secret")
	}
}

// TestTunnelEmptyLabel: a label without a value is a mistake, and ends nothing.
func TestTunnelEmptyLabel(t *testing.T) {
	b, one := settledOne(t)
	b.Change(one, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{provider.LabelTunnel: ""}) })
	b.Until(t, "the Event", func() bool { return slices.Contains(b.eventReasons(), "InvalidTunnelLabel") })
	if b.isRevoked() || b.Get(agentSecret("one")) == nil {
		t.Error("the agents were revoked, or the Secret is gone")
	}
}

package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/tunnel"
)

// newState returns the folder of a server's state.
func newState(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := newDirState(dir, 0).loadAuthority(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What other users of the machine can read or write is no place for the key.
func TestModesOfState(t *testing.T) {
	for _, test := range []struct {
		folder, key os.FileMode
		want        string
	}{
		{0o700, 0o600, ""},
		{0o775, 0o660, ""},
		{0o700, 0o644, "authority.pem, the authority's key"},
		{0o777, 0o600, "can write to the folder"},
	} {
		dir := newState(t)
		if err := errors.Join(os.Chmod(dir, test.folder), os.Chmod(filepath.Join(dir, authorityFile), test.key)); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{"server --listen 127.0.0.1:0 --status= --forward 192.0.2.1:1=a/b:1", "enroll default/prod --server a:1"} {
			err := run(t.Context(), append(strings.Fields(args), "--state", dir), nil, io.Discard, io.Discard)
			said := fmt.Sprint(err)
			if test.want == "" && strings.Contains(said, "--state") || test.want != "" && (!strings.Contains(said, "--state "+dir) || !strings.Contains(said, test.want)) {
				t.Errorf("folder %o, key %o, %s: got %v, want %q", test.folder, test.key, args, err, test.want)
			}
		}
	}
}

// Only the server makes a state: a command that was given another folder says so, and
// leaves nothing there.
func TestCommandsMakeNoState(t *testing.T) {
	empty, api := t.TempDir(), apitest.New(t)
	leads := kubeconfigOf(t, api.URL)
	for _, args := range []string{
		"enroll default/prod --server a:1",
		"ticket default/prod --gateway http://127.0.0.1:3128",
		"ticket --revoke-all",
		"ticket --revoke",
		"rotate add --tickets",
		"revoke default/prod agent",
		"payload default/prod name",
		"kubeconfig default/prod --gateway http://127.0.0.1:3128",
	} {
		for _, dir := range []string{filepath.Join(empty, "mistyped"), empty} {
			var out strings.Builder
			const config = `{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {}}]}`
			err := run(t.Context(), append(strings.Fields(args), "--state", dir), strings.NewReader(config), &out, io.Discard)
			if err == nil || !strings.Contains(err.Error(), "--state "+dir+": no server has its state there") || out.Len() > 0 {
				t.Errorf("%s: got %v and %q, want an error of --state %s", args, err, &out, dir)
			}
		}
		err := run(t.Context(), append(strings.Fields(args), "--secrets", "tunnel-server/mistyped", "--kubeconfig", leads), strings.NewReader("{}"), io.Discard, io.Discard)
		if name, _, _ := strings.Cut(args, " "); name != "kubeconfig" && (err == nil || !strings.Contains(err.Error(), "--secrets tunnel-server/mistyped: no server has its state there")) {
			t.Errorf("%s: got %v, want an error of --secrets", args, err)
		}
		if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
			t.Fatalf("%s: made %v, %v", args, left, err)
		}
	}
	if wrote := api.AllWrites(); len(wrote) > 0 {
		t.Errorf("the commands wrote %v", wrote)
	}
}

// A name may be revoked that has not enrolled; the command says that it may be
// nobody's, and warns unless an agent of that name has enrolled.
func TestRevokeSaysWhom(t *testing.T) {
	dir := t.TempDir()
	p := startServer(t, dir)
	inv := newInvitation(t, dir, "--server", address(p, "listen"), "--agents", "3")
	names := []string{"nobody"}
	for range 2 {
		receive(t, "connection", startAgent(t, inv, echo(t), nil).connected)
		names = append(names, p.Await(`msg=enrolled .*agent=(\S+)`))
	}
	for _, agent := range append(names, names[1][:15]) {
		var out, warning strings.Builder
		if err := run(t.Context(), []string{"revoke", cluster, agent, "--state", dir}, nil, &out, &warning); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{strconv.Quote(agent), `"default/prod"`, "whether or not it ever connected"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("got %q, want %s", out.String(), want)
			}
		}
		if unknown := !slices.Contains(names[1:], agent); unknown != strings.Contains(warning.String(), "no record of agent "+strconv.Quote(agent)) {
			t.Errorf("%s: got the warning %q", agent, &warning)
		}
	}
}

// Where the state is, and whom a command ends, is what the command line says before what variables
// say. Two places on either are a mistake that names both, and nothing is done.
func TestStateBesideVariables(t *testing.T) {
	for _, tt := range []struct {
		args    string // DIR is the state
		env     string
		want    string // "": it is done in DIR
		cluster bool   // all of it is revoked
	}{
		{"revoke default/prod --all --state DIR", "CAUSEWAY_SERVER_SECRETS=tun/tunnel CAUSEWAY_SERVER_KUBECONFIG=/none", "", true},
		{"revoke default/prod --all --state DIR", "CAUSEWAY_SERVER_STATE=/none", "", true},
		{"revoke default/prod --all", "CAUSEWAY_SERVER_STATE=DIR", "", true},
		{"revoke default/prod --all", "CAUSEWAY_SERVER_STATE=DIR CAUSEWAY_SERVER_SECRETS=", "", true},
		{"revoke default/prod --all --secrets=", "CAUSEWAY_SERVER_STATE=DIR CAUSEWAY_SERVER_SECRETS=tun/tunnel", "", true},
		{"revoke default/prod agent --state DIR", "CAUSEWAY_REVOKE_ALL=true", "", false},
		{"revoke default/prod --all --state DIR --secrets tun/tunnel", "", "--secrets and --state exclude each other", false},
		{"revoke default/prod --all", "CAUSEWAY_SERVER_STATE=DIR CAUSEWAY_SERVER_SECRETS=tun/tunnel", "CAUSEWAY_SERVER_SECRETS and CAUSEWAY_SERVER_STATE exclude each other", false},
		{"revoke default/prod --all", "CAUSEWAY_SERVER_STATE=DIR CAUSEWAY_SECRETS=tun/tunnel", "CAUSEWAY_SECRETS and CAUSEWAY_SERVER_STATE exclude each other", false},
		{"revoke default/prod --all", "CAUSEWAY_SERVER_STATE=DIR CAUSEWAY_STATE=/none", "", true},
		{"revoke default/prod --all --state DIR", "CAUSEWAY_SECRETS=tun/tunnel", "", true},
		{"revoke default/prod --all --secrets tun/tunnel", "CAUSEWAY_SERVER_STATE=DIR CAUSEWAY_SERVER_KUBECONFIG=/none", "CAUSEWAY_SERVER_KUBECONFIG: ", false},
		{"ticket --revoke-all --state DIR", "CAUSEWAY_SERVER_SECRETS=tun/tunnel CAUSEWAY_TICKET_REVOKE=true", "", false},
		{"ticket --state DIR", "CAUSEWAY_REVOKE_ALL=true", "CLUSTER is missing", false}, // revoke's
		{"enroll default/prod --server a:1 --state DIR --show", "CAUSEWAY_SERVER_SECRETS=tun/tunnel CAUSEWAY_ENROLL_LIFE=2h CAUSEWAY_ENROLL_JOIN=true", "no invitation of cluster", false},
		{"enroll default/prod --state DIR", "CAUSEWAY_ENROLL_SERVER=a:1,b CAUSEWAY_SERVER_SECRETS=tun/tunnel", "CAUSEWAY_ENROLL_SERVER: address 2:", false},
		{"enroll default/prod --state DIR --server a:1", "CAUSEWAY_ENROLL_PROXY=ftp://u:canary@p", "CAUSEWAY_ENROLL_PROXY: ", false},
		{"enroll default/prod --state DIR --server a:1", "CAUSEWAY_ENROLL_NO_PROXY=a", "CAUSEWAY_ENROLL_NO_PROXY is for --proxy, which is missing", false},
		{"enroll default/prod --state DIR --server a:1", "CAUSEWAY_ENROLL_ALLOW=a", "CAUSEWAY_ENROLL_ALLOW, entry", false},
		{"server --state DIR", "CAUSEWAY_SERVER_LISTEN=a", `CAUSEWAY_SERVER_LISTEN: "a" is not HOST:PORT`, false},
		{"server --state DIR", "CAUSEWAY_LISTEN=a", `CAUSEWAY_LISTEN: "a" is not HOST:PORT`, false},
		{"server --state DIR", "CAUSEWAY_SERVER_FORWARD=a", `CAUSEWAY_SERVER_FORWARD "a" is not`, false},
		{"server --state DIR", "CAUSEWAY_SERVER_PEERS=a:1,b", "CAUSEWAY_SERVER_PEERS: address 2:", false},
		{"server --state DIR --listen a", "CAUSEWAY_SERVER_LISTEN=b", `--listen: "a" is not`, false},
	} {
		t.Run(tt.args+" "+tt.env, func(t *testing.T) {
			dir := newState(t)
			for name := range strings.FieldsSeq(strings.ReplaceAll(tt.env, "DIR", dir)) {
				name, value, _ := strings.Cut(name, "=")
				t.Setenv(name, value)
			}
			err := run(t.Context(), strings.Fields(strings.ReplaceAll(tt.args, "DIR", dir)), nil, io.Discard, io.Discard)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || strings.Contains(fmt.Sprint(err), "canary") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if at, err := newDirState(dir, 0).Revoked(t.Context(), tunnel.Identity{Cluster: cluster}); err != nil || at.IsZero() == tt.cluster {
				t.Errorf("the cluster was revoked at %v, %v; want that it was: %v", at, err, tt.cluster)
			}
		})
	}
}

// A state that an earlier version wrote, or a partial copy of one, has no record of an
// invitation, though agents of the cluster are connected: the commands do their work and
// warn, since the name may be mistyped.
func TestUnknownCluster(t *testing.T) {
	api := apitest.New(t)
	leads := kubeconfigOf(t, api.URL)
	st, err := (&stateFlags{secrets: "tunnel-server/tunnel", kubeconfig: leads}).create(slog.New(slog.DiscardHandler), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.server(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"--state " + newState(t), "--secrets tunnel-server/tunnel --kubeconfig " + leads} {
		do := func(args string) (stdout, stderr string) {
			t.Helper()
			var out, warnings strings.Builder
			if err := run(t.Context(), strings.Fields(args+" "+state), strings.NewReader("data"), &out, &warnings); err != nil {
				t.Errorf("%s: %v", args, err)
			}
			return out.String(), warnings.String()
		}
		for range 2 { // the cluster of a second invitation is known already
			do("enroll default/prod --server a:1")
		}
		for _, args := range []string{"revoke default/prd agent", "payload default/prd name"} {
			out, warning := do(args)
			if !strings.Contains(out, `cluster "default/prd"`) || !strings.Contains(warning, `no record of an invitation of cluster "default/prd"`) {
				t.Errorf("%s: got %q and the warning %q, want that it is done, and that the cluster is unknown", args, out, warning)
			}
		}
		const ticket = " --gateway http://gateway:1080"
		if out, warning := do("ticket default/prd" + ticket); !strings.HasPrefix(out, "http://") || !strings.Contains(warning, `no record of an invitation of cluster "default/prd"`) {
			t.Errorf("got %d bytes and the warning %q, want a ticket for an unknown cluster", len(out), warning)
		}
		for _, name := range []string{"default/a b", "default/x\n", "default/x\r\nX: y"} {
			args := append([]string{"ticket", name}, strings.Fields(ticket+" "+state)...)
			if err := run(t.Context(), args, strings.NewReader(""), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "CLUSTER") {
				t.Errorf("ticket for %q: got %v", name, err)
			}
		}
		if out, warning := do("revoke default/prod agent"); !strings.Contains(out, "is revoked") || !strings.Contains(warning, `no record of agent "agent" of cluster "default/prod"`) {
			t.Errorf("got %q and the warning %q, want that it is done, and that the agent is unknown", out, warning)
		}
		if out, warning := do("payload default/prod name"); !strings.Contains(out, `get "name"`) || !strings.Contains(warning, "takes only a payload named authorized_keys") {
			t.Errorf("got %q and the warning %q, want that it is done, and that agents refuse it", out, warning)
		}
		for _, args := range []string{"revoke default/prod --all", "payload default/prod authorized_keys", "ticket default/prod" + ticket} {
			if _, warning := do(args); warning != "" {
				t.Errorf("%s: got the warning %q, want none", args, warning)
			}
		}
	}
}

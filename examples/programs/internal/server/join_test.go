package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel"
)

const kubernetesIssuer = "https://kubernetes.default.svc.cluster.local"

// tokenSigner is the key of a cluster's API server.
type tokenSigner struct{ key *ecdsa.PrivateKey }

func newTokenSigner(t *testing.T) tokenSigner {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return tokenSigner{key}
}

func (s tokenSigner) jwks(t *testing.T) []byte {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: s.key.Public(), KeyID: "1", Use: "sig", Algorithm: "ES256"}}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// jwksFile writes the keys to a file.
func (s tokenSigner) jwksFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jwks")
	if err := os.WriteFile(path, s.jwks(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// token is one of the agent's pod.
func (s tokenSigner) token(t *testing.T, audience string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: "1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Unix()
	claims, err := json.Marshal(map[string]any{
		"iss": kubernetesIssuer, "sub": joinSubject, "aud": []string{audience}, "iat": now, "nbf": now, "exp": now + 600, "jti": rand.Text(),
		"kubernetes.io": map[string]any{"pod": map[string]string{"name": "a", "uid": "1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func join(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append([]string{"join"}, args...), nil, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// audienceOf reads the audience that join list prints.
func audienceOf(t *testing.T, dir string) string {
	t.Helper()
	first, _, _ := strings.Cut(join(t, "list", "--state", dir), "\n")
	_, audience, ok := strings.Cut(first, "installation is ")
	if !ok || !strings.HasPrefix(audience, "causeway:") {
		t.Fatalf("got %q", first)
	}
	return audience
}

// Agents of a cluster that is registered beside a running server join, and no longer once
// it is removed. Those that have joined stay.
func TestJoin(t *testing.T) {
	dir, signer, other := t.TempDir(), newTokenSigner(t), newTokenSigner(t)
	p := startServer(t, dir)
	inv := newInvitation(t, dir, "--server", address(p, "listen"))
	audience := audienceOf(t, dir)
	start := func(s tokenSigner, audience string) *agentEvents {
		// A new token for each attempt, as if the kubelet had made one.
		return startAgent(t, inv, echo(t), func(a *tunnel.Agent) {
			a.Invitation = func(context.Context) (tunnel.Invitation, error) {
				i := inv
				i.Token = s.token(t, audience)
				return i, nil
			}
		})
	}
	// What is registered shows in the server's log, and not in the answer to a stranger.
	refused := func(e *agentEvents, want string) {
		t.Helper()
		if err := receive(t, "refusal", e.failed); !strings.HasSuffix(err.Error(), "unknown token: the server does not accept it; the server's log says why") {
			t.Errorf("got %v", err)
		}
		p.Await(`msg=refused .*oidc: (` + want + `)`)
	}
	early := start(signer, audience)
	refused(early, "the cluster is not registered")
	out := join(t, "add", cluster, "--state", dir, "--issuer", kubernetesIssuer, "--jwks", signer.jwksFile(t))
	if !strings.Contains(out, audience) || !strings.Contains(out, joinSubject) {
		t.Errorf("got %q", out)
	}
	p.Await(`msg="agents of the cluster may join" cluster=(\S+)`)
	if id := receive(t, "agent", early.connected); id.Cluster != cluster {
		t.Errorf("got %v", id)
	}
	for _, test := range []struct {
		audience, want string
		s              tokenSigner
	}{
		{"causeway:other", "the token is for another audience", signer},
		{audience, "the token was not signed by a key of the cluster", other},
	} {
		refused(start(test.s, test.audience), test.want)
	}
	join(t, "remove", cluster, "--state", dir)
	p.Await(`msg="agents of the cluster may not join any more" cluster=(\S+)`)
	refused(start(signer, audience), "the cluster is not registered")
	select {
	case <-early.disconnected:
		t.Error("the agent that had joined has lost its session")
	default:
	}
}

// Whoever revokes an agent of a registered cluster is told that it can join again.
func TestJoinRevoke(t *testing.T) {
	dir := t.TempDir()
	address(startServer(t, dir), "listen") // it has made the state
	revoke := func(which string) (warned string) {
		var stderr bytes.Buffer
		if err := run(t.Context(), []string{"revoke", cluster, which, "--state", dir}, nil, io.Discard, &stderr); err != nil {
			t.Fatal(err)
		}
		return stderr.String()
	}
	join(t, "add", cluster, "--state", dir, "--issuer", kubernetesIssuer, "--jwks", newTokenSigner(t).jwksFile(t))
	for _, which := range []string{"k3w7hq2nxy5zr4ta", "--all"} {
		if warned := revoke(which); !strings.Contains(warned, "causeway join remove "+cluster+",") {
			t.Errorf("revoke %s: got %q", which, warned)
		}
	}
	join(t, "remove", cluster, "--state", dir)
	if warned := revoke("--all"); warned != "" {
		t.Errorf("not registered any more: got %q", warned)
	}
}

// The audience is that of the installation: it stays when the authority is replaced, and
// two that make it at once agree.
func TestJoinAudience(t *testing.T) {
	st := newSecretState(fake.NewClientset(), "tunnel-server", "tunnel", slog.New(slog.DiscardHandler))
	if _, err := st.server(t.Context()); err != nil {
		t.Fatal(err)
	}
	audiences := make(chan string)
	for range 4 {
		go func() {
			a, err := joinAudience(t.Context(), st)
			if err != nil {
				t.Error(err)
			}
			audiences <- a
		}()
	}
	first := <-audiences
	for range 3 {
		if a := <-audiences; a != first || first == "" {
			t.Errorf("got %q and %q", first, a)
		}
	}
	for _, step := range []string{"add", "switch", "drop"} {
		if err := st.secrets.rotate(t.Context(), step, true, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := joinAudience(t.Context(), st); a != first || err != nil {
		t.Errorf("after a rotation: got %q, %v; want %q", a, err, first)
	}
}

// Both states list and remove.
func TestJoinState(t *testing.T) {
	dir, err := openDir(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, st := range map[string]*state{
		"directory": dir, "Secrets": newSecretState(fake.NewClientset(), "tunnel-server", "tunnel", slog.New(slog.DiscardHandler)),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if err := st.setPayload(ctx, "join-", tunnel.Payload{Name: "join-", Data: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			for _, cluster := range []string{"default/a", "default/b"} {
				if err := st.Put(ctx, valueRecord(joinFile(cluster), []byte(`{"cluster":"`+cluster+`"}`))); err != nil {
					t.Fatal(err)
				}
			}
			if err := st.Put(ctx, valueRecord(serversFile, []byte("x"))); err != nil {
				t.Fatal(err)
			}
			if records, err := readJoins(ctx, st); len(records) != 2 || err != nil {
				t.Errorf("got %v, %v; want two", records, err)
			}
			if err := st.Store.Delete(ctx, tunnel.Record{Kind: tunnel.KindValue, Name: joinFile("default/a")}); err != nil {
				t.Error(err)
			}
			if err := st.Put(ctx, valueRecord(joinFile("default/broken"), []byte("{"))); err != nil {
				t.Fatal(err)
			}
			if records, err := readJoins(ctx, st); len(records) != 1 || records[0].Cluster != "default/b" || err == nil {
				t.Errorf("got %v, %v; want one, and an error", records, err)
			}
		})
	}
}

// --from reads the issuer and its keys where an API server has them.
func TestJoinFrom(t *testing.T) {
	dir, signer := t.TempDir(), newTokenSigner(t)
	startServer(t, dir).Await(`for=(listen) `)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			io.WriteString(w, `{"issuer":"`+kubernetesIssuer+`"}`)
		case "/openid/v1/jwks":
			w.Write(signer.jwks(t))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(api.Close)
	config := filepath.Join(t.TempDir(), "admin.conf")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],
"users":[{"name":"a","user":{"token":"x"}}],"clusters":[{"name":"a","cluster":{"server":"` + api.URL + `"}}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	join(t, "add", cluster, "--state", dir, "--from", config)
	st, err := openDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := readJoin(t.Context(), st, cluster); err != nil || r.Issuer != kubernetesIssuer || r.Keys != string(signer.jwks(t)) {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestJoinMistakes(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), newTokenSigner(t).jwksFile(t)
	startServer(t, dir).Await(`for=(listen) `)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want string }{
		{"", "one of --issuer and --from must be set"},
		{"--issuer https://i --from x", "--from and --issuer exclude each other"},
		{"--issuer https://i --jwks " + file + " --proxy direct", "--jwks and --proxy exclude each other"},
		{"--issuer http://i.example", "--issuer: without Keys it is where the keys are"},
		{"--issuer https://i.example --proxy ftp://u:canary@p", "--proxy: "},
		{"--issuer https://i.example --ca " + file, "--ca has no certificate in PEM"},
		{"--issuer https://i.example\x1b[31m", "--issuer, or the issuer that --from has read, has more than 2048 bytes, or a character that does not print: https://i.example?[31m"},
		{"--issuer https://i.example --audience a\u202eb", "--audience has more than 2048 bytes, or a character that does not print: a?b"},
		{"--issuer https://i.example --subject a\x9bb", "--subject has more than 2048 bytes, or a character that does not print"},
		{"--issuer https://" + strings.Repeat("i", 2<<10), "has more than 2048 bytes"},
		{"--issuer https://i.example --jwks " + empty, "--jwks: "},
		{"--issuer https://i.example --jwks " + os.Args[0], "--jwks: "},
	} {
		err := run(t.Context(), append([]string{"join", "add", cluster, "--state", dir}, strings.Fields(test.args)...), nil, io.Discard, io.Discard)
		var mistake cli.UsageError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: got %v, want %q", test.args, err, test.want)
		}
	}
	if err := run(t.Context(), []string{"join", "remove", "default/none", "--state", dir}, nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "is not registered") {
		t.Errorf("got %v", err)
	}
}

// The manifest of an agent that joins has no secret, no rights and no token.
func TestJoinManifest(t *testing.T) {
	dir := t.TempDir()
	startServer(t, dir).Await(`for=(listen) `)
	enroll := func(args ...string) (string, error) {
		var out strings.Builder
		err := run(t.Context(), append([]string{"enroll", cluster, "--state", dir, "--server", "tunnel.example.com:8443", "--join"}, args...), nil, &out, io.Discard)
		return out.String(), err
	}
	if _, err := enroll("--format", "manifest"); err == nil || !strings.Contains(err.Error(), "causeway join add comes first") {
		t.Errorf("not registered: %v", err)
	}
	join(t, "add", cluster, "--state", dir, "--issuer", kubernetesIssuer, "--jwks", newTokenSigner(t).jwksFile(t))
	out, err := enroll("--format", "manifest", "--host-network")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{audienceOf(t, dir), "expirationSeconds: 600", "--join-token=", "kind: ConfigMap", "CAUSEWAY_PIN=sha256:", "hostNetwork: true", "automountServiceAccountToken: false"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, no := range []string{"kind: Secret", "kind: Role", "CAUSEWAY_TOKEN", "causeway1.", "--secret=", "automountServiceAccountToken: true"} {
		if strings.Contains(out, no) {
			t.Errorf("it has %q:\n%s", no, out)
		}
	}
	for _, test := range []struct{ args, want string }{
		{"--format env", "--join is for --format manifest"},
		{"--format manifest --proxy http://u:canary@p:1", "--join makes a manifest without a secret"},
		{"--format manifest --agents 3", "--agents and --join exclude each other"},
		{"--format manifest --life 2h", "--join and --life exclude each other"},
		{"--format manifest --namespace other", "system:serviceaccount:other:tunnel-agent, which is none of the subjects"},
	} {
		if _, err := enroll(strings.Fields(test.args)...); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: got %v, want %q", test.args, err, test.want)
		}
	}
}

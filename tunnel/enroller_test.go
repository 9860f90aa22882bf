package tunnel_test

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// enrollerFunc is an Enroller that counts its calls.
type enrollerFunc struct {
	enroll func(context.Context, tunnel.Enrollment) (string, error)
	calls  atomic.Int32
}

func (f *enrollerFunc) Enroll(ctx context.Context, e tunnel.Enrollment) (string, error) {
	f.calls.Add(1)
	return f.enroll(ctx, e)
}

// says is an Enroller with one answer.
func says(cluster string, err error) *enrollerFunc {
	return &enrollerFunc{enroll: func(context.Context, tunnel.Enrollment) (string, error) { return cluster, err }}
}

// serviceToken has the form of a ServiceAccount's token.
const serviceToken = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl-_"

var errIssuer = errors.New("the issuer at 10.1.2.3 does not know it")

func TestEnroller(t *testing.T) {
	refusal := &tunnel.Error{Op: "enroll", Cluster: "prod", Code: tunnel.CodeTokenExpired, Err: errors.New("it ended at noon")}
	tests := []struct {
		name   string
		r      request
		says   *enrollerFunc
		want   tunnel.Code
		called bool
	}{
		{"the cluster that the agent wants", request{}, says("prod", nil), 0, true},
		{"the agent wants any", request{cluster: "-"}, says("other/cluster", nil), 0, true},
		{"another cluster", request{}, says("staging", nil), tunnel.CodeWrongCluster, true},
		{"no cluster", request{}, says("", nil), tunnel.CodeInternal, true},
		{"what is no cluster", request{cluster: "-"}, says("a\x00b", nil), tunnel.CodeInternal, true},
		{"a refusal", request{}, says("", refusal), tunnel.CodeTokenExpired, true},
		{"a wrapped refusal", request{}, says("", fmt.Errorf("issuer: %w", refusal)), tunnel.CodeTokenExpired, true},
		{"a code that is never sent", request{}, says("", &tunnel.Error{Code: tunnel.CodeConfig, Err: errIssuer}), tunnel.CodeInternal, true},
		{"another error", request{}, says("", errIssuer), tunnel.CodeTokenUnknown, true},
		{"no token", request{token: tokenOf("")}, says("prod", nil), tunnel.CodeTokenUnknown, false},
		{"the longest token", request{token: tokenOf("x.y." + strings.Repeat("z", 8188))}, says("prod", nil), 0, true},
		{"a longer token", request{token: tokenOf("x.y." + strings.Repeat("z", 8189))}, says("prod", nil), tunnel.CodeTokenUnknown, false},
		{"a token in two parts", request{token: tokenOf("two.parts")}, says("prod", nil), tunnel.CodeTokenUnknown, false},
		{"a token with a space", request{token: tokenOf("a.b.c d")}, says("prod", nil), tunnel.CodeTokenUnknown, false},
		{"a token that is no ASCII", request{token: tokenOf("ü.m.l")}, says("prod", nil), tunnel.CodeTokenUnknown, false},
		{"an invitation", request{token: func(i tunnel.Invitation) string { return i.Token }}, says("", errIssuer), 0, false},
		{"a made-up invitation", request{token: tokenOf("causeway1.a.b")}, says("prod", nil), tunnel.CodeTokenUnknown, false},
		{"a mistyped invitation", request{token: tokenOf("Causeway1.a.b")}, says("prod", nil), tunnel.CodeTokenUnknown, false},
		{"a cluster that is none", request{cluster: "a\x00b"}, says("prod", nil), tunnel.CodeBadRequest, false},
		{"no proof", request{proof: func([]byte) []byte { return nil }}, says("prod", nil), tunnel.CodeBadProof, false},
		{"spoilt proof", request{proof: func(p []byte) []byte { p[len(p)-1] ^= 1; return p }}, says("prod", nil), tunnel.CodeBadProof, false},
		{"another version", request{version: 2}, says("prod", nil), tunnel.CodeVersion, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newTunnelServer(t, &tunnel.MemoryStore{})
			s.registrar.SetEnroller(test.says)
			if test.r.token == nil {
				test.r.token = tokenOf(serviceToken)
			}
			inv := s.invite("prod")
			if test.r.cluster == "-" {
				inv.Cluster, test.r.cluster = "", ""
			}
			code, hookErr := test.r.send(s, inv)
			if code != test.want || test.want != 0 && codeIn(hookErr) != test.want && test.want != tunnel.CodeInternal {
				t.Errorf("got %v, and the server %v; want %v", code, hookErr, test.want)
			}
			if got := test.says.calls.Load() == 1; got != test.called {
				t.Errorf("asked: %t, want %t", got, test.called)
			}
		})
	}
}

func tokenOf(text string) func(tunnel.Invitation) string {
	return func(tunnel.Invitation) string { return text }
}

// TestEnrollerTexts: what the agent is told, and what only the server is.
func TestEnrollerTexts(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		says string // to the agent
	}{
		"a refusal":     {&tunnel.Error{Code: tunnel.CodeTokenUnknown, Err: errors.New("the issuer is not known")}, "the issuer is not known"},
		"another error": {errIssuer, "the server does not accept it; the server's log says why"},
	} {
		s := newTunnelServer(t, &tunnel.MemoryStore{})
		s.registrar.SetEnroller(says("", test.err))
		inv := s.invite("prod")
		inv.Token = serviceToken
		_, _, err, hookErr := s.enroll(inv, newKey(t))
		if want := "tunnel: enroll prod: unknown token: " + test.says; err == nil || err.Error() != want {
			t.Errorf("%s: the agent got %v, want %s", name, err, want)
		}
		if !errors.Is(hookErr, test.err) && !strings.Contains(hookErr.Error(), test.says) {
			t.Errorf("%s: the server got %v, want %v", name, hookErr, test.err)
		}
		if strings.Contains(fmt.Sprint(err, hookErr), serviceToken) {
			t.Errorf("%s: a token in %v or %v", name, err, hookErr)
		}
	}
}

// TestEnrollerProvenCluster: a refusal is of the cluster that Enroll returns, and not of the
// one that the agent or an error names.
func TestEnrollerProvenCluster(t *testing.T) {
	named := &tunnel.Error{Cluster: "prod", Code: tunnel.CodeTokenExpired}
	for _, test := range []struct {
		name, says string
		err        error
		want       string
	}{
		{"nothing is proven", "", named, ""},
		{"nothing is proven, and the agent is not told", "", errIssuer, ""},
		{"proven", "staging", named, "staging"},
		{"proven, and the agent is not told", "staging", errIssuer, "staging"},
		{"what is no cluster", "a\u202eb", named, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newTunnelServer(t, &tunnel.MemoryStore{})
			s.registrar.SetEnroller(says(test.says, test.err))
			inv := s.invite("prod")
			inv.Token = serviceToken
			_, _, _, err := s.enroll(inv, newKey(t))
			var e *tunnel.Error
			if !errors.As(err, &e) || e.Cluster != test.want {
				t.Errorf("got %#v, want a refusal of the cluster %q", err, test.want)
			}
		})
	}
}

// TestEnrollerKey: the Enroller learns the key that was proven, the same one for an agent
// that asks again.
func TestEnrollerKey(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	var asked []tunnel.Enrollment
	s.registrar.SetEnroller(&enrollerFunc{enroll: func(_ context.Context, e tunnel.Enrollment) (string, error) {
		asked = append(asked, e)
		return "prod", nil
	}})
	inv := s.invite("prod")
	inv.Token = serviceToken
	one, other := newKey(t), newKey(t)
	for _, key := range []*ecdsa.PrivateKey{one, one, other} {
		if _, _, err, _ := s.enroll(inv, key); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range asked {
		if e.Cluster != "prod" || e.Token != serviceToken || len(e.Key) != 64 {
			t.Errorf("got %v with a key of %d characters", e, len(e.Key))
		}
	}
	if asked[0].Key != asked[1].Key || asked[0].Key == asked[2].Key {
		t.Errorf("got the keys %v", []string{asked[0].Key, asked[1].Key, asked[2].Key})
	}
}

// TestEnrollerStolenRequest: a request is no good on another connection, and the Enroller
// does not hear of it.
func TestEnrollerStolenRequest(t *testing.T) {
	s, enroller := newTunnelServer(t, &tunnel.MemoryStore{}), says("prod", nil)
	s.registrar.SetEnroller(enroller)
	a, _ := s.link(tunnel.EnrollTLS(s.authority.Load().Pin()))
	stateA := a.ConnectionState()
	m := wire.New(wire.MsgEnroll).AddUint(wire.TagVersion, 1).AddString(wire.TagToken, serviceToken)
	if err := m.AddRequest(&stateA, newKey(t)); err != nil {
		t.Fatal(err)
	}
	_, thief := s.link(tunnel.EnrollTLS(s.authority.Load().Pin()))
	state := thief.ConnectionState()
	if _, _, err := s.registrar.Enroll(t.Context(), &state, m); codeIn(err) != tunnel.CodeBadProof || enroller.calls.Load() != 0 {
		t.Errorf("got %v after %d calls, want %v", err, enroller.calls.Load(), tunnel.CodeBadProof)
	}
}

// TestEnrollerRevoked: an agent that was revoked stays so; after the revocation of all, the
// Enroller decides again.
func TestEnrollerRevoked(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	s.registrar.SetEnroller(says("prod", nil))
	inv, key := tunnel.Invitation{Token: serviceToken, Pin: s.authority.Load().Pin()}, newKey(t)
	enrol := func() (*tunnel.Credentials, error) {
		c, _, err, _ := s.enroll(inv, key)
		return c, err
	}
	c := must(enrol())(t)
	s.revokeCluster("prod")
	if _, err := s.connect(c); codeIn(err) != tunnel.CodeRevoked {
		t.Errorf("got %v, want %v", err, tunnel.CodeRevoked)
	}
	c = must(enrol())(t)
	if _, err := s.connect(c); err != nil {
		t.Errorf("enrolled after it: got %v", err)
	}
	must(recordsOf(s.store).Revoke(t.Context(), c.Identity(), time.Now()))(t)
	if _, err := enrol(); codeIn(err) != tunnel.CodeRevoked {
		t.Errorf("got %v, want %v", err, tunnel.CodeRevoked)
	}
}

// TestEnrollerHangs: strangers keep the Enroller busy. Few calls of one source are under way
// at once, other sources are served, all are told in time, and nothing is left.
func TestEnrollerHangs(t *testing.T) {
	const strangers = 40
	synctest.Test(t, func(t *testing.T) {
		var under, most atomic.Int32
		hangs := &enrollerFunc{enroll: func(ctx context.Context, e tunnel.Enrollment) (string, error) {
			if e.Token == serviceToken {
				return "prod", nil
			}
			n := under.Add(1)
			defer under.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-ctx.Done()
			return "", ctx.Err()
		}}
		counts := &codeCounts{by: map[tunnel.Code]int{}}
		f := &flood{bed: newBed(t, &tunnel.Server{Enroller: hangs, Hooks: tunnel.Hooks{Refused: counts.refused}})}
		key := newKey(t)
		began := time.Now()
		var wg sync.WaitGroup
		for range strangers {
			wg.Go(func() {
				if answer := f.enrol("it.hangs.on", key); answer.Code != uint64(tunnel.CodeTimeout) && answer.Code != uint64(tunnel.CodeTooManyStreams) {
					t.Errorf("got %+v, want a refusal", answer)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the last one was told after %v", took)
		}
		if most.Load() != 4 || under.Load() != 0 {
			t.Errorf("got %d calls at once, %d in the end; want 4, 0", most.Load(), under.Load())
		}
		if answer := f.enrol(serviceToken, key); answer.Code != 0 {
			t.Errorf("afterwards: got %+v", answer)
		}
	})
}

// TestEnrollerSources: a source whose calls all hang delays no other one, and all sources
// together have a limit.
func TestEnrollerSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var under atomic.Int32
		hangs := &enrollerFunc{enroll: func(ctx context.Context, e tunnel.Enrollment) (string, error) {
			under.Add(1)
			defer under.Add(-1)
			if e.Token == serviceToken {
				return "prod", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		}}
		s := newTunnelServer(t, &tunnel.MemoryStore{})
		s.registrar.SetEnroller(hangs)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		from := func(n int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 32)
		}
		ask := func(ctx context.Context, n int, token string) error {
			_, err := s.registrar.AskEnroller(ctx, from(n), tunnel.Enrollment{Token: token})
			return err
		}
		hang := func(source, n int) {
			for range n {
				wg.Go(func() {
					if err := ask(ctx, source, "it.hangs.on"); err == nil {
						t.Error("got no error")
					}
				})
			}
			synctest.Wait()
		}
		hang(1, 300)
		if n := under.Load(); n != 4 {
			t.Errorf("got %d calls at once of one source, want 4", n)
		}
		if err := ask(ctx, 2, serviceToken); err != nil {
			t.Errorf("another source: got %v", err)
		}
		for n := range 20 {
			hang(10+n, 10)
		}
		if n := under.Load(); n != 32 {
			t.Errorf("got %d calls at once, want 32", n)
		}
		cancel()
		wg.Wait()
		if n := s.registrar.Sources(); n != 0 {
			t.Errorf("%d sources are remembered, want none", n)
		}
	})
}

// TestAgentJoins: an agent with such a token enrols, comes back after it has lost its
// credentials or was revoked, and does not hurry while it is refused.
func TestAgentJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuse atomic.Bool
		enroller := &enrollerFunc{enroll: func(context.Context, tunnel.Enrollment) (string, error) {
			if refuse.Load() {
				return "", errIssuer
			}
			return testCluster, nil
		}}
		b := newBed(t, &tunnel.Server{Enroller: enroller})
		inv := tunnel.Invitation{Token: serviceToken, Pin: b.s.Authority.Pin()}
		invitation := func(context.Context) (tunnel.Invitation, error) { return inv, nil }
		b.agent(&tunnel.Agent{Invitation: invitation}).stop()
		b.start(&tunnel.Agent{Invitation: invitation}) // with no credentials again
		first := b.await()
		if err := b.s.Revoke(t.Context(), tunnel.Identity{Cluster: testCluster, Agent: first.Agent}); err != nil {
			t.Fatal(err)
		}
		if again := b.await(); again.Agent == first.Agent {
			t.Errorf("got the agent %s again", again.Agent)
		}
		refuse.Store(true)
		before := enroller.calls.Load()
		if err := b.s.RevokeCluster(t.Context(), testCluster); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := enroller.calls.Load() - before; n < 10 || n > 100 {
			t.Errorf("got %d attempts in 10 minutes, want one in 15 s or so", n)
		}
		refuse.Store(false)
		b.await()
		b.echo().Close()
	})
}

// TestEnrollmentText: no verb and no encoding prints the token.
func TestEnrollmentText(t *testing.T) {
	e := tunnel.Enrollment{Cluster: "prod", Token: serviceToken}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q", e, e, e, e, &e), string(must(json.Marshal(e))(t))} {
		if strings.Contains(text, serviceToken) || !strings.Contains(text, "prod") {
			t.Errorf("got %s", text)
		}
	}
	inv := tunnel.Invitation{Cluster: "prod", Token: serviceToken, Pin: newAuthority(t).Pin()}
	again, err := tunnel.ParseInvitation(inv.Reveal())
	if err != nil || again.Token != inv.Token {
		t.Errorf("got %v, %v from the text, want the token again", again, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", inv, inv, again); strings.Contains(text, serviceToken) {
		t.Errorf("got %s", text)
	}
	for _, token := range []string{"a b.c.d", "x.y." + strings.Repeat("z", 8189), "ü.m.l", "causeway1.x.y"} {
		inv.Token = token
		if _, err := tunnel.ParseInvitation(inv.Reveal()); codeIn(err) != tunnel.CodeConfig || strings.Contains(err.Error(), token) {
			t.Errorf("%.20q: got %v, want %v", token, err, tunnel.CodeConfig)
		}
	}
}

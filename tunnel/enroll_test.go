package tunnel_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

func TestEnroll(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	for _, cluster := range []string{"prod", "default/prod", "ümläut%2F/a%"} {
		key := newKey(t)
		c, id, err, hookErr := s.enroll(s.invite(cluster), key)
		if err := errors.Join(err, hookErr); err != nil {
			t.Fatal(err)
		}
		if id.Cluster != cluster || len(id.Agent) != 16 || c.Identity() != id {
			t.Errorf("got %v, and %v in the certificate; want cluster %s and an agent of 16 characters", id, c.Identity(), cluster)
		}
		cert := c.Chain[0]
		if !key.PublicKey.Equal(cert.PublicKey) || len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.EmailAddresses) > 0 || len(cert.URIs) != 1 || cert.IsCA {
			t.Errorf("got a certificate for something else than the key and one URI: %v", cert.URIs)
		}
		if want := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}; !slices.Equal(cert.ExtKeyUsage, want) {
			t.Errorf("got usages %v, want %v", cert.ExtKeyUsage, want)
		}
		if cert.KeyUsage != x509.KeyUsageDigitalSignature || len(cert.Extensions) != 4 {
			t.Errorf("got key usage %v, %d extensions; want %v, 4", cert.KeyUsage, len(cert.Extensions), x509.KeyUsageDigitalSignature)
		}
		if age := time.Since(cert.NotBefore); age < tunnel.Backdate || age > tunnel.Backdate+time.Minute {
			t.Errorf("the certificate began %v ago, want %v", age, tunnel.Backdate)
		}
		if life := time.Until(cert.NotAfter); life > tunnel.DefaultLife || life < tunnel.DefaultLife-time.Minute {
			t.Errorf("the certificate lives for %v, want %v", life, tunnel.DefaultLife)
		}
		if got, err := s.connect(c); err != nil || got != id {
			t.Errorf("got %v, %v in a session, want %v", got, err, id)
		}
	}
}

// request is an enrolment in the making, by an agent that knows its way.
type request struct {
	key     crypto.Signer
	request []byte                         // instead of one of key
	proven  []byte                         // instead of the request, for the proof
	proof   func([]byte) []byte            // changes it
	edit    func(*wire.Message)            // adds to the message
	token   func(tunnel.Invitation) string // instead of the invitation's
	cluster string                         // instead of the invitation's
	server  func(*tunnelServer, tunnel.Invitation)
	version uint64        // instead of 1
	life    time.Duration // of the token
}

func TestEnrollRefuses(t *testing.T) {
	rsaKey := func(bits int) crypto.Signer { return must(rsa.GenerateKey(rand.Reader, bits))(t) }
	p224 := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))(t)
	spent := func(s *tunnelServer, inv tunnel.Invitation) {
		if _, _, err, _ := s.enroll(inv, newKey(s.t)); err != nil {
			s.t.Error(err)
		}
	}
	tests := []struct {
		name  string
		r     request
		want  tunnel.Code
		spent bool
	}{
		{"none of it wrong", request{}, 0, true},
		{"no token", request{token: func(tunnel.Invitation) string { return "" }}, tunnel.CodeTokenUnknown, false},
		{"expired", request{life: time.Minute, server: func(s *tunnelServer, _ tunnel.Invitation) { s.setAhead(time.Minute) }}, tunnel.CodeTokenExpired, false},
		{"another cluster's", request{cluster: "staging"}, tunnel.CodeWrongCluster, false},
		{"used by another key", request{server: spent}, tunnel.CodeTokenUsed, true},
		{"version 2", request{version: 2}, tunnel.CodeVersion, false},
		{"no request", request{request: []byte{}}, tunnel.CodeBadProof, false},
		{"garbage for a request", request{request: []byte("not DER")}, tunnel.CodeBadProof, false},
		{"huge request", request{request: make([]byte, 20<<10)}, tunnel.CodeBadProof, false},
		{"huge message", request{edit: func(m *wire.Message) { m.AddBytes(999, make([]byte, 32<<10)) }}, tunnel.CodeBadRequest, false},
		{"no proof", request{proof: func([]byte) []byte { return nil }}, tunnel.CodeBadProof, false},
		{"spoilt proof", request{proof: func(p []byte) []byte { p[len(p)-1] ^= 1; return p }}, tunnel.CodeBadProof, false},
		{"P-224", request{key: p224}, tunnel.CodeBadProof, false},
		{"RSA 1024", request{key: rsaKey(1024)}, tunnel.CodeBadProof, false},
		{"store out of order", request{server: func(s *tunnelServer, _ tunnel.Invitation) {
			s.registrar = tunnel.NewRegistrar(s.authority.Load, brokenStore{s.store}, 0, s.now)
		}}, tunnel.CodeInternal, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newTunnelServer(t, &tunnel.MemoryStore{})
			inv := s.inviteFor("prod", test.r.life)
			code, hookErr := test.r.send(s, inv)
			if code != test.want || test.want != 0 && codeIn(hookErr) != test.want {
				t.Errorf("got %v, and the server %v; want %v", code, hookErr, test.want)
			}
			if key := spentFor(t, s.store, inv.Token); (key != "") != test.spent {
				t.Errorf("token spent: %t, want %t", key != "", test.spent)
			}
		})
	}
}

// send makes the message and returns the answer's code.
func (r request) send(s *tunnelServer, inv tunnel.Invitation) (tunnel.Code, error) {
	t := s.t
	if r.server != nil {
		r.server(s, inv)
	}
	a, b := s.link(tunnel.EnrollTLS(inv.Pin))
	stateA, stateB := a.ConnectionState(), b.ConnectionState()
	key := r.key
	if key == nil {
		key = newKey(t)
	}
	token, cluster := inv.Token, inv.Cluster
	if r.token != nil {
		token = r.token(inv)
	}
	if r.cluster != "" {
		cluster = r.cluster
	}
	m := wire.New(wire.MsgEnroll).AddUint(wire.TagVersion, max(r.version, 1)).AddString(wire.TagToken, token).AddString(wire.TagCluster, cluster)
	csr := r.request
	if csr == nil {
		csr = must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key))(t)
	}
	proven := r.proven
	if proven == nil {
		proven = csr
	}
	proof := must(wire.Prove(&stateA, proven, key))(t)
	if r.proof != nil {
		proof = r.proof(proof)
	}
	m.AddBytes(wire.TagRequest, csr).AddBytes(wire.TagProof, proof)
	if r.edit != nil {
		r.edit(m)
	}
	out, _, err := s.registrar.Enroll(t.Context(), &stateB, m)
	if (tunnel.Code(out.Uint(wire.TagCode)) == 0) != (err == nil) || strings.Contains(string(out.Bytes(wire.TagText)), errBroken.Error()) {
		t.Errorf("got the answer %v %q and the error %v", tunnel.Code(out.Uint(wire.TagCode)), out.Bytes(wire.TagText), err)
	}
	return tunnel.Code(out.Uint(wire.TagCode)), err
}

// TestEnrollStolenRequest: someone has an agent's token, request and proof,
// all of them valid, and sends them on a connection of their own.
func TestEnrollStolenRequest(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	inv := s.invite("prod")
	a, _ := s.link(tunnel.EnrollTLS(inv.Pin))
	stateA := a.ConnectionState()
	m := wire.New(wire.MsgEnroll).AddUint(wire.TagVersion, 1).AddString(wire.TagToken, inv.Token)
	if err := m.AddRequest(&stateA, newKey(t)); err != nil {
		t.Fatal(err)
	}
	_, thief := s.link(tunnel.EnrollTLS(inv.Pin))
	state := thief.ConnectionState()
	out, _, err := s.registrar.Enroll(t.Context(), &state, m)
	if tunnel.Code(out.Uint(wire.TagCode)) != tunnel.CodeBadProof || codeIn(err) != tunnel.CodeBadProof {
		t.Errorf("got %v, %v; want %v", tunnel.Code(out.Uint(wire.TagCode)), err, tunnel.CodeBadProof)
	}
	if spentFor(t, s.store, inv.Token) != "" {
		t.Error("the thief spent the token")
	}
}

// TestEnrollAgain: an answer was lost, and the agent asks once more.
func TestEnrollAgain(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	inv, key := s.inviteFor("prod", time.Minute), newKey(t)
	_, first, err, _ := s.enroll(inv, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, second, err, _ := s.enroll(inv, key); err != nil || second != first {
		t.Errorf("got %v, %v; want %v again", second, err, first)
	}
	if _, _, err, _ := s.enroll(inv, newKey(t)); codeIn(err) != tunnel.CodeTokenUsed {
		t.Errorf("another key: got %v, want %v", err, tunnel.CodeTokenUsed)
	}
	s.setAhead(time.Minute)
	if _, _, err, _ := s.enroll(inv, key); codeIn(err) != tunnel.CodeTokenExpired {
		t.Errorf("a minute later: got %v, want %v", err, tunnel.CodeTokenExpired)
	}
	s.setAhead(0)
	if _, err := recordsOf(s.store).Revoke(t.Context(), first, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, _, err, _ := s.enroll(inv, key); codeIn(err) != tunnel.CodeRevoked {
		t.Errorf("revoked: got %v, want %v", err, tunnel.CodeRevoked)
	}
}

// TestEnrollOnSession: an enrolment has a protocol of its own.
func TestEnrollOnSession(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	inv := s.invite("prod")
	a, b := s.link(s.enrolled("prod").TLSConfig())
	stateA, stateB := a.ConnectionState(), b.ConnectionState()
	m := wire.New(wire.MsgEnroll).AddUint(wire.TagVersion, 1).AddString(wire.TagToken, inv.Token)
	if err := m.AddRequest(&stateA, newKey(t)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.registrar.Enroll(t.Context(), &stateB, m); codeIn(err) != tunnel.CodeBadRequest {
		t.Errorf("got %v, want %v", err, tunnel.CodeBadRequest)
	}
}

// TestEnrollKeys: the kinds of key that an agent may have.
func TestEnrollKeys(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{
		"P-384":    must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t),
		"Ed25519":  ed,
		"RSA 2048": must(rsa.GenerateKey(rand.Reader, 2048))(t),
	} {
		c, id, err, hookErr := s.enroll(s.invite("prod"), key)
		if err := errors.Join(err, hookErr); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := s.connect(c); err != nil || got != id {
			t.Errorf("%s: got %v, %v; want %v", name, got, err, id)
		}
	}
}

func TestInviteRefuses(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	for _, test := range []struct {
		cluster string
		life    time.Duration
	}{{"", 0}, {"a b", 0}, {strings.Repeat("x", 600), 0}, {"prod", -1}} {
		if inv, err := s.registrar.Invite(t.Context(), test.cluster, test.life); codeIn(err) != tunnel.CodeConfig || inv.Token != "" {
			t.Errorf("%.20q for %v: got %v, want %v", test.cluster, test.life, err, tunnel.CodeConfig)
		}
	}
}

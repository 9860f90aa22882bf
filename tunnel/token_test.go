package tunnel_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// countingStore counts the questions about tokens and agents.
type countingStore struct {
	tunnel.MemoryStore
	claims, revoked atomic.Int64
}

func (s *countingStore) Get(ctx context.Context, kind tunnel.Kind, name string) (tunnel.Record, error) {
	if kind == tunnel.KindToken {
		s.claims.Add(1)
	} else {
		s.revoked.Add(1)
	}
	return s.MemoryStore.Get(ctx, kind, name)
}

func (s *countingStore) asked() int64 { return s.claims.Load() + s.revoked.Load() }

// remoteKey is the key of an authority as a key management service gives it: it
// signs a digest by the one algorithm that the key was made for, and that is all.
type remoteKey struct {
	key  crypto.Signer
	hash crypto.Hash
}

func (k remoteKey) Public() crypto.PublicKey { return k.key.Public() }

func (k remoteKey) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if _, pss := opts.(*rsa.PSSOptions); pss || opts.HashFunc() != k.hash || k.hash != 0 && len(digest) != k.hash.Size() {
		return nil, errors.New("the key does not allow this algorithm")
	}
	return k.key.Sign(r, digest, opts)
}

// authorityOf makes an authority as another program would.
func authorityOf(t testing.TB, key crypto.Signer) *tunnel.Authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	return &tunnel.Authority{Certificate: must(x509.ParseCertificate(der))(t), Key: key}
}

// authorityKeys are keys of every kind, which only sign.
func authorityKeys(t testing.TB) map[string]remoteKey {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	curve := func(c elliptic.Curve) crypto.Signer { return must(ecdsa.GenerateKey(c, rand.Reader))(t) }
	return map[string]remoteKey{
		"ECDSA P-256": {curve(elliptic.P256()), crypto.SHA256},
		"ECDSA P-384": {curve(elliptic.P384()), crypto.SHA384},
		"ECDSA P-521": {curve(elliptic.P521()), crypto.SHA512},
		"Ed25519":     {ed, 0},
		"RSA 2048":    {must(rsa.GenerateKey(rand.Reader, 2048))(t), crypto.SHA256},
	}
}

// TestTokenAuthorities: one replica invites, another one, which has the same
// authority and Store, enrols. The sizes are those of SPEC.md.
func TestTokenAuthorities(t *testing.T) {
	sizes := map[string]int{"ECDSA P-256": 153, "ECDSA P-384": 196, "ECDSA P-521": 243, "Ed25519": 143, "RSA 2048": 399}
	for name, key := range authorityKeys(t) {
		a := authorityOf(t, key)
		inviting := newTunnelServer(t, &tunnel.MemoryStore{})
		inviting.authority.Store(a)
		enrolling := newTunnelServer(t, inviting.store)
		enrolling.authority.Store(a)
		inv := inviting.invite("default/prod")
		if len(inv.Token) > sizes[name] {
			t.Errorf("%s: got a token of %d characters, want %d at most", name, len(inv.Token), sizes[name])
		}
		if again, err := tunnel.ParseInvitation(inv.Reveal()); err != nil || again.Token != inv.Token {
			t.Errorf("%s: the invitation's text: %v", name, err)
		}
		c, id, err, hookErr := enrolling.enroll(inv, newKey(t))
		if err := errors.Join(err, hookErr); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := inviting.connect(c); err != nil || got != id {
			t.Errorf("%s: got %v, %v; want %v", name, got, err, id)
		}
	}
}

// refusedTokens are made from a good token of the server; none is to be taken.
func refusedTokens(t testing.TB, s *tunnelServer, good string) map[string]string {
	body, signature := tokenParts(t, good)
	a := s.authority.Load()
	key := a.Key.(*ecdsa.PrivateKey)
	changed := func(at int, xor byte) string {
		b := slices.Clone(body)
		b[at] ^= xor
		return tokenText(b, signature)
	}
	signed := func(body, preimage []byte) string {
		sum := sha256.Sum256(preimage)
		return tokenText(body, must(ecdsa.SignASN1(rand.Reader, key, sum[:]))(t))
	}
	longer := slices.Clone(body)
	binary.BigEndian.PutUint64(longer[10:], uint64(time.Now().AddDate(1, 0, 0).UnixMilli()))
	spoilt := slices.Clone(signature)
	spoilt[len(spoilt)-1] ^= 1
	noCluster, long := body[:22], slices.Concat(body[:22], []byte(strings.Repeat("x", 600)))
	label := "causeway token 1\x00"
	parts := strings.Split(good, ".")
	return map[string]string{
		"id changed":                 changed(0, 1),
		"expiry changed":             tokenText(longer, signature),
		"authority changed":          changed(18, 1),
		"cluster changed":            changed(len(body)-1, 1),
		"cluster appended":           tokenText(append(slices.Clone(body), 'x'), signature),
		"signature changed":          tokenText(body, spoilt),
		"signature cut":              tokenText(body, signature[:30]),
		"signature of a certificate": tokenText(a.Certificate.RawTBSCertificate, a.Certificate.Signature),
		"signed without the label":   signed(body, body),
		"signed for a proof":         signed(body, append([]byte("causeway proof 1\x00"), body...)),
		"no cluster":                 signed(noCluster, append([]byte(label), noCluster...)),
		"cluster too long":           signed(long, append([]byte(label), long...)),
		"no signature":               tokenText(body, nil),
		"by another's key":           otherToken(t, body),
		"version 2":                  strings.Replace(good, "causeway1.", "causeway2.", 1),
		"no version":                 strings.TrimPrefix(good, "causeway1."),
		"the form before":            oldTokenText,
		"body alone":                 "causeway1." + parts[1],
		"line end behind it":         good + "\n",
		"line end in it":             parts[0] + "." + parts[1] + "\n." + parts[2],
		"padding":                    good + "=",
		"a third part":               good + ".AA",
		"standard base64":            parts[0] + "." + parts[1] + ".+/+/",
		"path":                       "../../../../etc/passwd",
		"huge":                       tokenText(body, make([]byte, 4<<10)),
		"nothing":                    "",
	}
}

// otherToken has the same body, the fingerprint in it included, signed by the
// key of somebody else.
func otherToken(t testing.TB, body []byte) string {
	sum := sha256.Sum256(append([]byte("causeway token 1\x00"), body...))
	return tokenText(body, must(ecdsa.SignASN1(rand.Reader, newKey(t), sum[:]))(t))
}

// TestTokenRefused: what no authority of the server signed, and what can't be
// spent for other reasons, costs no question to the Store and says why.
func TestTokenRefused(t *testing.T) {
	store := &countingStore{}
	s := newTunnelServer(t, store)
	inv, staging := s.invite("prod"), s.invite("staging")
	s.setAhead(-2 * time.Hour)
	old := s.invite("prod")
	s.setAhead(0)
	other := newTunnelServer(t, store)
	foreign := other.invite("prod")
	type row struct {
		token string
		code  tunnel.Code
		says  string
	}
	rows := map[string]row{
		"of another authority": {foreign.Token, tunnel.CodeTokenUnknown, "another authority"},
		"expired":              {old.Token, tunnel.CodeTokenExpired, "it ended at 20"},
		"of another cluster":   {staging.Token, tunnel.CodeWrongCluster, ""},
	}
	for name, token := range refusedTokens(t, s, inv.Token) {
		says := "token"
		switch {
		case name == "the form before":
			says = "make a new invitation"
		case strings.Contains(name, "signed"), strings.HasPrefix(name, "signature c"), name == "by another's key":
			says = "signature is wrong"
		}
		if name == "signature of a certificate" {
			says = "not a token"
		}
		rows[name] = row{token, tunnel.CodeTokenUnknown, says}
	}
	invited := store.asked()
	for name, row := range rows {
		code, err := request{token: func(tunnel.Invitation) string { return row.token }}.send(s, inv)
		if code != row.code || err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: got %v, %v; want %v and %q", name, code, err, row.code, row.says)
			continue
		}
		for _, part := range strings.Split(row.token, ".") {
			if len(part) > 20 && strings.Contains(err.Error(), part) {
				t.Errorf("%s: a part of the token is in %v", name, err)
			}
		}
	}
	// A good token with a bad proof.
	if code, err := (request{proof: func([]byte) []byte { return nil }}).send(s, inv); code != tunnel.CodeBadProof {
		t.Errorf("no proof: got %v, %v; want %v", code, err, tunnel.CodeBadProof)
	}
	if n := store.asked() - invited; n != 0 {
		t.Errorf("the Store was asked %d times, want never", n)
	}
	if code, err := (request{}).send(s, inv); code != 0 || store.asked()-invited != 3 {
		t.Errorf("the token itself: got %v, %v after %d questions, want none and 3", code, err, store.asked()-invited)
	}
}

// TestTokenOtherSignature: ECDSA has two signatures for each that is made. They
// are one token.
func TestTokenOtherSignature(t *testing.T) {
	s := newTunnelServer(t, &countingStore{})
	inv := s.invite("prod")
	body, signature := tokenParts(t, inv.Token)
	var rs struct{ R, S *big.Int }
	must(asn1.Unmarshal(signature, &rs))(t)
	rs.S.Sub(elliptic.P256().Params().N, rs.S)
	twin := inv
	twin.Token = tokenText(body, must(asn1.Marshal(rs))(t))
	if _, _, err, _ := s.enroll(inv, newKey(t)); err != nil {
		t.Fatal(err)
	}
	if _, _, err, _ := s.enroll(twin, newKey(t)); codeIn(err) != tunnel.CodeTokenUsed {
		t.Errorf("got %v, want %v", err, tunnel.CodeTokenUsed)
	}
}

// TestTokenRollover: tokens of an authority are good while it is trusted,
// whichever signs.
func TestTokenRollover(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	store := &countingStore{}
	s := newTunnelServer(t, store)
	steps := []struct {
		name   string
		now    *tunnel.Authority
		by     *tunnel.Authority // of the token
		signed bool
	}{
		{"before, by the next", a, b, false},
		{"first step, by the next", &tunnel.Authority{Certificate: a.Certificate, Key: a.Key, Trusted: []*x509.Certificate{b.Certificate}}, b, true},
		{"second step, by the former", &tunnel.Authority{Certificate: b.Certificate, Key: b.Key, Trusted: []*x509.Certificate{a.Certificate}}, a, true},
		{"third step, by the former", b, a, false},
	}
	for _, step := range steps {
		s.authority.Store(step.by)
		inv := s.invite("prod")
		s.authority.Store(step.now)
		before := store.asked()
		// An agent that has the pin of the authority that made the token turns away
		// in the second step. This one is told the new pin.
		inv.Pin = step.now.Pin()
		_, _, err, hookErr := s.enroll(inv, newKey(t))
		if step.signed && errors.Join(err, hookErr) != nil {
			t.Errorf("%s: got %v", step.name, errors.Join(err, hookErr))
		}
		if !step.signed && (codeIn(err) != tunnel.CodeTokenUnknown || !strings.Contains(err.Error(), "another authority") || store.asked() != before) {
			t.Errorf("%s: got %v after %d questions to the Store", step.name, err, store.asked()-before)
		}
	}
}

// TestInviteKeyFails: the key can't be reached. Nothing is in the Store then.
func TestInviteKeyFails(t *testing.T) {
	key := newKey(t)
	a := authorityOf(t, key)
	a.Key = remoteKey{key, crypto.SHA1} // refuses
	s := newTunnelServer(t, brokenStore{&tunnel.MemoryStore{}})
	s.authority.Store(a)
	if inv, err := s.registrar.Invite(t.Context(), "prod", 0); codeIn(err) != tunnel.CodeInternal || !strings.Contains(err.Error(), "does not allow") || inv.Token != "" {
		t.Errorf("got %v, want the key's error", err)
	}
}

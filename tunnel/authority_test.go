package tunnel_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

func TestAuthority(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	a.Trusted = []*x509.Certificate{b.Certificate}
	der := must(x509.MarshalPKIXPublicKey(a.Key.Public()))(t)
	sum := sha256.Sum256(der)
	if want := "sha256:" + hex.EncodeToString(sum[:]); a.Pin() != want || tunnel.Pin(a.Certificate) != want {
		t.Errorf("got pin %s, want %s", a.Pin(), want)
	}
	if years := time.Until(a.Certificate.NotAfter).Hours() / 24 / 365; years < 9.99 || years > 10.1 {
		t.Errorf("got %v years, want ten", years)
	}
	if time.Since(a.Certificate.NotBefore) < tunnel.Backdate {
		t.Error("the authority is not backdated")
	}
	cert, key, err := a.PEM()
	if err != nil {
		t.Fatal(err)
	}
	got, err := tunnel.ParseAuthority(cert, key)
	if err != nil || !got.Certificate.Equal(a.Certificate) || len(got.Trusted) != 1 || !got.Trusted[0].Equal(b.Certificate) || got.Pin() != a.Pin() {
		t.Errorf("got %v, %v; want %v", got, err, a)
	}
	_, otherKey, err := b.PEM()
	if err != nil {
		t.Fatal(err)
	}
	agent := leaf(t, a, a.Key, nil)
	signs := leaf(t, a, a.Key, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign })
	for name, test := range map[string][2][]byte{
		"no certificate":  {nil, key},
		"no key":          {cert, nil},
		"another key":     {cert, otherKey},
		"key for both":    {key, key},
		"garbage for key": {cert, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")},
		"no authority":    {pemCertificate(agent), key},
		"none that signs": {pemCertificate(signs), key},
	} {
		if got, err := tunnel.ParseAuthority(test[0], test[1]); codeIn(err) != tunnel.CodeConfig || got != nil {
			t.Errorf("%s: got %v, %v; want %v", name, got, err, tunnel.CodeConfig)
		}
	}
}

// TestAuthorityEnds: no certificate outlives the authority, or is of one that
// ended or is not whole.
func TestAuthorityEnds(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	a := s.authority.Load()
	short := *a.Certificate
	short.NotAfter = time.Now().Add(time.Hour).Truncate(time.Second)
	s.authority.Store(&tunnel.Authority{Certificate: &short, Key: a.Key})
	if c := s.enrolled("prod"); !c.Expires().Equal(short.NotAfter) {
		t.Errorf("got a certificate until %v, want %v", c.Expires(), short.NotAfter)
	}
	for name, bad := range map[string]*tunnel.Authority{"none": nil, "empty": {}, "no key": {Certificate: a.Certificate}, "no certificate": {Key: a.Key}, "ended": {Certificate: ended(a.Certificate), Key: a.Key}} {
		s.authority.Store(bad)
		if _, err := s.registrar.TLSConfig().GetCertificate(nil); err == nil {
			t.Errorf("%s: the server has a certificate", name)
		}
	}
}

func ended(c *x509.Certificate) *x509.Certificate {
	c2 := *c
	c2.NotAfter = time.Now().Add(-time.Second)
	c2.Raw = []byte("another") // for Equal
	return &c2
}

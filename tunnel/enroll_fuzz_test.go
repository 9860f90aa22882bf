package tunnel_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
)

// FuzzEnroll sends anything as an enrolment. Whatever it is, it is answered;
// and a certificate is only for the key that the token was then spent for.
func FuzzEnroll(f *testing.F) {
	s := newTunnelServer(f, &tunnel.MemoryStore{})
	inv := s.invite("prod")
	a, b := s.link(tunnel.EnrollTLS(inv.Pin))
	stateA, stateB := a.ConnectionState(), b.ConnectionState()
	m := tunnel.NewEnrolMessage(tunnel.MsgEnroll).Uint(tunnel.TagVersion, 1).String(tunnel.TagToken, inv.Token)
	if err := m.AddRequest(&stateA, newKey(f)); err != nil {
		f.Fatal(err)
	}
	var wire bytes.Buffer
	if err := tunnel.WriteEnrol(&wire, m); err != nil {
		f.Fatal(err)
	}
	f.Add(wire.Bytes())
	f.Add(wire.Bytes()[:80])
	f.Add([]byte{0, 32, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		m, err := tunnel.ReadEnrol(bytes.NewReader(wire), tunnel.MaxEnroll)
		if err != nil {
			return
		}
		out, id, err := s.enroller.Enroll(t.Context(), &stateB, m)
		if out.Kind() != tunnel.MsgIssued || out.Check() != nil || (out.Code() == 0) != (err == nil) {
			t.Fatalf("got %v %v, and %v", out.Kind(), out.Code(), err)
		}
		if err != nil {
			if codeIn(err) == 0 || codeIn(err) == tunnel.CodeInternal {
				t.Errorf("got %v, want a code", err)
			}
			return
		}
		cert := must(x509.ParseCertificate(out.Get(tunnel.TagCertificate)))(t)
		sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		if spentFor(t, s.store, inv.Token) != hex.EncodeToString(sum[:]) || id.Cluster != "prod" {
			t.Errorf("a certificate of %v for a key that did not spend the token", id)
		}
	})
}

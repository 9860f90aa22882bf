package tunnel_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// FuzzEnroll sends anything as an enrolment. Whatever it is, it is answered;
// and a certificate is only for the key that the token was then spent for.
func FuzzEnroll(f *testing.F) {
	s := newTunnelServer(f, &tunnel.MemoryStore{})
	inv := s.invite("prod")
	a, b := s.link(tunnel.EnrollTLS(inv.Pin))
	stateA, stateB := a.ConnectionState(), b.ConnectionState()
	m := wire.New(wire.MsgEnroll).AddUint(wire.TagVersion, 1).AddString(wire.TagToken, inv.Token)
	if err := m.AddRequest(&stateA, newKey(f)); err != nil {
		f.Fatal(err)
	}
	f.Add(m.Encode())
	f.Add(m.Encode()[:80])
	f.Add([]byte{0, 32, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		m, err := wire.Read(bytes.NewReader(encoded), tunnel.MaxEnroll)
		if err != nil {
			return
		}
		out, id, err := s.registrar.Enroll(t.Context(), &stateB, m)
		code := tunnel.Code(out.Uint(wire.TagCode))
		_, malformed := wire.Read(bytes.NewReader(out.Encode()), wire.MaxBody)
		if out.Kind != wire.MsgIssued || malformed != nil || (code == 0) != (err == nil) {
			t.Fatalf("got %v %v, and %v", out.Kind, code, err)
		}
		if err != nil {
			if codeIn(err) == 0 || codeIn(err) == tunnel.CodeInternal {
				t.Errorf("got %v, want a code", err)
			}
			return
		}
		cert := must(x509.ParseCertificate(out.Bytes(wire.TagCertificate)))(t)
		sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		if spentFor(t, s.store, inv.Token) != hex.EncodeToString(sum[:]) || id.Cluster != "prod" {
			t.Errorf("a certificate of %v for a key that did not spend the token", id)
		}
	})
}

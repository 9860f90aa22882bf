package wire_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// FuzzToken reads anything as a token. What is read has that one text; and only
// what the authority signed is verified. Ed25519 has one signature for each text.
func FuzzToken(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		f.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		f.Fatal(err)
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	var good []string
	for _, cluster := range []string{"a", "default/prod", "ümläut%2F/a%", strings.Repeat("x", 507)} {
		body := slices.Concat([]byte(cluster + "0123456789")[:10], []byte{0, 0, 1, 0x9b, 0, 0, 0, 0}, sum[:4], []byte(cluster))
		good = append(good, tokenText(body, ed25519.Sign(key, append([]byte("causeway token 1\x00"), body...))))
	}
	for n, token := range good {
		if again, err := readToken(token, cert); err != nil || again != token {
			f.Fatalf("seed %d: got %v", n, err)
		}
		f.Add(token)
		f.Add(token[:len(token)-1])
	}
	f.Add("causeway1.EBESExQVFhcYGQAAAZt8qYyI3q2-72RlZmF1bHQvcHJvZA.AwoRGB8mLTQ7QklQV15lbHN6gYiPlp2kq7K5wMfO1dzj6vH4_wYNFBsiKTA3PkVMU1phaG92fYSLkpmgp661vMPK0djf5g")
	f.Add("abcdefghijklmnop.abcdefghijklmnopqrstuvwxyz234567" /* before there were signatures */)
	f.Add("causeway1.AA.AA")
	f.Fuzz(func(t *testing.T, text string) {
		again, err := readToken(text, cert)
		if again != "" && again != text {
			t.Errorf("got another text for %q: %q", text, again)
		}
		if err == nil && !slices.Contains(good, text) {
			t.Errorf("nobody signed %q", text)
		}
		if err != nil && len(text) > 40 && strings.Contains(err.Error(), text[20:]) {
			t.Errorf("the token is in %v", err)
		}
	})
}

// readToken reads a token, and makes its text again from the fields. The error
// says why it is none, or not signed by the authority.
func readToken(text string, authority *x509.Certificate) (again string, err error) {
	t, err := wire.ParseToken(text)
	if err != nil {
		return "", err
	}
	id, err := wire.Base32.DecodeString(t.ID)
	if err != nil {
		return "", err
	}
	body := binary.BigEndian.AppendUint64(id, uint64(t.Expires.UnixMilli()))
	body = slices.Concat(body, t.Authority, []byte(t.Cluster))
	return tokenText(body, t.Signature), t.Verify([]*x509.Certificate{authority})
}

func tokenText(body, signature []byte) string {
	encode := base64.RawURLEncoding.EncodeToString
	return "causeway1." + encode(body) + "." + encode(signature)
}

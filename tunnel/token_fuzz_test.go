package tunnel_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// FuzzToken reads anything as a token. What is read has that one text; and only
// what the authority signed is verified. Ed25519 has one signature for each text.
func FuzzToken(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)}
	cert, err := x509.ParseCertificate(must(x509.CreateCertificate(nil, template, template, key.Public(), key))(f))
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
		if again, err := tunnel.ReadToken(token, cert); err != nil || again != token {
			f.Fatalf("seed %d: got %v", n, err)
		}
		f.Add(token)
		f.Add(token[:len(token)-1])
	}
	f.Add(testTokenText)
	f.Add(oldTokenText)
	f.Add("causeway1.AA.AA")
	f.Fuzz(func(t *testing.T, text string) {
		again, err := tunnel.ReadToken(text, cert)
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

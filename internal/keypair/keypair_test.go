package keypair_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/keypair"
	"github.com/causewayproject/causeway/internal/test/pki"
)

const tooLarge = "the private key is too large: want RSA with at most 8192 bits"

// rsaDER is a PKCS #1 key whose numbers have so many bits, and no primes.
func rsaDER(t *testing.T, modulus, other int) []byte {
	t.Helper()
	number := func(bits int) *big.Int { return new(big.Int).SetBit(big.NewInt(1), bits-1, 1) }
	return marshalASN1(t, struct {
		Version                         int
		N, E, D, P, Q, Dp, Dq, Inverted *big.Int
	}{0, number(modulus), big.NewInt(65537), number(other), number(other), number(other), number(other), number(other), number(other)})
}

func marshalASN1(t *testing.T, v any) []byte {
	t.Helper()
	der, err := asn1.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func pkcs8(t *testing.T, inner []byte) []byte {
	return marshalASN1(t, struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}{0, pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, Parameters: asn1.NullRawValue}, inner})
}

// openSSH is an RSA key of OpenSSH's own format.
func openSSH(modulus, other int) []byte {
	text := func(b ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }
	number := func(bits int) []byte { return text(append([]byte{0, 0x80}, make([]byte, bits/8-1)...)...) }
	private := make([]byte, 8)
	for _, field := range [][]byte{text([]byte("ssh-rsa")...), number(modulus), number(24), number(other), number(other), number(other), number(other), text(bytes.Repeat([]byte("c"), 2000)...)} {
		private = append(private, field...)
	}
	all := []byte("openssh-key-v1\x00")
	for _, field := range [][]byte{text([]byte("none")...), text([]byte("none")...), text(), {0, 0, 0, 1}, text(), text(append(private, 1, 2, 3)...)} {
		all = append(all, field...)
	}
	return all
}

func TestCheck(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, kind string
		der        []byte
		want       string
	}{
		{"PKCS #1", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(small), ""},
		{"PKCS #1 of 8,192 bits", "RSA PRIVATE KEY", rsaDER(t, 8192, 4096), ""},
		{"one bit more", "RSA PRIVATE KEY", rsaDER(t, 8193, 4096), tooLarge},
		{"of 32,768", "RSA PRIVATE KEY", rsaDER(t, 32768, 16384), tooLarge},
		{"a small modulus, large primes", "RSA PRIVATE KEY", rsaDER(t, 2048, 16384), tooLarge},
		{"a block of another type", "EC PRIVATE KEY", rsaDER(t, 32768, 16384), tooLarge},
		{"PKCS #8", "PRIVATE KEY", pkcs8(t, x509.MarshalPKCS1PrivateKey(small)), ""},
		{"PKCS #8 of 32,768", "PRIVATE KEY", pkcs8(t, rsaDER(t, 32768, 16384)), tooLarge},
		{"PKCS #8 in PKCS #8", "PRIVATE KEY", pkcs8(t, pkcs8(t, rsaDER(t, 32768, 16384))), tooLarge},
		{"many numbers", "RSA PRIVATE KEY", append(rsaDER(t, 8192, 8192), make([]byte, 16<<10)...), tooLarge},
		{"OpenSSH", "OPENSSH PRIVATE KEY", openSSH(2048, 1024), ""},
		{"OpenSSH of 8,192 bits", "OPENSSH PRIVATE KEY", openSSH(8192, 4096), ""},
		{"OpenSSH of 32,768", "OPENSSH PRIVATE KEY", openSSH(32768, 16384), tooLarge},
		{"OpenSSH with large primes", "OPENSSH PRIVATE KEY", openSSH(2048, 16384), tooLarge},
		{"no key", "RSA PRIVATE KEY", []byte("junk"), ""},
		{"no OpenSSH key", "OPENSSH PRIVATE KEY", []byte("openssh-key-v1\x00\x00\x00\x00\x04none\xff\xff\xff\xff"), ""},
		{"a certificate", "CERTIFICATE", rsaDER(t, 32768, 16384), ""}, // its public key is CheckPublic's
	} {
		before := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("first")})
		text := append(before, pem.EncodeToMemory(&pem.Block{Type: test.kind, Bytes: test.der})...)
		if got := errorText(keypair.Check(text)); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParseDER(t *testing.T) {
	small, _ := rsa.GenerateKey(rand.Reader, 2048)
	curve, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, edwards, _ := ed25519.GenerateKey(rand.Reader)
	sec1, _ := x509.MarshalECPrivateKey(curve)
	pkcs8EC, _ := x509.MarshalPKCS8PrivateKey(curve)
	pkcs8Ed, _ := x509.MarshalPKCS8PrivateKey(edwards)
	for _, test := range []struct {
		name string
		der  []byte
		want string
	}{
		{"PKCS #1", x509.MarshalPKCS1PrivateKey(small), ""},
		{"SEC 1", sec1, ""},
		{"PKCS #8, EC", pkcs8EC, ""},
		{"PKCS #8, Ed25519", pkcs8Ed, ""},
		{"too large", pkcs8(t, rsaDER(t, 32768, 16384)), tooLarge},
		{"junk", []byte("junk"), "can't be read"},
	} {
		key, err := keypair.ParseDER(test.der)
		if got := errorText(err); (err == nil) != (test.want == "") || !strings.Contains(got, test.want) || (key == nil) != (err != nil) {
			t.Errorf("%s: got %T, %q; want %q", test.name, key, got, test.want)
		}
	}
}

func TestX509(t *testing.T) {
	cert, key := pki.PEM(pki.NewCA("ca").Server("a.test"))
	large := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: rsaDER(t, 32768, 16384)})
	for _, test := range []struct {
		name string
		key  []byte
		want string
	}{
		{"a pair", key, ""},
		{"a large key", large, tooLarge},
		{"a large key behind the right one", append(append([]byte{}, key...), large...), tooLarge},
		{"no key", cert, "want a PEM certificate and its private key"},
	} {
		if _, err := keypair.X509(cert, test.key); errorText(err) != test.want {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

func TestCheckPublic(t *testing.T) {
	small, _ := rsa.GenerateKey(rand.Reader, 2048)
	large := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 16383), E: 65537}
	if err := keypair.CheckPublic(small.Public()); err != nil {
		t.Errorf("2,048 bits: got %v, want nil", err)
	}
	if got, want := errorText(keypair.CheckPublic(large)), "the RSA key has 16384 bits: want at most 8192"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

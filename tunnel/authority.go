package tunnel

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Authority is the tunnel's own certificate authority. It signs the server's
// certificate, the agents' certificates and the tokens of invitations. Its key must
// sign nothing else: any holder of a certificate with the right URI is an agent.
//
// A rollover from an authority A to B has three steps:
//
//  1. The servers run with A, and B in Trusted. Connected agents learn to trust B.
//  2. They run with B, and A in Trusted. From now on B signs.
//  3. After the life of an agent's certificate they run with only B. That ends the
//     sessions of all agents that have no certificate of B.
//
// If the key of A was stolen, go to the third step at once: all agents then need
// new invitations. An invitation has the pin of the authority that signs, so the
// second step makes open invitations useless, although their tokens stay valid while
// A is trusted. [Server.Invitations] then returns them with the pin of B.
//
// An Authority is not changed once it is in use; it is then safe for
// concurrent use, if its Key is.
type Authority struct {
	// Certificate is the authority that signs. Required.
	Certificate *x509.Certificate
	// Key is the key of Certificate: ECDSA, RSA or Ed25519. Only Public and Sign
	// are called, with the same algorithm for a certificate and for a token, so a key
	// management service can hold it. Required.
	Key crypto.Signer
	// Trusted are other authorities to trust: the next or the former one of a
	// rollover. It may be empty.
	Trusted []*x509.Certificate
}

const (
	authorityYears = 10
	// backdate is how long before its signing a certificate begins, for clocks that
	// differ (SPEC.md, section 6).
	backdate = 15 * time.Minute
)

// NewAuthority makes an authority: ECDSA P-256, valid for ten years.
func NewAuthority() (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	sum, err := fingerprint(key.Public())
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		// The name shows people which authority of a rollover it is.
		Subject:               pkix.Name{CommonName: "Causeway tunnel authority " + hex.EncodeToString(sum[:4])},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.AddDate(authorityYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := signCertificate(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Authority{Certificate: cert, Key: key}, nil
}

// ParseAuthority reads an authority in the form that PEM returns: the first
// certificate signs, the others are Trusted. The key is in PKCS #8, PKCS #1 or
// SEC 1. The error is an [*Error] with CodeConfig.
func ParseAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, configError("authority: %w", err)
	}
	var certs []*x509.Certificate
	for _, der := range pair.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, configError("authority: %w", err)
		}
		certs = append(certs, cert)
	}
	a := &Authority{Certificate: certs[0], Trusted: certs[1:]}
	a.Key, _ = pair.PrivateKey.(crypto.Signer)
	if err := a.check(); err != nil {
		return nil, err
	}
	return a, nil
}

// PEM returns the certificates, Certificate first, and the key in PKCS #8. It fails
// if the key cannot be exported.
func (a *Authority) PEM() (cert, key []byte, err error) {
	for _, c := range a.allCertificates() {
		cert = append(cert, encodePEM(pemCertificate, c.Raw)...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(a.Key)
	if err != nil {
		return nil, nil, configError("authority: the key cannot be written: %w", err)
	}
	return cert, encodePEM(pemKey, der), nil
}

// Pin is [Pin] of Certificate, for invitations.
func (a *Authority) Pin() string { return Pin(a.Certificate) }

// Pin returns "sha256:" and the lower-case hex of the SHA-256 of the
// certificate's SubjectPublicKeyInfo.
func Pin(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return pinPrefix + hex.EncodeToString(sum[:])
}

// String returns the pin: no verb of fmt prints the key.
func (a Authority) String() string {
	if a.Certificate == nil {
		return "tunnel.Authority{}"
	}
	return "tunnel.Authority{" + a.Pin() + "}"
}

// Format writes String, whatever the verb.
func (a Authority) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.String()) }

// MarshalText returns String: JSON and logs hold no key.
func (a Authority) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// check returns a config error that names the field.
func (a *Authority) check() error {
	switch {
	case a == nil || a.Certificate == nil:
		return configError("authority: field Certificate is required")
	case a.Key == nil:
		return configError("authority: field Key is required")
	case !sameKey(a.Certificate.PublicKey, a.Key.Public()):
		return configError("authority: field Key is not the key of Certificate")
	}
	for _, c := range a.allCertificates() {
		if c == nil || !c.BasicConstraintsValid || !c.IsCA || c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0 {
			return configError("authority: a certificate that may not sign certificates")
		}
	}
	return nil
}

// allCertificates returns the authorities to trust.
func (a *Authority) allCertificates() []*x509.Certificate {
	return append([]*x509.Certificate{a.Certificate}, a.Trusted...)
}

// addRoots adds them to a message.
func (a *Authority) addRoots(m *wire.Message) *wire.Message {
	for _, c := range a.allCertificates() {
		m.AddBytes(wire.TagRoot, c.Raw)
	}
	return m
}

// issueCertificate signs a certificate that lives from now on, and not longer than the
// authority. It holds no more than it has to, since both ends of a session keep it in
// memory, parsed. Basic constraints, which a leaf does not need, would be the fifth
// extension, and for five crypto/x509 allocates eight. A nil serial number is replaced
// by a random one.
func (a *Authority) issueCertificate(pub crypto.PublicKey, serial *big.Int, uri *url.URL, usage []x509.ExtKeyUsage, now time.Time, life time.Duration) (*x509.Certificate, error) {
	end := now.Add(life)
	if last := a.Certificate.NotAfter; end.After(last) {
		end = last
	}
	if !end.After(now) {
		return nil, errors.New("the authority's certificate has expired")
	}
	return signCertificate(&x509.Certificate{
		SerialNumber: serial,
		NotBefore:    now.Add(-backdate),
		NotAfter:     end,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  usage,
		URIs:         []*url.URL{uri},
	}, a.Certificate, pub, a.Key)
}

func signCertificate(template, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// fingerprint is the SHA-256 of the key's SubjectPublicKeyInfo.
func fingerprint(pub crypto.PublicKey) ([sha256.Size]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	return sha256.Sum256(der), err
}

func sameKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

const (
	pinPrefix      = "sha256:"
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Package pki makes certificate authorities and certificates for tests and
// examples. It panics where crypto/rand or crypto/x509 fail.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"time"
)

// CA is a certificate authority, with the profile of Cluster API's.
type CA struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// NewCA returns a new authority that is valid for ten years.
func NewCA(commonName string) *CA {
	return NewCAWith(nil, func(c *x509.Certificate) { c.Subject.CommonName = commonName })
}

// NewCAWith returns an authority, "kubernetes", of a key that there is, or of a
// new one if key is nil. change, if not nil, changes its certificate.
func NewCAWith(key crypto.Signer, change func(*x509.Certificate)) *CA {
	if key == nil {
		key = NewKey()
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubernetes"},
		NotBefore:             time.Now().Add(-5 * time.Minute),
		NotAfter:              time.Now().AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	if change != nil {
		change(template)
	}
	return &CA{signCertificate(template, template, key, key), key}
}

// CertPEM is the certificate.
func (ca *CA) CertPEM() []byte { return CertPEM(ca.Cert) }

// KeyPEM is the private key.
func (ca *CA) KeyPEM() []byte { return KeyPEM(ca.Key) }

// Pool holds the authority alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	return pool
}

// Server returns a certificate for names and addresses, valid for a day.
func (ca *CA) Server(hosts ...string) tls.Certificate {
	return ca.newLeaf(hosts[0], x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
		for _, host := range hosts {
			if ip := net.ParseIP(host); ip != nil {
				c.IPAddresses = append(c.IPAddresses, ip)
			} else {
				c.DNSNames = append(c.DNSNames, host)
			}
		}
	})
}

// Client returns a client certificate, valid for a day.
func (ca *CA) Client(commonName string, organizations ...string) tls.Certificate {
	return ca.newLeaf(commonName, x509.ExtKeyUsageClientAuth, func(c *x509.Certificate) { c.Subject.Organization = organizations })
}

// ClientFor returns a client certificate with the given times.
func (ca *CA) ClientFor(commonName string, notBefore, notAfter time.Time, organizations ...string) tls.Certificate {
	return ca.newLeaf(commonName, x509.ExtKeyUsageClientAuth, func(c *x509.Certificate) {
		c.Subject.Organization, c.NotBefore, c.NotAfter = organizations, notBefore, notAfter
	})
}

// Issue returns a certificate for a client, or a host at 127.0.0.1, and its key.
// change, if not nil, changes it.
func (ca *CA) Issue(name string, change func(*x509.Certificate)) (*x509.Certificate, crypto.Signer) {
	leaf := ca.newLeaf(name, x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		c.DNSNames, c.IPAddresses = []string{name}, []net.IP{net.IPv4(127, 0, 0, 1)}
		if change != nil {
			change(c)
		}
	})
	return leaf.Leaf, leaf.PrivateKey.(crypto.Signer)
}

func (ca *CA) newLeaf(commonName string, usage x509.ExtKeyUsage, change func(*x509.Certificate)) tls.Certificate {
	key := NewKey()
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		NotBefore:   time.Now().Add(-5 * time.Minute),
		NotAfter:    time.Now().AddDate(0, 0, 1),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	change(template)
	cert := signCertificate(template, ca.Cert, key, ca.Key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// LargeRSA returns an RSA key of 32,768 bits, and a CA's certificate for it. The numbers
// are not prime: the key is for tests that it is refused before it is used.
func (ca *CA) LargeRSA() (cert, key []byte) {
	number := func(bits uint) *big.Int { return new(big.Int).SetBit(big.NewInt(1), int(bits)-1, 1) }
	n, half := number(32768), number(16384)
	der := must(asn1.Marshal(struct {
		Version                         int
		N, E, D, P, Q, Dp, Dq, Inverted *big.Int
	}{0, n, big.NewInt(65537), n, half, half, half, half, half}))
	public := &rsa.PublicKey{N: n, E: 65537}
	template := *ca.Cert
	certDER := must(x509.CreateCertificate(rand.Reader, &template, ca.Cert, public, ca.Key))
	return encodePEM("CERTIFICATE", certDER), encodePEM("RSA PRIVATE KEY", der)
}

// PEM returns a certificate and its key.
func PEM(c tls.Certificate) (cert, key []byte) {
	return CertPEM(c.Leaf), KeyPEM(c.PrivateKey.(crypto.Signer))
}

// CertPEM returns certificates in PEM.
func CertPEM(certs ...*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, cert := range certs {
		b.Write(encodePEM("CERTIFICATE", cert.Raw))
	}
	return b.Bytes()
}

// KeyPEM returns a private key in PEM: one of ECDSA in the form of SEC 1, since
// kube-apiserver reads the keys of service accounts in no other, and PKCS #8 for the
// rest.
func KeyPEM(key crypto.Signer) []byte {
	if key, ok := key.(*ecdsa.PrivateKey); ok {
		return encodePEM("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key)))
	}
	return encodePEM("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))
}

// NewKey returns a new private key.
func NewKey() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func signCertificate(template, parent *x509.Certificate, key, parentKey crypto.Signer) *x509.Certificate {
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey))))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// shared is the authority of ServerTLS and ClientTLS.
var shared = sync.OnceValue(func() *CA { return NewCA("test") })

// sharedTime is a time at which the certificates are valid: a bubble of synctest has
// another one.
func sharedTime() time.Time { return shared().Cert.NotBefore.Add(time.Hour) }

// ServerTLS returns the configuration of a server that ClientTLS verifies, for
// server.test and 127.0.0.1. All callers share it. Its first call must be outside of a
// bubble of synctest.
var ServerTLS = sync.OnceValue(func() *tls.Config {
	return &tls.Config{Time: sharedTime, Certificates: []tls.Certificate{shared().Server("server.test", "127.0.0.1")}}
})

// ClientTLS returns the configuration of a client of ServerTLS. It is the caller's.
func ClientTLS() *tls.Config {
	return &tls.Config{Time: sharedTime, RootCAs: shared().Pool(), ServerName: "server.test"}
}

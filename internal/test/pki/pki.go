// Package pki makes certificate authorities and certificates for tests and
// examples. It panics where crypto/rand or crypto/x509 fail.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// CA is a certificate authority, with the profile of Cluster API's.
type CA struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// NewCA returns a new authority that is valid for ten years.
func NewCA(commonName string) *CA {
	now := time.Now()
	return NewCAFor(commonName, now.Add(-5*time.Minute), now.AddDate(10, 0, 0))
}

// NewCAFor returns a new authority with the given times.
func NewCAFor(commonName string, notBefore, notAfter time.Time) *CA {
	key := newKey()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return &CA{sign(template, template, key, key), key}
}

// CertPEM is the certificate.
func (ca *CA) CertPEM() []byte { return encode("CERTIFICATE", ca.Cert.Raw) }

// KeyPEM is the private key.
func (ca *CA) KeyPEM() []byte { return keyPEM(ca.Key) }

// Pool holds the authority alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	return pool
}

// Server returns a certificate for names and addresses, valid for a day.
func (ca *CA) Server(hosts ...string) tls.Certificate {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: hosts[0]},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return ca.leaf(template)
}

// Client returns a client certificate, valid for a day.
func (ca *CA) Client(commonName string, organizations ...string) tls.Certificate {
	return ca.leaf(&x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName, Organization: organizations},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// ClientFor returns a client certificate with the given times.
func (ca *CA) ClientFor(commonName string, notBefore, notAfter time.Time, organizations ...string) tls.Certificate {
	return ca.leaf(&x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName, Organization: organizations},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore:   notBefore,
		NotAfter:    notAfter,
	})
}

func (ca *CA) leaf(template *x509.Certificate) tls.Certificate {
	key := newKey()
	template.SerialNumber = serial()
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-5*time.Minute), time.Now().AddDate(0, 0, 1)
	}
	cert := sign(template, ca.Cert, key, ca.Key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// PEM returns a certificate and its key.
func PEM(c tls.Certificate) (cert, key []byte) {
	return encode("CERTIFICATE", c.Certificate[0]), keyPEM(c.PrivateKey.(*ecdsa.PrivateKey))
}

func keyPEM(key *ecdsa.PrivateKey) []byte {
	return encode("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key)))
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func newKey() *ecdsa.PrivateKey {
	return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
}

func serial() *big.Int {
	return must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)))
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey))))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

package kubeconfig_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"testing"
	"time"
)

// authority is a CA, or a certificate that only claims to be one.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newAuthority makes a self-signed CA. change may be nil.
func newAuthority(t testing.TB, key crypto.Signer, change func(*x509.Certificate)) *authority {
	t.Helper()
	if key == nil {
		key = newKey(t)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubernetes"},
		NotBefore:             time.Now().Add(-5 * time.Minute).UTC().Truncate(time.Second),
		NotAfter:              time.Now().Add(10 * 365 * 24 * time.Hour).UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	if change != nil {
		change(template)
	}
	return &authority{cert: sign(t, template, template, key.Public(), key), key: key}
}

func sign(t testing.TB, template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// issue makes a leaf certificate for a host or a client.
func (a *authority) issue(t testing.TB, name string, change func(*x509.Certificate)) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	return sign(t, template, a.cert, key.Public(), a.key), key
}

func (a *authority) serving(t testing.TB, name string) tls.Certificate {
	t.Helper()
	cert, key := a.issue(t, name, nil)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) certPEM() []byte            { return certPEM(a.cert) }
func (a *authority) keyPEM(t testing.TB) []byte { return keyPEM(t, a.key) }

func certPEM(certs ...*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, cert := range certs {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	}
	return b.Bytes()
}

func keyPEM(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

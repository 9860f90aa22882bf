package kubeconfig_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

// signed builds spec and returns the client certificate and key.
func signed(t *testing.T, spec kubeconfig.Spec) (*x509.Certificate, tls.Certificate, string) {
	t.Helper()
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	user := config.AuthInfos["c1-admin"]
	pair, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(user.ClientKeyData)
	if len(rest) > 0 || len(pair.Certificate) != 1 {
		t.Errorf("got %d certificates and %d bytes after the key, want 1 and 0", len(pair.Certificate), len(rest))
	}
	return pair.Leaf, pair, block.Type
}

// The profile is that of Cluster API's util/certs and util/kubeconfig.
func TestCertificateProfile(t *testing.T) {
	ca := pki.NewCAWith(nil, nil)
	spec := kubetest.Spec(ca)
	before := time.Now().Add(365 * 24 * time.Hour).Truncate(time.Second)
	cert, _, block := signed(t, spec)
	after := time.Now().Add(365 * 24 * time.Hour)

	got := fmt.Sprint(cert.Subject.String(), cert.KeyUsage, cert.ExtKeyUsage, cert.IsCA, len(cert.DNSNames)+len(cert.IPAddresses), block)
	want := fmt.Sprint("CN=kubernetes-admin,O=system:masters", x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment,
		[]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, false, 0, "EC PRIVATE KEY")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("profile (-want +got):\n%s", diff)
	}
	if !cert.NotBefore.Equal(ca.Cert.NotBefore) {
		t.Errorf("NotBefore: got %v, want the CA's %v", cert.NotBefore, ca.Cert.NotBefore)
	}
	if cert.NotAfter.Before(before) || cert.NotAfter.After(after) {
		t.Errorf("NotAfter: got %v, want a year from now", cert.NotAfter)
	}
	if cert.SerialNumber.Sign() <= 0 {
		t.Errorf("serial number: got %v, want a positive one", cert.SerialNumber)
	}
	if got := cert.PublicKey.(*ecdsa.PublicKey).Params().BitSize; got != 256 {
		t.Errorf("key: got %d bits, want 256", got)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
}

// What is made and what is checked is of the Spec's time.
func TestSpecNow(t *testing.T) {
	spec := kubetest.Spec(pki.NewCAWith(nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(5 * 365 * 24 * time.Hour) }))
	spec.Now = time.Now().Add(2 * 365 * 24 * time.Hour).UTC().Truncate(time.Second)
	cert, _, _ := signed(t, spec)
	if want := spec.Now.Add(365 * 24 * time.Hour); !cert.NotAfter.Equal(want) {
		t.Errorf("NotAfter: got %v, want %v", cert.NotAfter, want)
	}
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	was, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	for later, want := range map[time.Duration]bool{0: true, 200 * 24 * time.Hour: false} {
		s := spec
		s.Now = spec.Now.Add(later)
		if is, err := kubeconfig.Merge(was, s); err != nil || bytes.Equal(is, was) != want {
			t.Errorf("after %v: kept %v, %v; want kept %v", later, err == nil && bytes.Equal(is, was), err, want)
		}
	}
	spec.Now = time.Now().Add(6 * 365 * 24 * time.Hour)
	if _, err = spec.Build(); err == nil {
		t.Error("made with a CA that has ended then")
	}
}

func TestCertificateDoesNotOutliveCA(t *testing.T) {
	end := time.Now().Add(100 * time.Hour).UTC().Truncate(time.Second)
	ca := pki.NewCAWith(nil, func(c *x509.Certificate) { c.NotAfter = end })
	cert, _, _ := signed(t, kubetest.Spec(ca))
	if !cert.NotAfter.Equal(end) {
		t.Errorf("got %v, want the CA's end, %v", cert.NotAfter, end)
	}
}

func TestCertificateFreshKey(t *testing.T) {
	spec := kubetest.Spec(pki.NewCAWith(nil, nil))
	a, _, _ := signed(t, spec)
	b, _, _ := signed(t, spec)
	if a.PublicKey.(*ecdsa.PublicKey).Equal(b.PublicKey) || a.SerialNumber.Cmp(b.SerialNumber) == 0 {
		t.Error("two Builds share a key or a serial number")
	}
}

func TestIssuerIsFoundByKey(t *testing.T) {
	key := pki.NewKey()
	life := func(d time.Duration, subject string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(d).UTC().Truncate(time.Second)
			c.Subject.CommonName = subject
		}
	}
	var (
		other   = pki.NewCAWith(nil, nil)
		short   = pki.NewCAWith(key, life(time.Hour, "short"))
		long    = pki.NewCAWith(key, life(2*time.Hour, "long"))
		expired = pki.NewCAWith(key, life(-time.Minute, "expired"))
		leaf    = pki.NewCAWith(key, func(c *x509.Certificate) { life(3*time.Hour, "leaf")(c); c.IsCA, c.MaxPathLenZero = false, false })
	)
	bundle := []*x509.Certificate{other.Cert, expired.Cert, short.Cert, long.Cert, leaf.Cert}
	for range len(bundle) {
		bundle = append(bundle[1:], bundle[0])
		spec := kubetest.Spec(short)
		spec.CA = pki.CertPEM(bundle...)
		cert, _, _ := signed(t, spec)
		if got := cert.Issuer.CommonName; got != "long" {
			t.Errorf("got issuer %q, want the CA that lives longest", got)
		}
	}
}

// Every form in which openssl, kubeadm and Cluster API write a CA's key.
func TestCAKeyForms(t *testing.T) {
	ecKey := pki.NewKey().(*ecdsa.PrivateKey)
	sec1, err := x509.MarshalECPrivateKey(ecKey)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})
	parameters := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}})
	ecPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecCA, rsaCA, bigCA := pki.NewCAWith(ecKey, nil), pki.NewCAWith(rsaKey, nil), pki.NewCAWith(p521, nil)
	for _, test := range []struct {
		name string
		ca   *pki.CA
		key  []byte
	}{
		{"SEC 1", ecCA, ecPEM},
		{"SEC 1 with parameters", ecCA, slices.Concat(parameters, ecPEM)},
		{"SEC 1 behind its certificate", ecCA, slices.Concat(ecCA.CertPEM(), ecPEM)},
		{"PKCS 8 with EC", ecCA, ecCA.KeyPEM()},
		{"PKCS 1", rsaCA, pkcs1},
		{"PKCS 8 with RSA", rsaCA, rsaCA.KeyPEM()},
		{"P-521", bigCA, bigCA.KeyPEM()},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := kubetest.Spec(test.ca)
			spec.Credentials.CAKey = test.key
			cert, _, _ := signed(t, spec)
			if err := cert.CheckSignatureFrom(test.ca.Cert); err != nil {
				t.Error(err)
			}
		})
	}
}

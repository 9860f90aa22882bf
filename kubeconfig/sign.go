package kubeconfig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// The profile of Cluster API's admin certificates.
const (
	adminUser  = "kubernetes-admin"
	adminGroup = "system:masters"
	adminLife  = 365 * 24 * time.Hour
)

// generateKey returns a new key and its PEM. Of the algorithms that Cluster API knows, ECDSA P-256
// takes the least time.
func generateKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// issuer returns the certificate of CAKey in ca, and the key; nil if ca is
// empty, which is reported elsewhere.
func (c Credentials) issuer(ca []*x509.Certificate, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	caKey, _, err := field.ParsePrivateKey(c.CAKey)
	if err != nil {
		return nil, nil, field.Wrap("Credentials.CAKey", err)
	}
	if len(ca) == 0 {
		return nil, nil, nil
	}
	issuer, err := issuerOf(ca, caKey.Public(), now)
	return issuer, caKey, err
}

// endOf returns when a certificate expires that issuer signs now.
func endOf(issuer *x509.Certificate, now time.Time) time.Time {
	end := now.Add(adminLife)
	if end.After(issuer.NotAfter) {
		end = issuer.NotAfter
	}
	return end.UTC().Truncate(time.Second)
}

// signedUser returns a user with a new key and a certificate signed by CAKey.
func (c Credentials) signedUser(ca []*x509.Certificate, now time.Time) (*clientcmdapi.AuthInfo, error) {
	issuer, caKey, err := c.issuer(ca, now)
	if issuer == nil || err != nil {
		return nil, err
	}
	key, keyPEM, err := generateKey()
	if err != nil {
		return nil, field.Errorf("Credentials.CAKey", "make a client key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject:     pkix.Name{CommonName: adminUser, Organization: []string{adminGroup}},
		NotBefore:   issuer.NotBefore, // clocks differ
		NotAfter:    endOf(issuer, now),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, issuer, key.Public(), caKey)
	if err != nil {
		return nil, field.Errorf("Credentials.CAKey", "sign the client certificate: %w", err)
	}
	user := clientcmdapi.NewAuthInfo()
	user.ClientCertificateData = pem.EncodeToMemory(&pem.Block{Type: field.BlockCertificate, Bytes: der})
	user.ClientKeyData = keyPEM
	return user, nil
}

// issuerOf returns the certificate of key in ca. A CA renewed with the same
// key appears twice: the one that lives longest is taken.
func issuerOf(ca []*x509.Certificate, key crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	var (
		issuer   *x509.Certificate
		unusable error
	)
	for _, cert := range ca {
		if !field.SamePublicKey(key, cert.PublicKey) {
			continue
		}
		if err := checkIssuer(cert, now); err != nil {
			unusable = err
		} else if issuer == nil || cert.NotAfter.After(issuer.NotAfter) {
			issuer = cert
		}
	}
	switch {
	case issuer != nil:
		return issuer, nil
	case unusable != nil:
		return nil, field.Errorf("CA", "can't sign with CAKey: %w", unusable)
	}
	return nil, field.Errorf("Credentials.CAKey", "is not the key of a certificate in CA")
}

func checkIssuer(cert *x509.Certificate, now time.Time) error {
	switch {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return errors.New("the certificate is not a CA's (basic constraints)")
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("the certificate's key usage does not allow to sign certificates")
	}
	return field.CheckValidity(cert, now)
}

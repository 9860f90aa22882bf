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
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// Credentials is how a kubeconfig's user authenticates to the API server.
// Exactly one way is set: CAKey, Certificate with Key, Token, or AuthInfo.
type Credentials struct {
	// CAKey is the PEM private key (PKCS #1, PKCS #8 or SEC 1) of a
	// certificate in Spec.CA. Each Build signs a client certificate with it,
	// with Cluster API's profile: common name kubernetes-admin, organization
	// system:masters, client authentication, for a year. Other than Cluster
	// API's, it doesn't outlive the CA, and its key is always ECDSA P-256: give
	// Certificate and Key for another one.
	CAKey []byte

	// Certificate is a PEM client certificate, with the intermediate
	// certificates behind it if there are any, and Key its PEM private key.
	Certificate, Key []byte

	// Token is a bearer token. White space around it is cut off, such as a
	// file's final newline.
	Token string

	// AuthInfo is a user entry given whole: exec plugins, files, impersonation.
	// It is copied. Files that it names are not opened.
	AuthInfo *clientcmdapi.AuthInfo
}

func (c Credentials) authMethods() []string {
	var methods []string
	note := func(name string, set bool) {
		if set {
			methods = append(methods, name)
		}
	}
	note("CAKey", len(c.CAKey) > 0)
	note("Certificate with Key", len(c.Certificate) > 0 || len(c.Key) > 0)
	note("Token", c.Token != "")
	note("AuthInfo", c.AuthInfo != nil)
	return methods
}

// authInfo returns the user entry. ca is empty if Spec.CA can't be used:
// that is reported elsewhere.
func (c Credentials) authInfo(ca []*x509.Certificate, now time.Time) (*clientcmdapi.AuthInfo, error) {
	const want = "want one of CAKey, Certificate with Key, Token, AuthInfo"
	switch methods := c.authMethods(); {
	case len(methods) == 0:
		return nil, field.Errorf("Credentials", "%w: none is set; %s", field.ErrRequired, want)
	case len(methods) > 1:
		return nil, field.Errorf("Credentials", "%s are set; %s", strings.Join(methods, " and "), want)
	case len(c.CAKey) > 0:
		return c.signedUser(ca, now)
	case c.Token != "":
		return c.tokenUser()
	case c.AuthInfo != nil:
		return c.copiedUser()
	}
	return c.certificateUser(now)
}

func (c Credentials) tokenUser() (*clientcmdapi.AuthInfo, error) {
	token := strings.TrimSpace(c.Token)
	if token == "" {
		return nil, field.Errorf("Credentials.Token", "is blank")
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, field.Errorf("Credentials.Token", "holds a space, a control character or one beyond ASCII, which a header can't carry")
	}
	user := clientcmdapi.NewAuthInfo()
	user.Token = token
	return user, nil
}

// certificateUser checks what the API server would only call "unauthorized".
func (c Credentials) certificateUser(now time.Time) (*clientcmdapi.AuthInfo, error) {
	var (
		certs            []*x509.Certificate
		block            *pem.Block
		certErr, pairErr error
	)
	certs, certErr = field.ParseCertificates(c.Certificate)
	if certErr == nil {
		certErr = checkClientCertificate(certs[0], now)
	}
	if len(c.Key) == 0 {
		pairErr = errors.New("required along with Certificate")
	} else if key, keyBlock, err := field.ParsePrivateKey(c.Key); err != nil {
		pairErr = err
	} else if len(certs) > 0 && !field.SamePublicKey(key.Public(), certs[0].PublicKey) {
		pairErr = errors.New("is not the key of the first certificate in Certificate")
	} else {
		block = keyBlock
	}
	if err := errors.Join(field.Wrap("Credentials.Certificate", certErr), field.Wrap("Credentials.Key", pairErr)); err != nil {
		return nil, err
	}
	user := clientcmdapi.NewAuthInfo()
	user.ClientCertificateData = field.EncodeCertificates(certs)
	user.ClientKeyData = pem.EncodeToMemory(block)
	return user, nil
}

func checkClientCertificate(cert *x509.Certificate, now time.Time) error {
	usages := cert.ExtKeyUsage
	if len(usages)+len(cert.UnknownExtKeyUsage) > 0 &&
		!slices.Contains(usages, x509.ExtKeyUsageClientAuth) && !slices.Contains(usages, x509.ExtKeyUsageAny) {
		return errors.New("is not for client authentication: its extended key usage doesn't allow it")
	}
	return field.CheckValidity(cert, now)
}

// copiedUser checks AuthInfo with client-go's own rules, which would otherwise
// fail at the first use of the kubeconfig.
func (c Credentials) copiedUser() (*clientcmdapi.AuthInfo, error) {
	probe := c.AuthInfo.DeepCopy()
	// client-go opens the files to check them, but they may be elsewhere.
	probe.ClientCertificateData = fileOrData(&probe.ClientCertificate, probe.ClientCertificateData)
	probe.ClientKeyData = fileOrData(&probe.ClientKey, probe.ClientKeyData)
	config := clientcmdapi.NewConfig()
	config.AuthInfos["AuthInfo"] = probe
	if err := clientcmd.Validate(*config); err != nil {
		return nil, field.Wrap("Credentials.AuthInfo", err)
	}
	return c.AuthInfo.DeepCopy(), nil
}

// fileOrData turns a file without data into data without a file. Both at
// once is left for client-go to refuse.
func fileOrData(file *string, data []byte) []byte {
	if *file == "" || len(data) > 0 {
		return data
	}
	*file = ""
	return []byte("file")
}

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

package kubeconfig

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// checkUser finds what is wrong with c before a key is made.
func (m *merge) checkUser(c Credentials) (err error) {
	if m.user == nil {
		return field.Errorf(fmt.Sprintf("contexts[%q].user", m.current.Context), "%w for Credentials: there is no user entry to take them", field.ErrRequired)
	}
	if len(c.authMethods()) != 1 || len(c.CAKey) == 0 {
		m.given, err = c.authInfo(nil, m.now)
		return err
	}
	if m.signers, err = m.effectiveCA(); err == nil {
		m.issuer, _, err = c.issuer(m.signers, m.now)
	}
	return err
}

// effectiveCA is Spec.CA, or else what the kubeconfig has. It is empty where
// Spec.CA can't be used.
func (m *merge) effectiveCA() ([]*x509.Certificate, error) {
	if m.specCA {
		return m.ca, nil
	}
	data := m.current.Cluster.CertificateAuthorityData
	if len(data) == 0 {
		return nil, field.Errorf("CA", "%w for Credentials.CAKey: the kubeconfig holds none", field.ErrRequired)
	}
	ca, err := parseCA(data, m.now)
	return ca, field.Wrap(m.current.Field("certificate-authority-data"), err)
}

func (m *merge) setUser() error {
	c := m.spec.Credentials
	if c.isZero() {
		return nil
	}
	next, err := m.wantedUser()
	if err != nil {
		return err
	}
	was := m.current.User
	if samePEM(was.ClientCertificateData, next.ClientCertificateData) && samePEM(was.ClientKeyData, next.ClientKeyData) {
		next.ClientCertificateData, next.ClientKeyData = was.ClientCertificateData, was.ClientKeyData
	}
	if c.AuthInfo == nil {
		next.Impersonate, next.ImpersonateUID = was.Impersonate, was.ImpersonateUID
		next.ImpersonateGroups, next.ImpersonateUserExtra = was.ImpersonateGroups, was.ImpersonateUserExtra
	}
	given := next.Extensions
	next.Extensions, next.LocationOfOrigin = map[string]runtime.Object{}, was.LocationOfOrigin
	maps.Copy(next.Extensions, was.Extensions)
	maps.Copy(next.Extensions, given)
	m.user = next
	return nil
}

func (m *merge) wantedUser() (*clientcmdapi.AuthInfo, error) {
	if m.given != nil {
		return m.given, nil
	}
	chain := certificateOf(m.user)
	if isAdmin(chain) && checkClientCertificate(chain[0], m.now) == nil && issuedBy(chain, m.signers, m.now) && !isRenewalDue(chain[0], m.issuer, m.now) {
		user := clientcmdapi.NewAuthInfo()
		user.ClientCertificateData, user.ClientKeyData = m.user.ClientCertificateData, m.user.ClientKeyData
		return user, nil
	}
	return m.spec.Credentials.signedUser(m.signers, m.now)
}

// isRenewalDue reports whether less than half of a certificate's life is left, and one that
// issuer signs now lasts longer. Certificates often say that they began when their CA did.
func isRenewalDue(cert, issuer *x509.Certificate, now time.Time) bool {
	life := min(cert.NotAfter.Sub(cert.NotBefore), adminLife)
	return cert.NotAfter.Sub(now) < life/2 && endOf(issuer, now).After(cert.NotAfter)
}

// certificateOf returns the client certificate that user holds, with
// its intermediates; nil without a certificate or its key.
func certificateOf(user *clientcmdapi.AuthInfo) []*x509.Certificate {
	chain, err := field.ParseCertificates(user.ClientCertificateData)
	if err != nil {
		return nil
	}
	key, _, err := field.ParsePrivateKey(user.ClientKeyData)
	if err != nil || !field.SamePublicKey(key.Public(), chain[0].PublicKey) {
		return nil
	}
	return chain
}

func isAdmin(chain []*x509.Certificate) bool {
	return len(chain) > 0 && chain[0].Subject.CommonName == adminUser && slices.Contains(chain[0].Subject.Organization, adminGroup)
}

// issuedBy reports whether the chain ends at a certificate of ca that is valid now. The
// client certificate's own validity is another question.
func issuedBy(chain, ca []*x509.Certificate, now time.Time) bool {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, cert := range ca {
		if checkIssuer(cert, now) == nil {
			roots.AddCert(cert)
		}
	}
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	if now.Before(chain[0].NotBefore) {
		now = chain[0].NotBefore
	} else if now.After(chain[0].NotAfter) {
		now = chain[0].NotAfter
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err == nil
}

// samePEM compares what the blocks hold: comments and the types of keys don't
// count.
func samePEM(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, xErr := field.PEMBlocks(a)
	y, yErr := field.PEMBlocks(b)
	return xErr == nil && yErr == nil && len(x) > 0 &&
		slices.EqualFunc(x, y, func(p, q *pem.Block) bool { return bytes.Equal(p.Bytes, q.Bytes) })
}

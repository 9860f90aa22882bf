package provider

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/internal/keypair"
	"github.com/causewayproject/causeway/internal/owner"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// halfLife is when Cluster API renews its certificates: half a year before
// their end.
const halfLife = 4380 * time.Hour

// identity is a CA and how to authenticate, if these have to differ from those in the
// kubeconfig.
type identity struct {
	needed bool
	ca     []byte // PEM
	sign   bool   // with new credentials
}

// clusterCA returns <cluster>-ca's certificate and key; each is empty if missing.
func (p *planner) clusterCA() (cert, key []byte) {
	if p.secrets.CA == nil {
		return nil, nil
	}
	return p.secrets.CA.Data[corev1.TLSCertKey], p.secrets.CA.Data[corev1.TLSPrivateKeyKey]
}

// ownsCredentials reports whether the provider makes the credentials. Those that it made
// stay its own in every mode, until the Secret gets another owner than the Cluster.
func (p *planner) ownsCredentials() bool {
	switch p.settings.Mode {
	case Own:
		return true
	case Secondary:
		return !p.follows
	}
	return p.managed && p.records.Created && len(p.target.OwnerReferences) == 1 && owner.Owns(p.cluster.ownerReference(), p.target.OwnerReferences)
}

// identityChange compares the kubeconfig with <cluster>-ca. Further certificates in
// the kubeconfig were added by somebody and are no difference.
func (p *planner) identityChange() identity {
	caPEM, key := p.clusterCA()
	if p.follows || len(caPEM) == 0 {
		return identity{}
	}
	havePEM := base64Data(p.base.cluster, "certificate-authority-data")
	if len(havePEM) == 0 { // a file, or none
		return identity{}
	}
	same := bytes.Equal(bytes.TrimSpace(havePEM), bytes.TrimSpace(caPEM))
	if same && !p.ownsCredentials() {
		return identity{}
	}
	ca := parseCertificates(caPEM)
	if len(ca) == 0 {
		return identity{}
	}
	have := parseCertificates(havePEM)
	known := map[string]bool{}
	for _, c := range have {
		known[string(c.Raw)] = true
	}
	missing := !same && slices.ContainsFunc(ca, func(c *x509.Certificate) bool { return !known[string(c.Raw)] })
	client := parseCertificates(base64Data(p.base.user, "client-certificate-data"))
	foreign := len(client) > 0 && findIssuer(client[0], ca) == nil
	id := identity{ca: caPEM, sign: foreign && len(key) > 0}
	id.needed = missing || id.sign && p.ownsCredentials()
	return id
}

// parseCertificates skips blocks that it can't parse or use, and those beyond
// field.MaxCertificates. Other code reports them.
func parseCertificates(data []byte) []*x509.Certificate {
	certs := field.FindCertificates(data)
	return slices.DeleteFunc(certs[:min(len(certs), field.MaxCertificates)], func(c *x509.Certificate) bool { return keypair.CheckPublic(c.PublicKey) != nil })
}

// findIssuer returns the certificate that signed cert; of several, the one that
// expires last.
func findIssuer(cert *x509.Certificate, ca []*x509.Certificate) *x509.Certificate {
	var longest *x509.Certificate
	for _, c := range ca {
		later := longest == nil || c.NotAfter.After(longest.NotAfter)
		if later && bytes.Equal(cert.RawIssuer, c.RawSubject) && cert.CheckSignatureFrom(c) == nil {
			longest = c
		}
	}
	return longest
}

// renewalTime returns when to renew the client certificate; zero if a new one would
// not live longer, or if the provider doesn't make it.
func (p *planner) renewalTime() time.Time {
	if !p.ownsCredentials() {
		return time.Time{}
	}
	caPEM, _ := p.clusterCA()
	client := parseCertificates(base64Data(p.base.user, "client-certificate-data"))
	if len(client) == 0 {
		return time.Time{}
	}
	cert := client[0]
	by := findIssuer(cert, parseCertificates(caPEM))
	if by == nil || !cert.NotAfter.Before(by.NotAfter) {
		return time.Time{}
	}
	return cert.NotAfter.Add(-min(halfLife, cert.NotAfter.Sub(cert.NotBefore)/2))
}

// renewalDue reports whether the client certificate is to be renewed now.
func (p *planner) renewalDue() bool {
	at := p.renewalTime()
	if at.IsZero() {
		return false
	}
	if left := at.Sub(p.config.Now); left > 0 {
		p.scheduleAfter(left)
		return false
	}
	return true
}

func (p *planner) rotationDue() bool {
	_, key := p.clusterCA()
	return p.renewalDue() && len(key) > 0
}

// rotationBlocked reports whether the renewal is due but the CA's key is missing.
func (p *planner) rotationBlocked() bool {
	_, key := p.clusterCA()
	return len(key) == 0 && p.renewalDue()
}

// replaceIdentity puts id.ca, if it is set, in place of the CA. If id.sign is set, it signs new
// credentials with <cluster>-ca, too.
func (p *planner) replaceIdentity(value []byte, id identity) ([]byte, error) {
	spec := kubeconfig.Spec{Name: p.cluster.Name, CA: id.ca}
	if id.sign {
		config, err := p.plainSpec().Build()
		if err != nil {
			return nil, fmt.Errorf("provider: the Secret %s-ca: %w", p.cluster.Name, err)
		}
		user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
		spec.Credentials = kubeconfig.Credentials{Certificate: user.ClientCertificateData, Key: user.ClientKeyData}
	}
	merged, err := kubeconfig.Merge(value, spec)
	if err != nil {
		return nil, fmt.Errorf("provider: %w", err)
	}
	return merged, nil
}

// plainSpec returns the Spec of a kubeconfig without a route.
func (p *planner) plainSpec() kubeconfig.Spec {
	cert, key := p.clusterCA()
	return kubeconfig.Spec{
		Name: p.cluster.Name, Endpoint: p.cluster.Endpoint, CA: cert,
		Credentials: kubeconfig.Credentials{CAKey: key},
	}
}

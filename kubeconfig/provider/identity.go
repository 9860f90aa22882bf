package provider

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

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

// ownsCredentials reports whether the provider makes the credentials. Those that it made
// stay its own in every mode, until the Secret gets another owner than the Cluster.
func (d *decider) ownsCredentials() bool {
	switch d.settings.Mode {
	case Own:
		return true
	case Secondary:
		return !d.follows
	}
	return d.managed && d.records.Created && len(d.target.secret.OwnerReferences) == 1 && owner.Owns(d.cluster.ownerReference(), d.target.secret.OwnerReferences)
}

// identityChange compares the kubeconfig with <cluster>-ca. Further certificates in
// the kubeconfig were added by somebody and are no difference.
func (d *decider) identityChange() identity {
	ca := d.ca.certs
	if d.follows || len(ca) == 0 {
		return identity{}
	}
	havePEM := base64Data(d.base.cluster, "certificate-authority-data")
	if len(havePEM) == 0 { // a file, or none
		return identity{}
	}
	same := bytes.Equal(bytes.TrimSpace(havePEM), bytes.TrimSpace(d.ca.pem))
	if same && !d.ownsCredentials() {
		return identity{}
	}
	have := parseCertificates(havePEM)
	known := map[string]bool{}
	for _, c := range have {
		known[string(c.Raw)] = true
	}
	missing := !same && slices.ContainsFunc(ca, func(c *x509.Certificate) bool { return !known[string(c.Raw)] })
	client := parseCertificates(base64Data(d.base.user, "client-certificate-data"))
	foreign := len(client) > 0 && findIssuer(client[0], ca) == nil
	id := identity{ca: d.ca.pem, sign: foreign && len(d.ca.key) > 0}
	id.needed = missing || id.sign && d.ownsCredentials()
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

// renewalDue reports whether the client certificate is to be renewed now. It is never if a new
// one would not live longer, or if the provider doesn't make it.
func (d *decider) renewalDue() bool {
	client := parseCertificates(base64Data(d.base.user, "client-certificate-data"))
	if len(client) == 0 || !d.ownsCredentials() {
		return false
	}
	cert := client[0]
	by := findIssuer(cert, d.ca.certs)
	if by == nil || !cert.NotAfter.Before(by.NotAfter) {
		return false
	}
	at := cert.NotAfter.Add(-min(halfLife, cert.NotAfter.Sub(cert.NotBefore)/2))
	if left := at.Sub(d.config.Now); left > 0 {
		d.scheduleAfter(left)
		return false
	}
	return true
}

// replaceIdentity puts id.ca, if it is set, in place of the CA. If id.sign is set, it signs new
// credentials with <cluster>-ca, too.
func (d *decider) replaceIdentity(value []byte, id identity) ([]byte, error) {
	spec := kubeconfig.Spec{Name: d.cluster.Name, CA: id.ca, Now: d.config.Now}
	if id.sign {
		config, err := d.plainSpec().Build()
		if err != nil {
			return nil, fmt.Errorf("provider: the Secret %s-ca: %w", d.cluster.Name, err)
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
func (d *decider) plainSpec() kubeconfig.Spec {
	return kubeconfig.Spec{
		Name: d.cluster.Name, Endpoint: d.cluster.Endpoint, CA: d.ca.pem, Now: d.config.Now,
		Credentials: kubeconfig.Credentials{CAKey: d.ca.key},
	}
}

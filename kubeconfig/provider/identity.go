package provider

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/kubeconfig"
)

// halfLife is when Cluster API renews its certificates: half a year before
// their end.
const halfLife = 4380 * time.Hour

// identity is whom to trust and how to authenticate, where that is not what the
// kubeconfig says.
type identity struct {
	needed bool
	ca     []byte // PEM
	sign   bool   // with new credentials
}

// ca is <cluster>-ca's certificate and key; empty ones if it has none.
func (p *planner) ca() (cert, key []byte) {
	if p.secrets.CA == nil {
		return nil, nil
	}
	return p.secrets.CA.Data[corev1.TLSCertKey], p.secrets.CA.Data[corev1.TLSPrivateKeyKey]
}

// signs says whether the credentials are the provider's to make.
func (p *planner) signs() bool {
	return p.settings.Mode == Own || p.settings.Mode == Secondary && !p.follows
}

// identity compares the kubeconfig with <cluster>-ca. Certificates beyond that
// are somebody's, and no difference.
func (p *planner) identity() identity {
	caPEM, key := p.ca()
	if p.follows || len(caPEM) == 0 {
		return identity{}
	}
	havePEM := data(p.base.cluster, "certificate-authority-data")
	if len(havePEM) == 0 { // a file, or none
		return identity{}
	}
	same := bytes.Equal(bytes.TrimSpace(havePEM), bytes.TrimSpace(caPEM))
	if same && !p.signs() {
		return identity{}
	}
	ca := certificates(caPEM)
	if len(ca) == 0 {
		return identity{}
	}
	have := certificates(havePEM)
	missing := !same && slices.ContainsFunc(ca, func(c *x509.Certificate) bool { return !slices.ContainsFunc(have, c.Equal) })
	client := certificates(data(p.base.user, "client-certificate-data"))
	foreign := len(client) > 0 && issuer(client[0], ca) == nil
	id := identity{ca: caPEM, sign: foreign && len(key) > 0}
	id.needed = missing || id.sign && p.signs()
	return id
}

// certificates passes over what is none: that is for others to say.
func certificates(data []byte) []*x509.Certificate {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return certs
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			certs = append(certs, cert)
		}
	}
}

// issuer returns the one that lives longest of those that signed cert.
func issuer(cert *x509.Certificate, ca []*x509.Certificate) *x509.Certificate {
	var longest *x509.Certificate
	for _, c := range ca {
		if (longest == nil || c.NotAfter.After(longest.NotAfter)) && cert.CheckSignatureFrom(c) == nil {
			longest = c
		}
	}
	return longest
}

// renewal is when the client certificate is to be renewed; zero if it can't be
// made to live longer, or is not the provider's.
func (p *planner) renewal() time.Time {
	if !p.signs() {
		return time.Time{}
	}
	caPEM, _ := p.ca()
	client := certificates(data(p.base.user, "client-certificate-data"))
	if len(client) == 0 {
		return time.Time{}
	}
	cert := client[0]
	by := issuer(cert, certificates(caPEM))
	if by == nil || !cert.NotAfter.Before(by.NotAfter) {
		return time.Time{}
	}
	return cert.NotAfter.Add(-min(halfLife, cert.NotAfter.Sub(cert.NotBefore)/2))
}

// due says whether the client certificate is to be renewed now.
func (p *planner) due() bool {
	at := p.renewal()
	if at.IsZero() {
		return false
	}
	if left := at.Sub(p.config.Now); left > 0 {
		p.after(left)
		return false
	}
	return true
}

func (p *planner) rotationDue() bool {
	_, key := p.ca()
	return p.due() && len(key) > 0
}

// rotationBlocked says whether it is due, and the key is missing.
func (p *planner) rotationBlocked() bool {
	_, key := p.ca()
	return len(key) == 0 && p.due()
}

// replace makes the CA, and the credentials if they are not its own, those of
// <cluster>-ca.
func (p *planner) replace(value []byte, id identity) ([]byte, error) {
	spec := kubeconfig.Spec{Name: p.cluster.Name, CA: id.ca}
	if id.sign {
		var err error
		if spec.Credentials, err = p.sign(); err != nil {
			return nil, err
		}
	}
	merged, err := kubeconfig.Merge(value, spec)
	if err != nil {
		return nil, fmt.Errorf("provider: %w", err)
	}
	return merged, nil
}

// renew makes new credentials by the same CA.
func (p *planner) renew(value []byte) ([]byte, error) {
	credentials, err := p.sign()
	if err != nil {
		return nil, err
	}
	merged, err := kubeconfig.Merge(value, kubeconfig.Spec{Name: p.cluster.Name, Credentials: credentials})
	if err != nil {
		return nil, fmt.Errorf("provider: %w", err)
	}
	return merged, nil
}

func (p *planner) sign() (kubeconfig.Credentials, error) {
	config, err := p.plain().Build()
	if err != nil {
		return kubeconfig.Credentials{}, fmt.Errorf("provider: the Secret %s-ca: %w", p.cluster.Name, err)
	}
	for _, user := range config.AuthInfos {
		return kubeconfig.Credentials{Certificate: user.ClientCertificateData, Key: user.ClientKeyData}, nil
	}
	return kubeconfig.Credentials{}, errors.New("provider: no credentials were made")
}

// plain is a kubeconfig without a route.
func (p *planner) plain() kubeconfig.Spec {
	cert, key := p.ca()
	return kubeconfig.Spec{
		Name: p.cluster.Name, Endpoint: p.cluster.Endpoint, CA: cert,
		Credentials: kubeconfig.Credentials{CAKey: key, KeyAlgorithm: p.config.keyAlgorithm()},
	}
}

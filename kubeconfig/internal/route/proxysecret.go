package route

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// caKey is the key of a CA beside the two of a kubernetes.io/tls Secret.
const caKey = "ca.crt"

// secretDialer dials through an https proxy that wants what a Secret holds. The
// Secret is read for each connection, so that what it holds may change.
type secretDialer struct {
	url  *url.URL
	opts *dialer.Options // with a TLSConfig
	ref  entry.SecretRef
	read func(ctx context.Context, namespace, name string) (map[string][]byte, error)
	path string // of the extension's field
	ca   bool   // the Secret's CA is the proxy's
}

func (d *secretDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	data, err := d.read(ctx, d.ref.Namespace, d.ref.Name)
	if err != nil {
		return nil, field.Errorf(d.path, "read the Secret %s/%s: %w", d.ref.Namespace, d.ref.Name, err)
	}
	opts := *d.opts
	opts.TLSConfig = d.opts.TLSConfig.Clone()
	if err := setCertificate(opts.TLSConfig, data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err != nil {
		return nil, field.Errorf(d.path, "the Secret %s/%s: %s and %s: %w", d.ref.Namespace, d.ref.Name, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	if d.ca {
		if err := setCA(opts.TLSConfig, data[caKey]); err != nil {
			return nil, field.Errorf(d.path, "the Secret %s/%s: %s: %w", d.ref.Namespace, d.ref.Name, caKey, err)
		}
	}
	through, err := dialer.FromURL(d.url, &opts)
	if err != nil {
		return nil, err
	}
	return through.DialContext(ctx, network, address)
}

// setCA leaves the system's roots where there is no CA.
func setCA(config *tls.Config, ca []byte) error {
	if len(ca) == 0 {
		return nil
	}
	certs, err := field.ParseCertificates(ca)
	if err != nil {
		return err
	}
	config.RootCAs = x509.NewCertPool()
	for _, cert := range certs {
		config.RootCAs.AddCert(cert)
	}
	return nil
}

// setCertificate sets none where there is neither a certificate nor a key.
func setCertificate(config *tls.Config, certificate, key []byte) error {
	if len(certificate)+len(key) == 0 {
		return nil
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return errors.New("want a PEM certificate and its private key")
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

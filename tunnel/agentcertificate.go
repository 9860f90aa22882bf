package tunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// given is of credentials that came by Agent.GetClientCertificate. It is not
// changed once made.
type given struct {
	cert *tls.Certificate
	pin  string   // of the server's authority
	id   Identity // whom the server takes the agent for; zero until it says so
}

// prepareGiven takes the certificate of now, and returns the servers to try.
func (r *runner) prepareGiven(ctx context.Context) ([]string, error) {
	inv, err := r.Invitation(ctx)
	if err != nil {
		return nil, &Error{Op: "connect", Code: CodeNoIdentity, Err: err}
	}
	if err := checkPin(inv.Pin); err != nil {
		return nil, configError("invitation: field Pin: %w", err)
	}
	if _, err := r.takeCertificate(ctx, inv.Pin); err != nil {
		return nil, err
	}
	return r.serversOr(inv)
}

// rotate takes the next certificate, if there is one yet.
func (r *runner) rotate(ctx context.Context, held *Credentials) error {
	next, err := r.takeCertificate(ctx, held.given.pin)
	if err == nil && next.Chain[0] == held.Chain[0] {
		err = &Error{Op: "renew", Cluster: held.identity().Cluster, Code: CodeInternal,
			Err: fmt.Errorf("%w that ends at %s", errSameCertificate, stamp(held.expires()))}
	}
	return err
}

var errSameCertificate = errors.New("GetClientCertificate still returns the certificate")

// takeCertificate has the credentials be those of GetClientCertificate.
func (r *runner) takeCertificate(ctx context.Context, pin string) (*Credentials, error) {
	renewed := false
	next, err := r.update(ctx, func(held *Credentials) (*Credentials, error) {
		cert, err := r.GetClientCertificate(anyServer())
		if err == nil {
			cert, err = withLeaf(cert)
		}
		if err != nil {
			return nil, &Error{Op: "connect", Code: CodeNoIdentity, Err: fmt.Errorf("GetClientCertificate: %w", err)}
		}
		next := held.giving(cert, pin)
		renewed = held != nil && next.Chain[0] != held.Chain[0]
		return next, nil
	})
	if renewed && r.Hooks.Renewed != nil {
		r.Hooks.Renewed(next.identity(), next.expires())
	}
	return next, err
}

// anyServer is what any server asks for. GetClientCertificate is called when
// none does, too.
func anyServer() *tls.CertificateRequestInfo {
	return &tls.CertificateRequestInfo{Version: tls.VersionTLS13, SignatureSchemes: []tls.SignatureScheme{
		tls.ECDSAWithP256AndSHA256, tls.Ed25519, tls.PSSWithSHA256, tls.PSSWithSHA384, tls.PSSWithSHA512,
		tls.ECDSAWithP384AndSHA384, tls.ECDSAWithP521AndSHA512,
	}}
}

// withLeaf returns the certificate with its Leaf; it is not changed itself.
func withLeaf(cert *tls.Certificate) (*tls.Certificate, error) {
	if cert == nil || len(cert.Certificate) == 0 {
		return nil, errors.New("no certificate")
	}
	if cert.Leaf != nil {
		return cert, nil
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	parsed := *cert
	parsed.Leaf = leaf
	return &parsed, err
}

// giving returns the credentials with the certificate; c itself if it has that.
// The same leaf stays the same pointer: sessions with it are not stale.
func (c *Credentials) giving(cert *tls.Certificate, pin string) *Credentials {
	next := &Credentials{Chain: []*x509.Certificate{cert.Leaf}, given: &given{cert: cert, pin: pin}}
	if c == nil {
		return next
	}
	next.Roots, next.given.id = c.Roots, c.given.id
	if !cert.Leaf.Equal(c.Chain[0]) {
		return next
	}
	if pin == c.given.pin && slices.EqualFunc(cert.Certificate, c.given.cert.Certificate, bytes.Equal) {
		return c
	}
	next.Chain = c.Chain
	return next
}

// named returns g with the identity that the message says; g itself if it says
// none, or the same.
func (g *given) named(m *wire.Message) *given {
	if g == nil {
		return nil
	}
	id := Identity{Cluster: m.Text(wire.TagCluster), Agent: m.Text(wire.TagName)}
	if id == g.id || wire.CheckCluster(id.Cluster) != nil || wire.CheckAgent(id.Agent) != nil {
		return g
	}
	next := *g
	next.id = id
	return &next
}

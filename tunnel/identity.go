package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Identity says which agent it is. It is a URI SAN in the agent's certificate, such as
// causeway://agent/default%2Fprod/k3w7hq2n.
type Identity struct {
	// Cluster is the argument of [Server.Dialer], such as namespace/name.
	Cluster string
	// Agent tells the agents of a cluster apart. The server chooses it at the
	// enrolment, and renewals keep it. At most 64 bytes, all printable.
	Agent string
}

const (
	uriScheme  = "causeway"
	agentHost  = "agent"
	serverHost = "server"
	serverURI  = "causeway://server"
)

// URI returns the URI that stands for the identity in a certificate.
func (i Identity) URI() *url.URL {
	return &url.URL{
		Scheme:  uriScheme,
		Host:    agentHost,
		Path:    "/" + i.Cluster + "/" + i.Agent,
		RawPath: "/" + url.PathEscape(i.Cluster) + "/" + url.PathEscape(i.Agent),
	}
}

// String returns "namespace/name (agent k3w7hq2n)".
func (i Identity) String() string { return i.Cluster + " (agent " + i.Agent + ")" }

// identityOf returns the identity in a certificate, which has to have exactly
// one URI of the scheme.
func identityOf(cert *x509.Certificate) (Identity, error) {
	found := tunnelURIs(cert)
	if len(found) != 1 || found[0].Host != agentHost {
		return Identity{}, errors.New("not one URI SAN of an agent in the certificate")
	}
	cluster, agent, ok := strings.Cut(strings.TrimPrefix(found[0].EscapedPath(), "/"), "/")
	if !ok {
		return Identity{}, errors.New("the URI SAN of the certificate has no agent")
	}
	var i Identity
	var err1, err2 error
	i.Cluster, err1 = url.PathUnescape(cluster)
	i.Agent, err2 = url.PathUnescape(agent)
	return i, errors.Join(err1, err2, wire.CheckCluster(i.Cluster), wire.CheckAgent(i.Agent))
}

// identify returns the identity of a connection's client, and its certificate. The error is
// an [*Error] with CodeCertificateExpired, CodeRevoked, CodeBadCertificate or
// CodeInternal; with the first two the identity is returned too.
func (r *registrar) identify(ctx context.Context, op string, state *tls.ConnectionState) (id Identity, cert *x509.Certificate, err error) {
	if id, err = r.issuedTo(op, state); err == nil {
		cert, err = r.inForce(ctx, op, id, state)
	}
	return id, cert, err
}

// issuedTo returns the identity in the client's certificate, which the authority issued.
func (r *registrar) issuedTo(op string, state *tls.ConnectionState) (id Identity, err error) {
	if len(state.PeerCertificates) == 0 {
		return Identity{}, refusedError(op, "", CodeBadCertificate, "the agent showed none")
	}
	a, leaf := r.authority(), state.PeerCertificates[0]
	if err := a.check(); err != nil {
		return Identity{}, internalError(op, "", err)
	}
	// First of all it has to be one of ours: that of another PKI is not "expired".
	if err := verifyLeaf(leaf, a.allCertificates(), withinLife(leaf, r.clock()), x509.ExtKeyUsageClientAuth); err != nil {
		return Identity{}, refusedError(op, "", CodeBadCertificate, "%w", err)
	}
	if id, err = identityOf(leaf); err != nil {
		return Identity{}, refusedError(op, "", CodeBadCertificate, "%w", err)
	}
	return id, nil
}

// inForce returns the client's certificate, if it is valid now and its identity was not
// revoked.
func (r *registrar) inForce(ctx context.Context, op string, id Identity, state *tls.ConnectionState) (*x509.Certificate, error) {
	leaf, now := state.PeerCertificates[0], r.clock()
	switch {
	case now.After(leaf.NotAfter):
		return nil, refusedError(op, id.Cluster, CodeCertificateExpired, "it ended at %s, and now it is %s", formatTime(leaf.NotAfter), formatTime(now))
	case now.Before(leaf.NotBefore):
		return nil, refusedError(op, id.Cluster, CodeBadCertificate, "it begins at %s, and now it is %s", formatTime(leaf.NotBefore), formatTime(now))
	}
	if err := r.checkRevoked(ctx, op, id, madeAfter(leaf)); err != nil {
		return nil, err
	}
	return leaf, nil
}

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
	if len(state.PeerCertificates) == 0 {
		return Identity{}, nil, refusedError(op, "", CodeBadCertificate, "the agent showed none")
	}
	a, leaf, now := r.authority(), state.PeerCertificates[0], r.clock()
	if err := a.check(); err != nil {
		return Identity{}, nil, internalError(op, "", err)
	}
	// First of all it has to be one of ours: that of another PKI is not "expired".
	err = verifyLeaf(leaf, a.allCertificates(), withinLife(leaf, now), x509.ExtKeyUsageClientAuth)
	if err == nil {
		id, err = identityOf(leaf)
	}
	switch {
	case err != nil:
		return Identity{}, nil, refusedError(op, "", CodeBadCertificate, "%w", err)
	case now.After(leaf.NotAfter):
		return id, nil, refusedError(op, id.Cluster, CodeCertificateExpired, "it ended at %s, and now it is %s", formatTime(leaf.NotAfter), formatTime(now))
	case now.Before(leaf.NotBefore):
		return id, nil, refusedError(op, id.Cluster, CodeBadCertificate, "it begins at %s, and now it is %s", formatTime(leaf.NotBefore), formatTime(now))
	}
	if err := r.checkRevoked(ctx, op, id, madeAfter(leaf)); err != nil {
		return id, nil, err
	}
	return id, leaf, nil
}

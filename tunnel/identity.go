package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Identity says which agent it is. It is a URI SAN in the certificate of an agent
// that enrolled, such as causeway://agent/default%2Fprod/k3w7hq2n, or what
// [Server.Identify] returned for another certificate.
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

// identifyBy returns the identity that the Server's field Identify returns for a
// connection.
func identifyBy(identify func(tls.ConnectionState) (Identity, error), state *tls.ConnectionState) (Identity, error) {
	id, err := identify(*state)
	var e *Error
	switch {
	case err == nil:
	case errors.As(err, &e):
		return Identity{}, &Error{Op: "connect", Cluster: provenCluster(id.Cluster), Code: cmp.Or(e.Code, CodeInternal), Err: e.Err}
	default:
		return Identity{}, &Error{Op: "connect", Cluster: provenCluster(id.Cluster), Code: CodeBadCertificate, Err: privateCause{error: err}}
	}
	if err := cmp.Or(wire.CheckCluster(id.Cluster), wire.CheckAgent(id.Agent)); err != nil {
		return Identity{}, internalError("connect", "", fmt.Errorf("field Identify of the Server returned an identity that can't be used: %w", err))
	}
	return id, nil
}

// identify returns the identity of a connection's client, and whether it came from
// Identify and not from a certificate of the authority. The error is an [*Error] with
// CodeCertificateExpired, CodeRevoked, CodeBadCertificate, CodeInternal or a code of
// Identify's; with the first two the identity is returned too.
func (r *registrar) identify(ctx context.Context, state *tls.ConnectionState) (id Identity, cert *x509.Certificate, byIdentify bool, err error) {
	id, issued, err := r.issuedTo("connect", state)
	if !issued && r.identifyOther != nil && len(state.PeerCertificates) > 0 {
		byIdentify = true
		id, err = identifyBy(r.identifyOther, state)
	}
	if err == nil {
		cert, err = r.inForce(ctx, "connect", id, state, byIdentify)
	}
	return id, cert, byIdentify, err
}

// issuedTo returns the identity in the client's certificate, and whether the authority
// issued it at all.
func (r *registrar) issuedTo(op string, state *tls.ConnectionState) (id Identity, issued bool, err error) {
	if len(state.PeerCertificates) == 0 {
		return Identity{}, false, refusedError(op, "", CodeBadCertificate, "the agent showed none")
	}
	a, leaf := r.authority(), state.PeerCertificates[0]
	if err := a.check(); err != nil {
		return Identity{}, false, internalError(op, "", err)
	}
	// First of all it has to be one of ours: that of another PKI is not "expired".
	if err := verifyLeaf(leaf, a.allCertificates(), withinLife(leaf, r.clock()), x509.ExtKeyUsageClientAuth); err != nil {
		return Identity{}, false, refusedError(op, "", CodeBadCertificate, "%w", err)
	}
	if id, err = identityOf(leaf); err != nil {
		return Identity{}, true, refusedError(op, "", CodeBadCertificate, "%w", err)
	}
	return id, true, nil
}

// inForce returns the client's certificate, if it is valid now and its identity was not
// revoked.
func (r *registrar) inForce(ctx context.Context, op string, id Identity, state *tls.ConnectionState, byIdentify bool) (*x509.Certificate, error) {
	leaf, now := state.PeerCertificates[0], r.clock()
	switch {
	case now.After(leaf.NotAfter):
		return nil, refusedError(op, id.Cluster, CodeCertificateExpired, "it ended at %s, and now it is %s", formatTime(leaf.NotAfter), formatTime(now))
	case now.Before(leaf.NotBefore):
		return nil, refusedError(op, id.Cluster, CodeBadCertificate, "it begins at %s, and now it is %s", formatTime(leaf.NotBefore), formatTime(now))
	}
	if err := r.checkRevoked(ctx, op, id, madeAfter(leaf, byIdentify)); err != nil {
		return nil, err
	}
	return leaf, nil
}

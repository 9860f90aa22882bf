package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// The protocols of ALPN.
const (
	protoTunnel = "causeway-tunnel/1"
	protoEnroll = "causeway-enroll/1"
	protoPeer   = "causeway-peer/1"
)

// clientTLS returns the configuration of a client that dials a server: an agent or
// another replica. cert may be nil. A server's certificate has a URI and no DNS name, so
// verify checks it and crypto/tls does not: its error is the cause of refused. The caller
// may set ServerName: it is sent, and nothing depends on it.
func clientTLS(proto string, cert *tls.Certificate, refused Error, verify func(*tls.ConnectionState) error) *tls.Config {
	config := &tls.Config{NextProtos: []string{proto}, InsecureSkipVerify: true}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verify(&state); err != nil {
			return &Error{Op: refused.Op, Cluster: refused.Cluster, Code: refused.Code, Err: err}
		}
		return nil
	}
	if cert != nil {
		// Unlike Certificates, it is sent whatever authorities the server names.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return carrier.Harden(config)
}

// sessionTLS is the configuration of an agent's sessions.
func (c *Credentials) sessionTLS() *tls.Config {
	refused := Error{Op: "connect", Cluster: c.identity().Cluster, Code: CodeServerCertificate}
	return clientTLS(protoTunnel, c.tlsCertificate(), refused, func(state *tls.ConnectionState) error {
		return verifyServer(state, protoTunnel, c.Roots, time.Now(), x509.ExtKeyUsageServerAuth)
	})
}

// enrollTLS is the configuration of an agent's enrolment: the pin says which
// authority to trust.
func enrollTLS(pin string) *tls.Config {
	return clientTLS(protoEnroll, nil, Error{Op: "enroll", Code: CodePin}, func(state *tls.ConnectionState) error {
		return verifyServer(state, protoEnroll, pinnedRoots(state, pin), time.Now(), x509.ExtKeyUsageServerAuth)
	})
}

// peerTLS returns the configuration of a replica that dials another one, and when
// the certificate in it ends.
func (r *registrar) peerTLS() (*tls.Config, time.Time, error) {
	own, err := r.ownCertificate()
	if err != nil {
		return nil, time.Time{}, err
	}
	config := clientTLS(protoPeer, own, Error{Op: "connect", Code: CodeServerCertificate}, r.verifyPeer)
	config.Time = r.clock
	return config, own.Leaf.NotAfter, nil
}

// serverTLS is the configuration of a server, for all carriers. It takes any client
// certificate whose key the client holds, or none: identify decides about it.
func (r *registrar) serverTLS() *tls.Config {
	return admission.LimitMessages(carrier.Harden(&tls.Config{
		NextProtos:     []string{protoTunnel, protoEnroll, protoPeer},
		ClientAuth:     tls.RequestClientCert,
		Time:           r.clock,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.ownCertificate() },
		VerifyConnection: func(state tls.ConnectionState) error {
			if state.NegotiatedProtocol == "" { // crypto/tls allows it
				return &Error{Op: "connect", Code: CodeVersion, Err: errors.New("the client names no protocol (ALPN)")}
			}
			return nil
		},
	}))
}

// tlsCertificate is what the agent shows to a server.
func (c *Credentials) tlsCertificate() *tls.Certificate {
	cert := &tls.Certificate{PrivateKey: c.Key}
	if c.isEnrolled() {
		cert.Leaf = c.Chain[0]
	}
	for _, link := range c.Chain {
		cert.Certificate = append(cert.Certificate, link.Raw)
	}
	return cert
}

// pinnedRoots returns those of the certificates that the server showed which are
// authorities with the pin.
func pinnedRoots(state *tls.ConnectionState, pin string) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(state.PeerCertificates), func(c *x509.Certificate) bool {
		return !c.IsCA || Pin(c) != pin
	})
}

func checkPin(pin string) error {
	sum, ok := strings.CutPrefix(pin, pinPrefix)
	if b, err := hex.DecodeString(sum); !ok || err != nil || len(b) != 32 || strings.ToLower(sum) != sum {
		return errors.New("the pin is to be sha256: and 64 lower-case hex digits")
	}
	return nil
}

// verifyServer checks that the other end speaks the protocol, and that its
// certificate is a server's, signed by one of the authorities for all the usages.
func verifyServer(state *tls.ConnectionState, proto string, roots []*x509.Certificate, at time.Time, usages ...x509.ExtKeyUsage) error {
	if state.NegotiatedProtocol != proto {
		return errors.New("the server does not speak " + proto)
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server showed no certificate")
	}
	leaf := state.PeerCertificates[0]
	if ours := tunnelURIs(leaf); len(ours) != 1 || ours[0].String() != serverURI {
		return errors.New("the certificate is not a server's: no URI SAN " + serverURI)
	}
	return verifyLeaf(leaf, roots, at, usages...)
}

// verifyLeaf checks that one of the authorities signed the certificate directly,
// and that it names all the usages.
func verifyLeaf(cert *x509.Certificate, roots []*x509.Certificate, at time.Time, usages ...x509.ExtKeyUsage) error {
	if cert.IsCA {
		return errors.New("the certificate is an authority's")
	}
	pool := x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	for _, usage := range usages {
		if !slices.Contains(cert.ExtKeyUsage, usage) { // x509 takes a certificate that names none for any use
			return errors.New("the certificate is for another use")
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			return err
		}
	}
	return nil
}

// withinLife returns the time in the certificate's life that is nearest to at. It
// is for checks of the signature only.
func withinLife(cert *x509.Certificate, at time.Time) time.Time {
	if at.After(cert.NotAfter) {
		return cert.NotAfter
	}
	if at.Before(cert.NotBefore) {
		return cert.NotBefore
	}
	return at
}

// tunnelURIs returns the URIs of our scheme.
func tunnelURIs(cert *x509.Certificate) []*url.URL {
	return slices.DeleteFunc(slices.Clone(cert.URIs), func(u *url.URL) bool { return u.Scheme != uriScheme })
}

// ownCertificate returns the server's certificate. A new one is made once half of
// its life is over or another authority signs; two calls may both make one.
func (r *registrar) ownCertificate() (*tls.Certificate, error) {
	a, now := r.authority(), r.clock()
	if err := a.check(); err != nil {
		return nil, err
	}
	if c := r.own.Load(); c != nil && c.issuer.Equal(a.Certificate) && now.Before(c.renewAt) && !now.Before(c.Leaf.NotBefore) {
		return &c.Certificate, nil
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	leaf, err := a.issueCertificate(key.Public(), nil, &url.URL{Scheme: uriScheme, Host: serverHost}, serverUsages(), now, serverLife)
	if err != nil {
		return nil, &Error{Op: "serve", Code: CodeInternal, Err: err}
	}
	c := &serverCertificate{issuer: a.Certificate, renewAt: now.Add(leaf.NotAfter.Sub(now) / 2)}
	c.Certificate = tls.Certificate{
		Certificate: [][]byte{leaf.Raw, a.Certificate.Raw}, // with the authority's, which agents compare with the pin
		PrivateKey:  key,
		Leaf:        leaf,
	}
	r.own.Store(c)
	return &c.Certificate, nil
}

// serverLife is the life of a server's certificate, whose key is in no file.
const serverLife = 7 * 24 * time.Hour

type serverCertificate struct {
	tls.Certificate
	issuer  *x509.Certificate
	renewAt time.Time
}

// serverUsages are both: servers are each other's clients.
func serverUsages() []x509.ExtKeyUsage {
	return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
}

// verifyPeer checks, at either end, that the other one is a server of the same
// authority. An agent's certificate is not enough, nor is a server's that was
// issued before servers had peers.
func (r *registrar) verifyPeer(state *tls.ConnectionState) error {
	a := r.authority()
	if err := a.check(); err != nil {
		return err
	}
	return verifyServer(state, protoPeer, a.allCertificates(), r.clock(), serverUsages()...)
}

// trustsPeerNow checks the certificate of a peer's session that is open by the
// authorities of now. The end of the certificate's life does not end the session.
func (r *registrar) trustsPeerNow(leaf *x509.Certificate) error {
	a := r.authority()
	if err := a.check(); err != nil {
		return err
	}
	return verifyLeaf(leaf, a.allCertificates(), withinLife(leaf, r.clock()), serverUsages()...)
}

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

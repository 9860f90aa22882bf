package tunnel

import (
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
)

// The protocols of ALPN.
const (
	protoTunnel = "causeway-tunnel/1"
	protoEnroll = "causeway-enroll/1"
	protoPeer   = "causeway-peer/1"
)

// tlsConfig is the agent's for a session. The caller may set ServerName: it is
// sent, and means nothing else. One will do for the sessions with one name.
func (c *Credentials) tlsConfig() *tls.Config {
	cert := c.certificate()
	return carrier.Harden(&tls.Config{
		NextProtos: []string{protoTunnel},
		// Sent whatever authorities the server may name.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil },
		// There is no DNS name to check, which tls insists on; VerifyConnection
		// checks all else.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := verifyServer(&state, protoTunnel, c.trusted(&state)); err != nil {
				return &Error{Op: "connect", Cluster: c.identity().Cluster, Code: c.distrust(), Err: err}
			}
			return nil
		},
	})
}

// certificate is what the agent shows.
func (c *Credentials) certificate() *tls.Certificate {
	if c.given != nil {
		return c.given.cert
	}
	cert := &tls.Certificate{PrivateKey: c.Key}
	if c.enrolled() {
		cert.Leaf = c.Chain[0]
	}
	for _, link := range c.Chain {
		cert.Certificate = append(cert.Certificate, link.Raw)
	}
	return cert
}

// trusted are the authorities that the server's certificate may be of.
func (c *Credentials) trusted(state *tls.ConnectionState) []*x509.Certificate {
	if c.given != nil {
		return append(pinned(state, c.given.pin), c.Roots...)
	}
	return c.Roots
}

// distrust is the code of a server's certificate of another authority.
func (c *Credentials) distrust() Code {
	if c.given != nil {
		return CodePin
	}
	return CodeServerCertificate
}

// enrollTLS is the agent's for an enrolment: the pin stands for the authority.
// The caller may set ServerName.
func enrollTLS(pin string) *tls.Config {
	return carrier.Harden(&tls.Config{
		NextProtos:         []string{protoEnroll},
		InsecureSkipVerify: true, // as in a session
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := verifyServer(&state, protoEnroll, pinned(&state, pin)); err != nil {
				return &Error{Op: "enroll", Code: CodePin, Err: err}
			}
			return nil
		},
	})
}

// pinned are the authorities with the pin that the server showed.
func pinned(state *tls.ConnectionState, pin string) []*x509.Certificate {
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

// verifyServer checks the other end's certificate and protocol.
func verifyServer(state *tls.ConnectionState, proto string, roots []*x509.Certificate) error {
	if state.NegotiatedProtocol != proto {
		return errors.New("the server does not speak " + proto)
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server showed no certificate")
	}
	leaf := state.PeerCertificates[0]
	if err := isServer(leaf); err != nil {
		return err
	}
	return verifyLeaf(leaf, roots, x509.ExtKeyUsageServerAuth, time.Now())
}

func isServer(leaf *x509.Certificate) error {
	if uris := uris(leaf); len(uris) != 1 || uris[0].String() != serverURI {
		return errors.New("the certificate is not a server's: no URI SAN " + serverURI)
	}
	return nil
}

// verifyLeaf checks that one of the authorities signed cert itself, for the
// usage, which cert has to name.
func verifyLeaf(cert *x509.Certificate, roots []*x509.Certificate, usage x509.ExtKeyUsage, at time.Time) error {
	if cert.IsCA {
		return errors.New("the certificate is an authority's")
	}
	if !slices.Contains(cert.ExtKeyUsage, usage) { // x509 takes none for any
		return errors.New("the certificate is for another use")
	}
	pool := x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	_, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// inLife returns the time in cert's life that is nearest to at.
func inLife(cert *x509.Certificate, at time.Time) time.Time {
	if at.After(cert.NotAfter) {
		return cert.NotAfter
	}
	if at.Before(cert.NotBefore) {
		return cert.NotBefore
	}
	return at
}

// uris returns those of our scheme.
func uris(cert *x509.Certificate) (ours []*url.URL) {
	for _, u := range cert.URIs {
		if u.Scheme == uriScheme {
			ours = append(ours, u)
		}
	}
	return ours
}

// tlsConfig is the server's, for all carriers. It takes any client certificate
// whose key the client holds, or none: identify judges it.
func (e *enroller) tlsConfig() *tls.Config {
	return admission.Sparing(carrier.Harden(&tls.Config{
		NextProtos: []string{protoTunnel, protoEnroll, protoPeer},
		ClientAuth: tls.RequestClientCert,
		Time:       e.clock,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return e.certificate()
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			if state.NegotiatedProtocol == "" { // which tls lets pass
				return &Error{Op: "connect", Code: CodeVersion, Err: errors.New("the client names no protocol (ALPN)")}
			}
			return nil
		},
	}))
}

// certificate returns the server's own, made anew once half of its life is
// over or another authority signs. Two calls may both make one.
func (e *enroller) certificate() (*tls.Certificate, error) {
	a, now := e.authority(), e.clock()
	if err := a.check(); err != nil {
		return nil, err
	}
	if c := e.own.Load(); c != nil && c.issuer.Equal(a.Certificate) && now.Before(c.renewAt) && !now.Before(c.Leaf.NotBefore) {
		return &c.Certificate, nil
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	leaf, err := a.issue(key.Public(), &url.URL{Scheme: uriScheme, Host: serverHost}, serverUsages(), now, serverLife)
	if err != nil {
		return nil, &Error{Op: "serve", Code: CodeInternal, Err: err}
	}
	c := &ownCertificate{issuer: a.Certificate, renewAt: now.Add(leaf.NotAfter.Sub(now) / 2)}
	c.Certificate = tls.Certificate{
		Certificate: [][]byte{leaf.Raw, a.Certificate.Raw}, // the authority's, to be pinned
		PrivateKey:  key,
		Leaf:        leaf,
	}
	e.own.Store(c)
	return &c.Certificate, nil
}

// serverLife is of the server's own certificate, whose key is in no file.
const serverLife = 7 * 24 * time.Hour

type ownCertificate struct {
	tls.Certificate
	issuer  *x509.Certificate
	renewAt time.Time
}

// peerTLS is of a replica that dials another one, and says when the
// certificate that it shows ends.
func (e *enroller) peerTLS() (*tls.Config, time.Time, error) {
	own, err := e.certificate()
	if err != nil {
		return nil, time.Time{}, err
	}
	return carrier.Harden(&tls.Config{
		NextProtos: []string{protoPeer},
		// Sent whatever authorities the other one may name.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil },
		// As an agent's: VerifyConnection checks it, without a DNS name.
		InsecureSkipVerify: true,
		Time:               e.clock,
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := e.verifyPeer(&state); err != nil {
				return &Error{Op: "connect", Code: CodeServerCertificate, Err: err}
			}
			return nil
		},
	}), own.Leaf.NotAfter, nil
}

// verifyPeer checks, at either end, that the other one is a server of the same
// authority. An agent's certificate is not enough, nor is a server's that was
// issued before servers had peers.
func (e *enroller) verifyPeer(state *tls.ConnectionState) error {
	if state.NegotiatedProtocol != protoPeer {
		return errors.New("the peer does not speak " + protoPeer)
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("the peer showed no certificate")
	}
	leaf := state.PeerCertificates[0]
	if err := isServer(leaf); err != nil {
		return err
	}
	return e.trustsPeer(leaf, e.clock())
}

// trustsPeer returns whether the certificate is of an authority of now.
func (e *enroller) trustsPeer(leaf *x509.Certificate, at time.Time) error {
	a := e.authority()
	if err := a.check(); err != nil {
		return err
	}
	for _, usage := range serverUsages() {
		if err := verifyLeaf(leaf, a.all(), usage, at); err != nil {
			return err
		}
	}
	return nil
}

// trustsPeerNow is trustsPeer for a session that there is: an end of the
// certificate's life does not end it.
func (e *enroller) trustsPeerNow(leaf *x509.Certificate) error {
	return e.trustsPeer(leaf, inLife(leaf, e.clock()))
}

// signedNow reports whether the authority that signs now has signed the
// certificate. One of another may soon be of no use.
func (e *enroller) signedNow(leaf *x509.Certificate) bool {
	return leaf.CheckSignatureFrom(e.authority().Certificate) == nil
}

// serverUsages are both: servers are each other's clients.
func serverUsages() []x509.ExtKeyUsage {
	return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
}

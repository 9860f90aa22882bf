package tunnel

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/carrier"
)

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

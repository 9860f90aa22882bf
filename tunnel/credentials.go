package tunnel

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Credentials are an agent's key and certificate, and the authorities that it
// trusts. They are not changed once made; a renewal makes new ones.
type Credentials struct {
	// Key is the agent's own. It is saved before the first enrolment, which can then
	// be repeated with the same token.
	Key crypto.Signer
	// Chain is the certificate of Key, leaf first; empty before the enrolment.
	Chain []*x509.Certificate
	// Roots are the authorities that the server's certificate may be of; empty
	// before the enrolment.
	Roots []*x509.Certificate
	// Servers are the addresses of the last invitation that named some. They are used if
	// neither the Agent nor an invitation names any. May be empty.
	Servers []string
}

// isEnrolled reports whether there is a certificate to connect with.
func (c *Credentials) isEnrolled() bool { return c != nil && len(c.Chain) > 0 }

// identity is the zero Identity before the enrolment.
func (c *Credentials) identity() (id Identity) {
	if c.isEnrolled() {
		id, _ = identityOf(c.Chain[0]) // check has seen it
	}
	return id
}

// expires is when the certificate ends, by the server's clock; the zero time
// before the enrolment.
func (c *Credentials) expires() time.Time {
	if !c.isEnrolled() {
		return time.Time{}
	}
	return c.Chain[0].NotAfter
}

// renewAt is when two thirds of the certificate's life are over; the zero time
// before the enrolment. A certificate is backdated, so its life begins later than it says.
func (c *Credentials) renewAt() time.Time {
	if !c.isEnrolled() {
		return time.Time{}
	}
	leaf := c.Chain[0]
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	if life > backdate {
		life -= backdate
	}
	return leaf.NotAfter.Add(-life / 3)
}

// check returns whether the parts fit each other.
func (c *Credentials) check() error {
	if c == nil || c.Key == nil {
		return errors.New("no key")
	}
	if len(c.Chain) == 0 {
		return nil
	}
	if !sameKey(c.Key.Public(), c.Chain[0].PublicKey) {
		return errors.New("the certificate is of another key")
	}
	if len(c.Roots) == 0 {
		return errors.New("no authority to trust")
	}
	_, err := identityOf(c.Chain[0])
	return err
}

// String returns whose credentials they are: no verb of fmt prints the key.
func (c Credentials) String() string {
	if !c.isEnrolled() {
		return "tunnel.Credentials{not enrolled}"
	}
	return fmt.Sprintf("tunnel.Credentials{%s, until %s}", c.identity(), formatTime(c.expires()))
}

// Format writes String, whatever the verb.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText returns String: JSON and logs hold no key.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// acceptRenewal returns the credentials that the answer to a RENEW makes with the
// key. Their identity has to be that of c, which is not changed.
func (c *Credentials) acceptRenewal(answer *wire.Message, key crypto.Signer) (*Credentials, error) {
	id := c.identity()
	next, err := parseIssued(answer, "renew", id.Cluster, key, c.Roots)
	if err != nil {
		return nil, err
	}
	next.Servers = c.Servers
	if next.identity() != id {
		return nil, &Error{Op: "renew", Cluster: id.Cluster, Code: CodeBadCertificate, Err: errors.New("the server gave another identity")}
	}
	return next, nil
}

// withAuthorities returns the credentials with the authorities in the message; c itself
// if they are the same. c is not changed.
func (c *Credentials) withAuthorities(m *wire.Message) (*Credentials, error) {
	roots, err := parseAuthorities(m, c.Roots)
	if err != nil {
		return nil, &Error{Op: "connect", Cluster: c.identity().Cluster, Code: CodeBadRequest, Err: err}
	}
	if slices.EqualFunc(roots, c.Roots, (*x509.Certificate).Equal) {
		return c, nil
	}
	next := *c
	next.Roots = roots
	return &next, nil
}

// parseIssued reads an ISSUED, and checks that it has a certificate of key, for an
// agent, signed by one of the authorities that it names. Certificates in known are
// not parsed again.
func parseIssued(m *wire.Message, op, cluster string, key crypto.Signer, known []*x509.Certificate) (*Credentials, error) {
	if err := messageError(m, op, cluster, ""); err != nil {
		return nil, err
	}
	chain, err1 := parseCertificateFields(m, wire.TagCertificate, nil)
	roots, err2 := parseAuthorities(m, known)
	c := &Credentials{Key: key, Chain: chain, Roots: roots}
	err := errors.Join(err1, err2)
	if err == nil && len(chain) == 0 {
		err = errors.New("the server sent no certificate")
	}
	if err == nil {
		err = c.check()
	}
	if err == nil {
		// The server's clock decides when it is valid.
		err = verifyLeaf(chain[0], roots, withinLife(chain[0], time.Now()), x509.ExtKeyUsageClientAuth)
	}
	if err != nil {
		return nil, &Error{Op: op, Cluster: cluster, Code: CodeBadCertificate, Err: err}
	}
	return c, nil
}

// parseAuthorities returns the authorities that the message tells the agent to trust.
func parseAuthorities(m *wire.Message, known []*x509.Certificate) ([]*x509.Certificate, error) {
	roots, err := parseCertificateFields(m, wire.TagRoot, known)
	if err == nil && len(roots) == 0 {
		err = errors.New("the server names no authority to trust")
	}
	if slices.ContainsFunc(roots, func(c *x509.Certificate) bool { return !c.IsCA }) {
		err = errors.New("the server names an authority that is none")
	}
	return roots, err
}

// maxCertificates bounds what an agent takes from one message.
const maxCertificates = 32

// parseCertificateFields parses the fields with the tag. A certificate that is in
// known is returned from there: parsed it takes 3 KiB, and while there is a
// connection, crypto/tls holds the authority's anyway.
func parseCertificateFields(m *wire.Message, t wire.Tag, known []*x509.Certificate) ([]*x509.Certificate, error) {
	all := slices.Collect(m.All(t))
	if len(all) > maxCertificates {
		return nil, errors.New("too many certificates")
	}
	var certs []*x509.Certificate
	for _, der := range all {
		if i := slices.IndexFunc(known, func(c *x509.Certificate) bool { return bytes.Equal(c.Raw, der) }); i >= 0 {
			certs = append(certs, known[i])
			continue
		}
		cert, err := x509.ParseCertificate(bytes.Clone(der)) // not to keep the message
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

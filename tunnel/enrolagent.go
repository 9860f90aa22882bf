package tunnel

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxCertificates bounds what an agent takes from one message.
const maxCertificates = 32

// enroll asks the server for a certificate of key, on a connection whose
// handshake is done. program names the agent's program and its version. What
// it returns is for a CredentialStore. The connection is the caller's to
// close; after the end of ctx it is of no use.
func enroll(ctx context.Context, conn net.Conn, state *tls.ConnectionState, inv Invitation, key crypto.Signer, program string) (*Credentials, error) {
	m := wire.New(wire.MsgEnroll).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagToken, inv.Token)
	if inv.Cluster != "" {
		m.AddString(wire.TagCluster, inv.Cluster)
	}
	m.AddString(wire.TagProgram, program)
	if err := m.AddRequest(state, key); err != nil {
		return nil, internal("enroll", inv.Cluster, err)
	}
	answer, err := ask(ctx, conn, m)
	if err != nil {
		return nil, askError(ctx, inv.Cluster, err)
	}
	if answer.Kind != wire.MsgIssued && answer.Kind != wire.MsgRefusal {
		return nil, &Error{Op: "enroll", Cluster: inv.Cluster, Code: CodeBadRequest, Err: errors.New("the server's answer is something else")}
	}
	c, err := issued(answer, "enroll", inv.Cluster, key, state.PeerCertificates)
	if err != nil {
		return nil, err
	}
	if inv.Cluster != "" && c.identity().Cluster != inv.Cluster {
		return nil, &Error{Op: "enroll", Cluster: inv.Cluster, Code: CodeWrongCluster}
	}
	return c, nil
}

// ask writes m and reads the answer, both within ctx.
func ask(ctx context.Context, conn net.Conn, m *wire.Message) (*wire.Message, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := wire.Write(conn, m); err != nil {
		return nil, err
	}
	if f, ok := conn.(interface{ Flush() error }); ok {
		if err := f.Flush(); err != nil {
			return nil, err
		}
	}
	return wire.Read(conn, wire.MaxBody)
}

func askError(ctx context.Context, cluster string, err error) error {
	e := &Error{Op: "enroll", Cluster: cluster, Code: CodeLost, Err: err}
	switch cause := ctx.Err(); {
	case errors.Is(cause, context.DeadlineExceeded):
		e.Code, e.Err = CodeTimeout, cause
	case cause != nil:
		e.Code, e.Err = CodeCanceled, cause
	case errors.Is(err, wire.ErrMalformed):
		e.Code = CodeBadRequest
	}
	return e
}

// newRequest makes a key and the RENEW that asks for its certificate on
// this connection. The key is for accept, along with the answer that has the
// message's id.
func newRequest(state *tls.ConnectionState) (crypto.Signer, *wire.Message, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, internal("renew", "", err)
	}
	m := wire.New(wire.MsgRenew).AddString(wire.TagID, rand.Text())
	if err := m.AddRequest(state, key); err != nil {
		return nil, nil, internal("renew", "", err)
	}
	return key, m, nil
}

// accept returns the credentials that the answer to a RENEW makes with the
// key. They are of the same identity. c stays as it is.
func (c *Credentials) accept(answer *wire.Message, key crypto.Signer) (*Credentials, error) {
	id := c.identity()
	next, err := issued(answer, "renew", id.Cluster, key, c.Roots)
	if err != nil {
		return nil, err
	}
	if next.identity() != id {
		return nil, &Error{Op: "renew", Cluster: id.Cluster, Code: CodeBadCertificate, Err: errors.New("the server gave another identity")}
	}
	return next, nil
}

// trusting returns the credentials with the message's authorities in place of
// theirs, and with what else it says of the agent; c itself if that is the
// same. c stays as it is.
func (c *Credentials) trusting(m *wire.Message) (*Credentials, error) {
	roots, err := authorities(m, c.Roots)
	if err != nil {
		return nil, &Error{Op: "connect", Cluster: c.identity().Cluster, Code: CodeBadRequest, Err: err}
	}
	g := c.given.named(m)
	if g == c.given && slices.EqualFunc(roots, c.Roots, (*x509.Certificate).Equal) {
		return c, nil
	}
	return &Credentials{Key: c.Key, Chain: c.Chain, Roots: roots, given: g}, nil
}

// issued reads an ISSUED, and checks that it is of use: a certificate of
// key, for an agent, of an authority among those that it names. known is for
// certificates.
func issued(m *wire.Message, op, cluster string, key crypto.Signer, known []*x509.Certificate) (*Credentials, error) {
	if err := messageError(m, op, cluster, ""); err != nil {
		return nil, err
	}
	chain, err1 := certificates(m, wire.TagCertificate, nil)
	roots, err2 := authorities(m, known)
	c := &Credentials{Key: key, Chain: chain, Roots: roots}
	err := errors.Join(err1, err2)
	if err == nil && len(chain) == 0 {
		err = errors.New("the server sent no certificate")
	}
	if err == nil {
		err = c.check()
	}
	if err == nil {
		// When it is valid is for the server's clock to say.
		err = verifyLeaf(chain[0], roots, x509.ExtKeyUsageClientAuth, inLife(chain[0], time.Now()))
	}
	if err != nil {
		return nil, &Error{Op: op, Cluster: cluster, Code: CodeBadCertificate, Err: err}
	}
	return c, nil
}

// authorities are those that the message tells the agent to trust.
func authorities(m *wire.Message, known []*x509.Certificate) ([]*x509.Certificate, error) {
	roots, err := certificates(m, wire.TagRoot, known)
	if err == nil && len(roots) == 0 {
		err = errors.New("the server names no authority to trust")
	}
	if slices.ContainsFunc(roots, func(c *x509.Certificate) bool { return !c.IsCA }) {
		err = errors.New("the server names an authority that is none")
	}
	return roots, err
}

// certificates parses the fields with the tag. For what is in known it returns
// that: a parsed certificate takes 3 KiB, and crypto/tls, which keeps each
// once, has the authority's for as long as there is a connection.
func certificates(m *wire.Message, t wire.Tag, known []*x509.Certificate) ([]*x509.Certificate, error) {
	all := m.All(t)
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

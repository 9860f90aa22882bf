package tunnel

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"net"
	"time"
)

// What the tests of enrolment, identity and trust reach inside for.

type (
	Enroller     = enroller
	EnrolMessage = message
)

const (
	MsgEnroll = msgEnroll
	MsgRenew  = msgRenew
	MsgIssued = msgIssued
	MsgRoots  = msgRoots

	TagCode        = tagCode
	TagText        = tagText
	TagVersion     = tagVersion
	TagID          = tagID
	TagCluster     = tagCluster
	TagToken       = tagToken
	TagRequest     = tagRequest
	TagProof       = tagProof
	TagCertificate = tagCertificate
	TagRoot        = tagRoot

	ProtoTunnel = protoTunnel
	ProtoEnroll = protoEnroll
	Backdate    = backdate
	DefaultLife = defaultLife
	MaxEnroll   = maxEnroll
)

var (
	ReadEnrol  = readMessage
	WriteEnrol = writeMessage
	EnrollTLS  = enrollTLS
	Enroll     = enroll
	NewRequest = newRequest
	CheckKey   = checkKey
)

func NewEnroller(authority func() *Authority, store Store, life time.Duration, now func() time.Time) *Enroller {
	return &enroller{authority: authority, store: store, life: life, now: now}
}

func (e *enroller) TLSConfig() *tls.Config { return e.tlsConfig() }

func (e *enroller) PeerTLS() (*tls.Config, error) {
	config, _, err := e.peerTLS()
	return config, err
}

func (e *enroller) Invite(ctx context.Context, cluster string, life time.Duration) (string, time.Time, error) {
	return e.invite(ctx, cluster, life)
}

func (e *enroller) Identify(ctx context.Context, state *tls.ConnectionState) (Identity, *x509.Certificate, error) {
	id, cert, _, err := e.identify(ctx, state)
	return id, cert, err
}

func (e *enroller) Enroll(ctx context.Context, state *tls.ConnectionState, m *EnrolMessage) (*EnrolMessage, Identity, error) {
	return e.enroll(ctx, state, m)
}

func (e *enroller) Renew(ctx context.Context, id Identity, state *tls.ConnectionState, m *EnrolMessage) *EnrolMessage {
	return e.renew(ctx, id, state, m)
}

func (a *Authority) Roots() *EnrolMessage { return a.addRoots(&message{kind: msgRoots}) }

// SessionTLS returns an agent's configurations for its sessions.
func SessionTLS(of []*Credentials, names ...string) (configs []*tls.Config) {
	r := &runner{}
	for i, c := range of {
		configs = append(configs, r.tlsConfig(c, names[i]))
	}
	return configs
}

func (c *Credentials) TLSConfig() *tls.Config { return c.tlsConfig() }

func (c *Credentials) Accept(m *EnrolMessage, key crypto.Signer) (*Credentials, error) {
	return c.accept(m, key)
}

func (c *Credentials) Trusting(m *EnrolMessage) (*Credentials, error) { return c.trusting(m) }

func (c *Credentials) Identity() Identity { return c.identity() }

func (c *Credentials) RenewAt() time.Time { return c.renewAt() }

func (c *Credentials) Expires() time.Time { return c.expires() }

func NewEnrolMessage(kind messageKind) *EnrolMessage { return &message{kind: kind} }

func (m *message) Bytes(t tag, v []byte) *EnrolMessage { return m.bytes(t, v) }

func (m *message) String(t tag, v string) *EnrolMessage { return m.string(t, v) }

func (m *message) Uint(t tag, v uint64) *EnrolMessage { return m.uint(t, v) }

func (m *message) Get(t tag) []byte { return m.get(t) }

func (m *message) Kind() messageKind { return m.kind }

func (m *message) Code() Code { return Code(m.getUint(tagCode)) }

func (m *message) AddRequest(state *tls.ConnectionState, key crypto.Signer) error {
	return m.addRequest(state, key)
}

func (m *message) Check() error { return m.check() }

func Prove(state *tls.ConnectionState, request []byte, key crypto.Signer) ([]byte, error) {
	return prove(state, request, key)
}

// ReadToken reads a token, and writes its text anew from what was read. The
// error says why it is none, or none of the authority.
func ReadToken(text string, authority *x509.Certificate) (again string, err error) {
	t, err := parseToken(text)
	if err != nil {
		return "", err
	}
	id, _ := base32Lower.DecodeString(t.id)
	body := binary.BigEndian.AppendUint64(id, uint64(t.expires.UnixMilli()))
	body = append(append(body, t.key...), t.cluster...)
	return tokenPrefix + encodeToken(body) + "." + encodeToken(t.signature), t.verify([]*x509.Certificate{authority})
}

// AskFor is Enroll with a message of the test's own.
func AskFor(ctx context.Context, conn net.Conn, m *EnrolMessage) (*EnrolMessage, error) {
	return ask(ctx, conn, m)
}

// SetClock has the server judge and issue by another clock than the agent's.
func (s *Server) SetClock(now func() time.Time) error {
	err := s.setup()
	if err == nil {
		s.enroller.now = now
	}
	return err
}

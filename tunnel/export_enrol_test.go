package tunnel

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// What the tests of enrolment, identity and trust reach inside for.

type Enroller = enroller

const (
	ProtoTunnel = protoTunnel
	ProtoEnroll = protoEnroll
	Backdate    = backdate
	DefaultLife = defaultLife
	MaxEnroll   = maxEnroll
)

var (
	EnrollTLS  = enrollTLS
	Enroll     = requestCertificate
	NewRequest = newRequest
)

func NewEnroller(authority func() *Authority, store Store, life time.Duration, now func() time.Time) *Enroller {
	return &enroller{authority: authority, store: store, life: life, now: now}
}

func (e *enroller) TLSConfig() *tls.Config { return e.serverTLS() }

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

func (e *enroller) Enroll(ctx context.Context, state *tls.ConnectionState, m *wire.Message) (*wire.Message, Identity, error) {
	return e.answerEnroll(ctx, state, m)
}

func (e *enroller) Renew(ctx context.Context, id Identity, state *tls.ConnectionState, m *wire.Message) *wire.Message {
	return e.answerRenew(ctx, id, state, m)
}

func (a *Authority) Roots() *wire.Message { return a.addRoots(wire.New(wire.MsgRoots)) }

// SessionTLS returns an agent's configurations for its sessions.
func SessionTLS(of []*Credentials, names ...string) (configs []*tls.Config) {
	r := &runner{}
	for i, c := range of {
		configs = append(configs, r.tlsConfig(c, names[i]))
	}
	return configs
}

func (c *Credentials) TLSConfig() *tls.Config { return c.sessionTLS() }

func (c *Credentials) Accept(m *wire.Message, key crypto.Signer) (*Credentials, error) {
	return c.acceptRenewal(m, key)
}

func (c *Credentials) Trusting(m *wire.Message) (*Credentials, error) { return c.withAuthorities(m) }

func (c *Credentials) Identity() Identity { return c.identity() }

func (c *Credentials) RenewAt() time.Time { return c.renewAt() }

func (c *Credentials) Expires() time.Time { return c.expires() }

// SetClock has the server judge and issue by another clock than the agent's.
func (s *Server) SetClock(now func() time.Time) error {
	err := s.setup()
	if err == nil {
		s.enroller.now = now
	}
	return err
}

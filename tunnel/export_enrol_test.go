package tunnel

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// What the tests of enrolment, identity and trust reach inside for.

type Registrar = registrar

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

	AgentSerial = agentSerial
)

func NewRegistrar(authority func() *Authority, store Store, life time.Duration, now func() time.Time) *Registrar {
	return &registrar{authority: authority, records: &Records{Store: store}, life: life, now: now}
}

func (r *registrar) SetEnroller(e Enroller) { r.enroller = e }

func (r *registrar) AskEnroller(ctx context.Context, from netip.Prefix, e Enrollment) (string, error) {
	return r.askEnroller(ctx, from, e)
}

// Sources returns how many sources have calls of the Enroller.
func (r *registrar) Sources() int {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	return len(r.calls.sources)
}

func MadeAfter(c *x509.Certificate) time.Time { return madeAfter(c) }

func (r *registrar) TLSConfig() *tls.Config { return r.serverTLS() }

func (r *registrar) PeerTLS() (*tls.Config, error) {
	config, _, err := r.peerTLS()
	return config, err
}

func (r *registrar) Invite(ctx context.Context, cluster string, life time.Duration) (Invitation, error) {
	return r.invite(ctx, cluster, 1, life)
}

func (r *registrar) InviteAgents(ctx context.Context, cluster string, agents int, life time.Duration) (Invitation, error) {
	return r.invite(ctx, cluster, agents, life)
}

func (r *registrar) Identify(ctx context.Context, state *tls.ConnectionState) (Identity, *x509.Certificate, error) {
	return r.identify(ctx, "connect", state)
}

func (r *registrar) Enroll(ctx context.Context, state *tls.ConnectionState, m *wire.Message) (*wire.Message, Identity, error) {
	answer, id, err := r.enrollAgent(ctx, netip.Prefix{}, state, m)
	if err != nil {
		answer = refusalOf(wire.MsgIssued, err)
	}
	return answer, id, err
}

func (r *registrar) Renew(ctx context.Context, id Identity, state *tls.ConnectionState, m *wire.Message) *wire.Message {
	return r.answerRenew(ctx, id, state, m)
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
		s.registrar.now = now
	}
	return err
}

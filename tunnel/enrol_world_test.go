package tunnel_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base32"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// tunnelServer is the part of a server that enrols and identifies, on
// connections with real TLS.
type tunnelServer struct {
	t         testing.TB
	authority atomic.Pointer[tunnel.Authority]
	store     tunnel.Store
	ahead     atomic.Int64 // of the server's clock, in nanoseconds
	registrar *tunnel.Registrar
}

func newTunnelServer(t testing.TB, store tunnel.Store) *tunnelServer {
	s := &tunnelServer{t: t, store: store}
	s.authority.Store(newAuthority(t))
	s.registrar = tunnel.NewRegistrar(s.authority.Load, store, 0, s.now)
	return s
}

func newAuthority(t testing.TB) *tunnel.Authority {
	t.Helper()
	return must(tunnel.NewAuthority())(t)
}

func (s *tunnelServer) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

func (s *tunnelServer) setAhead(d time.Duration) { s.ahead.Store(int64(d)) }

func (s *tunnelServer) invite(cluster string) tunnel.Invitation {
	s.t.Helper()
	return s.inviteFor(cluster, 0)
}

func (s *tunnelServer) inviteFor(cluster string, life time.Duration) tunnel.Invitation {
	s.t.Helper()
	inv, err := s.registrar.Invite(s.t.Context(), cluster, life)
	if err != nil {
		s.t.Fatal(err)
	}
	return inv
}

// linkTLS returns both ends of a TLS connection, and what the handshakes said.
func linkTLS(t testing.TB, client, server *tls.Config) (a, b *tls.Conn, clientErr, serverErr error) {
	t.Helper()
	rawA, rawB := tcpPipe(t)
	a, b = tls.Client(rawA, client), tls.Server(rawB, server)
	t.Cleanup(func() { rawA.Close(); rawB.Close() })
	done := make(chan error, 1)
	go func() {
		err := b.HandshakeContext(t.Context())
		if err != nil {
			rawB.Close()
		}
		done <- err
	}()
	if clientErr = a.HandshakeContext(t.Context()); clientErr != nil {
		rawA.Close()
	}
	return a, b, clientErr, <-done
}

// tcpPipe is a net.Pipe with room: an alert that nobody reads does not block.
func tcpPipe(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	a = must(net.Dial("tcp", l.Addr().String()))(t) // the kernel accepts
	return a, must(l.Accept())(t)
}

// link is linkTLS with this server, and both have to be content.
func (s *tunnelServer) link(client *tls.Config) (a, b *tls.Conn) {
	s.t.Helper()
	a, b, err1, err2 := linkTLS(s.t, client, s.registrar.TLSConfig())
	if err := errors.Join(err1, err2); err != nil {
		s.t.Fatal(err)
	}
	return a, b
}

// answer reads one message from the agent, answers it by f and closes. The
// returned function waits for that.
func answer(t testing.TB, conn *tls.Conn, f func(*wire.Message) *wire.Message) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer conn.NetConn().Close() // an alert would wait for a reader
		m, err := wire.Read(conn, tunnel.MaxEnroll)
		if err != nil {
			return // the agent thought better of it
		}
		if out := f(m); out != nil {
			if err := wire.Write(conn, out); err != nil {
				t.Error(err)
			}
		}
	}()
	return func() { conn.NetConn().Close(); <-done }
}

// enroll lets an agent enrol. err is the agent's view, hookErr the server's.
func (s *tunnelServer) enroll(inv tunnel.Invitation, key crypto.Signer) (c *tunnel.Credentials, id tunnel.Identity, err, hookErr error) {
	s.t.Helper()
	a, b, err1, err2 := linkTLS(s.t, tunnel.EnrollTLS(inv.Pin), s.registrar.TLSConfig())
	if err1 != nil {
		return nil, id, err1, err2
	}
	state := b.ConnectionState()
	wait := answer(s.t, b, func(m *wire.Message) (out *wire.Message) {
		out, id, hookErr = s.registrar.Enroll(s.t.Context(), &state, m)
		return out
	})
	agentState := a.ConnectionState()
	c, err = tunnel.Enroll(s.t.Context(), a, &agentState, inv, key, "test 1")
	wait()
	return c, id, err, hookErr
}

// enrolled returns the credentials of a new agent.
func (s *tunnelServer) enrolled(cluster string) *tunnel.Credentials {
	s.t.Helper()
	c, _, err, hookErr := s.enroll(s.invite(cluster), newKey(s.t))
	if err := errors.Join(err, hookErr); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// connect opens a session's connection, and returns whom the server sees.
func (s *tunnelServer) connect(c *tunnel.Credentials) (tunnel.Identity, error) {
	s.t.Helper()
	_, b, err1, err2 := linkTLS(s.t, c.TLSConfig(), s.registrar.TLSConfig())
	if err1 != nil {
		return tunnel.Identity{}, err1
	}
	if err2 != nil {
		return tunnel.Identity{}, err2
	}
	state := b.ConnectionState()
	id, _, err := s.registrar.Identify(s.t.Context(), &state)
	return id, err
}

// renew renews on a new session.
func (s *tunnelServer) renew(c *tunnel.Credentials) (*tunnel.Credentials, error) {
	s.t.Helper()
	a, b := s.link(c.TLSConfig())
	return s.renewOn(c, a, b)
}

func (s *tunnelServer) renewOn(c *tunnel.Credentials, a, b *tls.Conn) (*tunnel.Credentials, error) {
	s.t.Helper()
	stateA, stateB := a.ConnectionState(), b.ConnectionState()
	key, m, err := tunnel.NewRequest(&stateA)
	if err != nil {
		return nil, err
	}
	return c.Accept(s.registrar.Renew(s.t.Context(), c.Identity(), &stateB, m), key)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

// leaf signs a certificate that begins as a good one of an agent does; change
// makes it another.
func leaf(t testing.TB, a *tunnel.Authority, key crypto.Signer, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "leaf"},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:         []*url.URL{tunnel.Identity{Cluster: "prod", Agent: "a"}.URI()},
	}
	if change != nil {
		change(template)
	}
	der := must(x509.CreateCertificate(rand.Reader, template, a.Certificate, key.Public(), a.Key))(t)
	return must(x509.ParseCertificate(der))(t)
}

func codeIn(err error) tunnel.Code {
	var e *tunnel.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// must is for what cannot fail: must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// tokenParts decodes the token: what is signed, and the signature.
func tokenParts(t testing.TB, token string) (body, signature []byte) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[0] != "causeway1" {
		t.Fatalf("got a token of another form, of %d characters", len(token))
	}
	decode := base64.RawURLEncoding.DecodeString
	return must(decode(parts[1]))(t), must(decode(parts[2]))(t)
}

// tokenText is the text of a token with these parts.
func tokenText(body, signature []byte) string {
	encode := base64.RawURLEncoding.EncodeToString
	return "causeway1." + encode(body) + "." + encode(signature)
}

// spentFor returns the key that the token was spent for in the store; "" if it
// was not, but then it is now.
func spentFor(t testing.TB, store tunnel.Store, token string) string {
	t.Helper()
	if tok := must(recordsOf(store).ClaimToken(t.Context(), tokenID(t, token), "nobody"))(t); tok.Keys[0] != "nobody" {
		return tok.Keys[0]
	}
	return ""
}

func tokenID(t testing.TB, token string) string {
	t.Helper()
	body, _ := tokenParts(t, token)
	return strings.ToLower(base32.StdEncoding.EncodeToString(body[:10]))
}

// brokenStore fails, with a cause that nobody else is to see.
type brokenStore struct{ tunnel.Store }

var errBroken = errors.New("the disk of 10.1.2.3 is full")

func (s brokenStore) Get(ctx context.Context, kind tunnel.Kind, name string) (tunnel.Record, error) {
	if kind == tunnel.KindToken {
		return tunnel.Record{}, errBroken
	}
	return s.Store.Get(ctx, kind, name)
}

// recordsOf are the tokens and revocations of the store.
func recordsOf(s tunnel.Store) *tunnel.Records { return &tunnel.Records{Store: s} }

func pemCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

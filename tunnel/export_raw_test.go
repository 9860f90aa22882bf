package tunnel

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// What tests need to be an agent or a server that misbehaves.

// RawCarrier speaks TLS as an agent with the credentials; nil: none, and the
// protocol is that of an enrolment.
func RawCarrier(ctx context.Context, conn net.Conn, c *Credentials) (net.Conn, error) {
	config := carrier.Harden(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{protoEnroll}})
	if c != nil {
		config = c.sessionTLS()
	}
	raw, err := carrier.Client(ctx, conn, config)
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// RawServerCarrier speaks TLS as a server.
func RawServerCarrier(ctx context.Context, conn net.Conn, a *Authority) (*Carrier, error) {
	e := &registrar{authority: func() *Authority { return a }, records: &Records{Store: &MemoryStore{}}}
	return carrier.Server(ctx, conn, e.serverTLS())
}

// RawServer speaks TLS as a server and begins a session, whose control stream
// it returns after HELLO.
func RawServer(ctx context.Context, conn net.Conn, a *Authority) (*mux.Session, *mux.Stream, error) {
	c, err := RawServerCarrier(ctx, conn, a)
	if err != nil {
		return nil, nil, err
	}
	m := mux.Server(c, nil)
	control, _, err := session.ReadHello(ctx, m)
	return m, control, err
}

// RawWelcome is the message, with the names of servers.
func RawWelcome(a *Authority, servers ...string) []byte {
	m := wire.New(wire.MsgWelcome).AddUint(wire.TagVersion, wire.Version).AddTime(wire.TagTime, time.Now())
	return a.addRoots(m).AddStrings(wire.TagServer, servers).Encode()
}

// RenewIn is when an agent renews credentials that it got at a time; zero: not
// by a renewal.
func RenewIn(c *Credentials, got time.Time) time.Duration {
	r := &runner{renewed: got}
	r.credentials.Store(c)
	return r.renewIn()
}

// HoldHandshakes has no handshake compute until release is called.
func (s *Server) HoldHandshakes() (release func()) {
	if s.setup() != nil {
		return func() {}
	}
	computing := s.admission.Computing
	n := runtime.GOMAXPROCS(0)
	for range n {
		computing.Enter(context.Background(), netip.Prefix{})
	}
	return func() {
		for range n {
			computing.Leave()
		}
	}
}

package tunnel

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// ParseStatus reads the answer of a replica.
var ParseStatus = parseStatus

// RawPeerCarrier speaks TLS as a replica with these credentials.
func RawPeerCarrier(ctx context.Context, conn net.Conn, c *Credentials) (net.Conn, error) {
	config := c.sessionTLS()
	config.NextProtos, config.VerifyConnection = []string{protoPeer}, nil
	raw, err := carrier.Client(ctx, conn, config)
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// ServerCredentials are those of a server, in the form of an agent's.
func ServerCredentials(a *Authority) (*Credentials, error) {
	e := &registrar{authority: func() *Authority { return a }}
	own, err := e.ownCertificate()
	if err != nil {
		return nil, err
	}
	key, ok := own.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, wire.ErrMalformed
	}
	return &Credentials{Key: key, Chain: []*x509.Certificate{own.Leaf}, Roots: a.allCertificates()}, nil
}

// PeerHandshake is what a replica says of a server with this certificate.
func PeerHandshake(ctx context.Context, a *Authority, near, far net.Conn, key crypto.Signer, cert *x509.Certificate) error {
	e := &registrar{authority: func() *Authority { return a }}
	config, _, err := e.peerTLS()
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := tls.Server(far, &tls.Config{NextProtos: []string{protoPeer}, ClientAuth: tls.RequestClientCert,
			SessionTicketsDisabled: true, Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}})
		c.HandshakeContext(ctx)
		far.Close()
	}()
	_, err = carrier.Client(ctx, near, config)
	<-done
	return err
}

// WatchWith is Watch with another resolver.
func (p StaticPeers) WatchWith(ctx context.Context, set func([]string), lookup func(context.Context, string) ([]string, error)) error {
	return p.watchWith(ctx, func(zones map[string]string) { set(slices.Sorted(maps.Keys(zones))) }, lookup)
}

// AddClusters has the Server know of n clusters that are not connected, each
// with a long error.
func (s *Server) AddClusters(n int) {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	for i := range n {
		s.registry.clusters[fmt.Sprintf("default/c%d", i)] = &cluster{until: time.Now().Add(time.Hour), lastErr: strings.Repeat("x", 300)}
	}
}

// ReadPeerAnswer is what a replica of the name "a" makes of an answer to HELLO:
// the peer's name, or an error.
func ReadPeerAnswer(b []byte) (string, error) {
	m, err := wire.Read(bytes.NewReader(b), wire.MaxHello)
	if err != nil {
		return "", err
	}
	s := &Server{name: "a"}
	s.peers.server, s.peers.id = s, "raw"
	return m.Text(wire.TagServer), (&peer{peers: &s.peers, address: "b:1"}).checkAnswer(m)
}

// ReadRevoked is whom a REVOKED has revoked, if anybody.
func ReadRevoked(b []byte) (id Identity, ok bool) {
	m, err := wire.Read(bytes.NewReader(b), wire.MaxBody)
	if err != nil {
		return id, false
	}
	s := &Server{}
	s.handleRevoked(m)
	for id := range s.registry.allRevoked() {
		return id, true
	}
	return id, false
}

// MaxInbound is how many sessions replicas may have.
const MaxInbound = maxInbound

// SettlePeer ends what is opened to the replica of this name, as the end of a
// retired session does, while n streams are left.
func (s *Server) SettlePeer(ctx context.Context, name string, n int) error {
	for _, l := range s.peers.connectedPeers() {
		if l.name == name {
			return l.Mux.Settle(ctx, n)
		}
	}
	return errors.New("there is no such peer")
}

// PeerStreams is how many streams were opened to peers.
func (s *Server) PeerStreams() (n uint64) {
	for _, l := range s.peers.connectedPeers() {
		n += l.opened.Load()
	}
	return n
}

// FairShare is how many of sum sessions are to be at a replica in the zone own.
var FairShare = fairShare

// HoldersIn returns in which order a replica in the zone takes the replicas that have an
// agent. It gets the zones of those that have answered; one more has not answered yet.
func HoldersIn(zone string, zones ...string) (order []string) {
	q := &search{zone: zone, pending: len(zones) + 1, answers: make(chan searchAnswer, len(zones)+1), trySuspects: time.After(time.Hour)}
	for _, zone := range zones {
		q.answers <- searchAnswer{link: &outboundPeer{peer: &peer{zone: zone}}}
	}
	for range zones {
		order = append(order, q.nextHolder().zone())
	}
	return order
}

// RevocationsKept is how many the Server remembers.
func (s *Server) RevocationsKept() int { return len(s.registry.allRevoked()) }

const MaxRevoked = maxRevoked

// RevokeAllocs is how many allocations a revocation makes that ends no session, of the first of
// so many clusters with a session each.
func RevokeAllocs(clusters int) float64 {
	s := &Server{registrar: &registrar{}}
	now := time.Now()
	for i := range clusters {
		s.registry.add(&agentSession{server: s, id: Identity{Cluster: fmt.Sprintf("default/c%d", i), Agent: "a"}, after: now})
	}
	return testing.AllocsPerRun(10, func() { s.registry.revoke(Identity{Cluster: "default/c0"}, now) })
}

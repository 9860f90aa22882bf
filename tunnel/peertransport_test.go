package tunnel_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/tunnel"
)

// Replicas find each other at whatever a Transport of one's own takes for an
// address.
func TestPeerTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wires{}
		a := newAuthority(t)
		peers := tunnel.StaticPeers{"replica-a", "replica-b"}
		newBedAt(t, &tunnel.Server{Name: "a", Authority: a, Peers: peers, PeerTransport: w}, w, "replica-a").
			agent(&tunnel.Agent{Servers: []string{"replica-a"}})
		b := newBedAt(t, &tunnel.Server{Name: "b", Authority: a, Peers: peers, PeerTransport: w}, w, "replica-b")
		b.echo().Close()
	})
}

// A mesh over wss, whose certificates are of an authority that the system does
// not know.
func TestPeerTransportPrivateAuthority(t *testing.T) {
	outer := tunnel.WebSocket{TLS: clientTLS()}
	outer.TLS.Certificates = serverTLS().Certificates
	peers := &members{}
	a := newBed(t, &tunnel.Server{Name: "a"})
	l, err := outer.Listen(t.Context(), "wss://127.0.0.1:0/peers")
	if err != nil {
		t.Fatal(err)
	}
	a.serveAlso(l)
	a.agent(&tunnel.Agent{})
	peers.set("wss://ann:hidden@" + l.Addr().String() + "/peers")
	b := newBed(t, &tunnel.Server{Name: "b", Authority: a.s.Authority, Peers: peers, PeerTransport: outer})
	b.echo().Close()
	if got := b.s.Fleet(t.Context())[1]; strings.Contains(got.Address+got.LastError, "hidden") {
		t.Errorf("got %+v with the password", got)
	}
}

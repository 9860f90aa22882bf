package tunnel_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// overEach runs the test over TCP and over WebSocket, with the address of the
// server.
func overEach(t *testing.T, server func() *tunnel.Server, test func(t *testing.T, b *bed, address string)) {
	for _, kind := range carrierKinds[1:] {
		t.Run(kind.name, func(t *testing.T) {
			b, address := kind.bed(t, server())
			test(t, b, address)
		})
	}
}

// An agent of another PKI, made of crypto/tls and of frames by hand, has a
// session and carries a stream.
func TestOtherPKI(t *testing.T) {
	d := newTrustDomain(t, "corp.example")
	overEach(t, func() *tunnel.Server { return &tunnel.Server{Identify: d.identify} }, func(t *testing.T, b *bed, address string) {
		cert := d.issue(svidPath, nil)
		a := handDial(t, address, tunnel.ProtoTunnel, cert)
		m := a.hello()
		if m.kind != 2 || m.fields[7] != testCluster || m.fields[12] != "one" {
			t.Fatalf("got %d, %v %q for %q %q, want WELCOME for %q %q", m.kind, m.code(), m.fields[2], m.fields[7], m.fields[12], testCluster, "one")
		}
		info := b.await()
		if want := (tunnel.Identity{Cluster: testCluster, Agent: "one"}); (tunnel.Identity{Cluster: info.Cluster, Agent: info.Agent}) != want || !info.Expires.Equal(cert.Leaf.NotAfter) {
			t.Errorf("got a session of %s, %s until %v, want %v until %v", info.Cluster, info.Agent, info.Expires, want, cert.Leaf.NotAfter)
		}
		read := make(chan string, 1)
		go func() {
			conn, err := b.dial("echo:7")
			if err != nil {
				read <- err.Error()
				return
			}
			defer conn.Close()
			conn.Write([]byte("ping"))
			var got [4]byte
			io.ReadFull(conn, got[:])
			read <- string(got[:])
		}()
		if m := a.message(2); m.kind != 16 || m.fields[5] != "echo:7" {
			t.Fatalf("got %d for %q, want DIAL", m.kind, m.fields[5])
		}
		a.frame(frameData, flagACK, 2, rawMessage(17))
		if got, err := a.read(2, 4); string(got) != "ping" {
			t.Fatalf("got %q, %v, want what was written", got, err)
		}
		a.frame(frameData, 0, 2, []byte("pong"))
		if got := <-read; got != "pong" {
			t.Errorf("got %q, want what the agent sent", got)
		}
	})
}

// Who is refused, with what code and in what words: none but those that
// Identify means for the agent.
func TestOtherPKIRefused(t *testing.T) {
	d, other := newTrustDomain(t, "corp.example"), newTrustDomain(t, "evil.example")
	identity := func(id tunnel.Identity) func(tls.ConnectionState) (tunnel.Identity, error) {
		return func(tls.ConnectionState) (tunnel.Identity, error) { return id, nil }
	}
	fails := func(err error) func(tls.ConnectionState) (tunnel.Identity, error) {
		return func(tls.ConnectionState) (tunnel.Identity, error) { return tunnel.Identity{}, err }
	}
	ended := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
	}
	const text = "the certificate is not one of an agent of this server"
	for _, tt := range []struct {
		name     string
		cert     *tls.Certificate
		identify func(tls.ConnectionState) (tunnel.Identity, error)
		code     tunnel.Code
		text     string // what the agent reads
		hook     string // a part of what the server's owner reads
	}{
		{"another trust domain's", other.issue(svidPath, nil), d.identify, tunnel.CodeBadCertificate, text, "unknown authority"},
		{"the name of another trust domain", d.issue(svidPath, func(c *x509.Certificate) { c.URIs[0].Host = other.name }), d.identify,
			tunnel.CodeBadCertificate, text, "not of the trust domain"},
		{"not an agent's path", d.issue("/ns/default/sa/web", nil), d.identify, tunnel.CodeBadCertificate, text, "not the path of an agent"},
		{"expired", d.issue(svidPath, ended), d.identify, tunnel.CodeBadCertificate, text, "expired"},
		{"expired, and Identify does not look", d.issue(svidPath, ended), identity(tunnel.Identity{Cluster: testCluster, Agent: "a"}),
			tunnel.CodeCertificateExpired, "it ended at", "it ended at"},
		{"no certificate", nil, identity(tunnel.Identity{Cluster: testCluster, Agent: "a"}), tunnel.CodeBadCertificate, "the agent showed none", "showed none"},
		{"an identity without an agent", d.issue(svidPath, nil), identity(tunnel.Identity{Cluster: testCluster}),
			tunnel.CodeInternal, "internal error", "Identify of the Server returned an identity that can't be used: the name of the agent is empty"},
		{"an identity with a space", d.issue(svidPath, nil), identity(tunnel.Identity{Cluster: "a b", Agent: "a"}),
			tunnel.CodeInternal, "internal error", "the name of the cluster holds a space"},
		{"revoked", d.issue(svidPath+"-revoked", nil), d.identify, tunnel.CodeRevoked, "the agent was revoked", "revoked"},
		{"an error for the agent", d.issue(svidPath, nil), fails(&tunnel.Error{Code: tunnel.CodeWrongCluster, Err: errors.New("moved to eu-2")}),
			tunnel.CodeWrongCluster, "moved to eu-2", "moved to eu-2"},
		{"an error within another", d.issue(svidPath, nil), fails(errors.Join(errors.New("secret"), &tunnel.Error{Code: tunnel.CodeRevoked})),
			tunnel.CodeRevoked, "the agent was revoked", "revoked"},
		{"an internal error", d.issue(svidPath, nil), fails(&tunnel.Error{Code: tunnel.CodeInternal, Err: errors.New("no bundle at 10.1.2.3")}),
			tunnel.CodeInternal, "internal error", "no bundle at 10.1.2.3"},
		{"an error without a code", d.issue(svidPath, nil), fails(&tunnel.Error{Err: errors.New("secret")}), tunnel.CodeInternal, "internal error", "secret"},
		{"a code that is not the server's to say", d.issue(svidPath, nil), fails(&tunnel.Error{Code: tunnel.CodePin, Err: errors.New("secret")}),
			tunnel.CodeInternal, "internal error", "secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused := make(chan error, 10)
			server := func() *tunnel.Server {
				return &tunnel.Server{Identify: tt.identify, Hooks: tunnel.Hooks{Refused: refusals(refused)}}
			}
			overEach(t, server, func(t *testing.T, b *bed, address string) {
				if err := b.s.Revoke(t.Context(), tunnel.Identity{Cluster: testCluster, Agent: "one-revoked"}); err != nil {
					t.Fatal(err)
				}
				a := handDial(t, address, tunnel.ProtoTunnel, tt.cert)
				m := a.hello()
				if m.kind != 3 || m.code() != tt.code || !strings.HasPrefix(m.fields[2], tt.text) {
					t.Errorf("the agent reads %d, code %d, %q; want REFUSAL, %d, %q", m.kind, m.code(), m.fields[2], tt.code, tt.text)
				}
				a.conn.Close()
				var e *tunnel.Error
				if err := <-refused; !errors.As(err, &e) || e.Op != "connect" || !strings.Contains(err.Error(), tt.hook) {
					t.Errorf("the hook is told %v, want an error of connect with %q", err, tt.hook)
				}
			})
		})
	}
}

// Without Identify, nothing but the Authority's certificates will do.
func TestOtherPKIUnknown(t *testing.T) {
	d := newTrustDomain(t, "corp.example")
	overEach(t, func() *tunnel.Server { return &tunnel.Server{} }, func(t *testing.T, b *bed, address string) {
		a := handDial(t, address, tunnel.ProtoTunnel, d.issue(svidPath, nil))
		if m := a.hello(); m.kind != 3 || m.code() != tunnel.CodeBadCertificate {
			t.Errorf("got %d, code %d, want REFUSAL, %d", m.kind, m.code(), tunnel.CodeBadCertificate)
		}
	})
}

// Whom Identify lets in gets no certificate of the Authority, is no peer, and
// cannot say it is an agent of the Authority.
func TestOtherPKINoMore(t *testing.T) {
	d := newTrustDomain(t, "corp.example")
	overEach(t, func() *tunnel.Server { return &tunnel.Server{Identify: d.identify} }, func(t *testing.T, b *bed, address string) {
		cert := d.issue(svidPath, nil)
		a := handDial(t, address, tunnel.ProtoTunnel, cert)
		if m := a.hello(); m.kind != 2 {
			t.Fatalf("got %d, want WELCOME", m.kind)
		}
		state := a.conn.ConnectionState()
		request := wire.New(wire.MsgRenew).AddString(wire.TagID, "17")
		if err := request.AddRequest(&state, newKey(t)); err != nil {
			t.Fatal(err)
		}
		a.frame(frameData, 0, 1, rawMessage(5, uint16(4), []byte("17"), uint16(9), request.Bytes(9), uint16(15), request.Bytes(15)))
		if m := a.message(1); m.kind != 6 || m.code() != tunnel.CodeBadCertificate || m.fields[10] != "" {
			t.Errorf("RENEW: got %d, code %d, %q and a certificate of %d bytes, want ISSUED, code %d and none",
				m.kind, m.code(), m.fields[2], len(m.fields[10]), tunnel.CodeBadCertificate)
		}
		peer := d.issue("/", func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "causeway", Host: "server"}} })
		if m := handDial(t, address, "causeway-peer/1", peer).hello(); m.kind != 3 {
			t.Errorf("a peer: got %d, want REFUSAL", m.kind)
		}
		forged := d.issue("/", func(c *x509.Certificate) {
			c.URIs = []*url.URL{tunnel.Identity{Cluster: testCluster, Agent: "one"}.URI()}
		})
		if m := handDial(t, address, tunnel.ProtoTunnel, forged).hello(); m.kind != 3 || m.code() != tunnel.CodeBadCertificate {
			t.Errorf("the URI of an enrolled agent: got %d, code %d, want REFUSAL, code %d", m.kind, m.code(), tunnel.CodeBadCertificate)
		}
	})
}

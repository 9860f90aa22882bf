package tunnel_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/causewayproject/causeway/tunnel"
)

// foreignPKI has an authority of the standard library's making, and signs.
type foreignPKI struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

func newForeignPKI(t *testing.T) *foreignPKI {
	p := &foreignPKI{t: t}
	p.root = &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	p.root, p.key = p.sign(p.root)
	return p
}

// issue makes a certificate of the URI.
func (p *foreignPKI) issue(uri string, usage x509.ExtKeyUsage) (*x509.Certificate, *ecdsa.PrivateKey) {
	u, err := url.Parse(uri)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.sign(&x509.Certificate{URIs: []*url.URL{u}, ExtKeyUsage: []x509.ExtKeyUsage{usage}, KeyUsage: x509.KeyUsageDigitalSignature})
}

func (p *foreignPKI) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := p.key
	if template.IsCA {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.root, key.Public(), signer)
	if err != nil {
		p.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		p.t.Fatal(err)
	}
	return cert, key
}

// stockServer is the other end of an agent of ours: crypto/tls and
// hashicorp/yamux, which opens streams by a WindowUpdate frame with SYN.
func stockServer(t *testing.T, targets tunnel.Targets) *yamux.Session {
	t.Helper()
	pki := newForeignPKI(t)
	leaf, key := pki.issue("causeway://server", x509.ExtKeyUsageServerAuth)
	clients := x509.NewCertPool()
	clients.AddCert(pki.root)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"causeway-tunnel/1"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: clients,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })

	own, ownKey := pki.issue("causeway://agent/default%2Fprod/a", x509.ExtKeyUsageClientAuth)
	store := &tunnel.MemoryCredentials{}
	if err := store.Save(t.Context(), &tunnel.Credentials{Key: ownKey, Chain: []*x509.Certificate{own}, Roots: []*x509.Certificate{pki.root}}); err != nil {
		t.Fatal(err)
	}
	(&bed{t: t}).start(&tunnel.Agent{Servers: []string{l.Addr().String()}, Credentials: store, Targets: targets,
		Invitation: func(context.Context) (tunnel.Invitation, error) { return tunnel.Invitation{}, io.ErrUnexpectedEOF }})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	session, err := yamux.Server(conn, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	control, err := session.AcceptStream()
	if err != nil {
		t.Fatal(err)
	}
	if kind, _, err := readRaw(control); kind != 1 || err != nil {
		t.Fatalf("got %d, %v, want HELLO", kind, err)
	}
	if _, err := control.Write(rawMessage(2, uint16(3), uint64(1), uint16(11), pki.root.Raw)); err != nil {
		t.Fatal(err)
	}
	return session
}

// stockDial dials through the agent, and returns the code of DIALED.
func stockDial(t *testing.T, session *yamux.Session, address string) (*yamux.Stream, uint64) {
	t.Helper()
	stream, err := session.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	stream.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := stream.Write(rawMessage(16, uint16(6), []byte("tcp"), uint16(5), []byte(address))); err != nil {
		t.Fatal(err)
	}
	kind, code, err := readRaw(stream)
	if kind != 17 || err != nil {
		t.Fatalf("got %d, %v, want DIALED", kind, err)
	}
	return stream, code
}

// An agent of ours serves a server that is made of hashicorp/yamux and what
// SPEC.md says.
func TestStockYamuxServer(t *testing.T) {
	target := listen(t)
	defer target.Close()
	go func() {
		for {
			conn, err := target.Accept()
			if err != nil {
				return
			}
			go func() { // answers with all, at the end
				all, _ := io.ReadAll(conn)
				conn.Write(all)
				conn.Close()
			}()
		}
	}()
	closed := listen(t)
	closed.Close()
	session := stockServer(t, tunnel.Targets{Allow: []string{target.Addr().String(), closed.Addr().String()}})

	for range 3 {
		stream, code := stockDial(t, session, target.Addr().String())
		if code != 0 {
			t.Fatalf("got code %d, want a connection", code)
		}
		question := bytes.Repeat([]byte("question"), 100_000) // more than a window
		if _, err := stream.Write(question); err != nil {
			t.Fatal(err)
		}
		stream.Close() // its FIN
		if answer, err := io.ReadAll(stream); err != nil || !bytes.Equal(answer, question) {
			t.Errorf("got %d bytes, %v, want %d", len(answer), err, len(question))
		}
	}
	for _, tt := range []struct {
		name, address string
		code          uint64
	}{
		{"refused", closed.Addr().String(), 3},
		{"not allowed", net.JoinHostPort("127.0.0.1", "22"), 2},
	} {
		stream, code := stockDial(t, session, tt.address)
		if code != tt.code {
			t.Errorf("%s: got code %d, want %d", tt.name, code, tt.code)
		}
		stream.Close()
	}
	if session.IsClosed() {
		t.Error("the session has ended")
	}
}

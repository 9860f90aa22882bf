package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// A client resumes its TLS session, and its certificate counts as in the first
// connection: by the authorities of today.
func TestResumedCertificate(t *testing.T) {
	former, next := pki.NewCA("former"), pki.NewCA("next")
	var authority atomic.Pointer[pki.CA]
	authority.Store(former)
	var seen atomic.Int32 // certificates
	g := &gateway.Gateway{
		Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) { return dialTarget(t, ctx, r) },
		Authenticate: func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
			seen.Store(int32(len(c.Certificates)))
			if len(c.Certificates) == 0 {
				return gateway.Identity{}, gateway.ErrCredentials
			}
			return gateway.Identity{Name: c.Certificates[0].Subject.CommonName}, nil
		},
		TLS: &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := serverTLS()
			config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, authority.Load().Pool()
			return config, nil
		}},
	}
	raw := serveTCP(t, g)
	raw.Close()
	client := clientTLS()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	client.Certificates = []tls.Certificate{former.Client("ann")}
	connect := func() (resumed bool, status int) {
		tcp, err := net.Dial("tcp", raw.RemoteAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		tcp.SetDeadline(time.Now().Add(10 * time.Second))
		conn := tls.Client(tcp, client)
		if _, err := io.WriteString(conn, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil) // the ticket comes before it
		if err != nil {
			t.Fatal(err)
		}
		return conn.ConnectionState().DidResume, answer.StatusCode
	}
	for i, want := range []bool{false, true} {
		if resumed, status := connect(); resumed != want || status != http.StatusOK || seen.Load() == 0 {
			t.Errorf("connection %d: resumed %v, status %d, with %d certificates, want %v and 200", i+1, resumed, status, seen.Load(), want)
		}
	}
	authority.Store(next)
	if resumed, status := connect(); resumed || status != http.StatusProxyAuthRequired || seen.Load() != 0 {
		t.Errorf("after the authority was replaced: resumed %v, status %d, with %d certificates, want 407", resumed, status, seen.Load())
	}
}

package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

func doorNamed(t testing.TB, name string) door {
	for _, d := range doors() {
		if d.name == name {
			return d
		}
	}
	t.Fatalf("there is no door %q", name)
	return door{}
}

// TCP that ends between two records of TLS is a cut: it is not for the target
// to take it for an end.
func TestTLSCut(t *testing.T) {
	client, target := newBed(t, doorNamed(t, "connect, TLS"), nil).pair()
	write(t, client, []byte("part"))
	expect(t, target, []byte("part"))
	client.(*tls.Conn).NetConn().Close()
	expectCut(t, door{}, target)
}

func TestPlainAtTLS(t *testing.T) {
	conn := newBed(t, doorNamed(t, "connect, TLS"), nil).wire()
	write(t, conn, []byte("CONNECT a:1 HTTP/1.1\r\n\r\n"))
	b, err := io.ReadAll(conn)
	if want := "HTTP/1.1 400 Bad Request: this door speaks TLS: use an https proxy URL\r\n"; err != nil || !strings.HasPrefix(string(b), want) {
		t.Errorf("got %q, %v, want %q", b, err, want)
	}
}

// Certificates reach Authenticate if somebody has verified them.
func TestCertificates(t *testing.T) {
	verified := func(tls.ConnectionState) error { return nil }
	for _, tt := range []struct {
		name   string
		auth   tls.ClientAuthType
		verify func(tls.ConnectionState) error
		from   *pki.CA
		want   string
	}{
		{"verified", tls.RequireAndVerifyClientCert, nil, ca, "ann"},
		{"by a function", tls.RequireAnyClientCert, verified, pki.NewCA("other"), "ann"},
		{"by nobody", tls.RequireAnyClientCert, nil, pki.NewCA("other"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := make(chan gateway.Credentials, 1)
			b := newBed(t, doorNamed(t, "connect, TLS"), func(g *gateway.Gateway) {
				g.TLS.ClientAuth, g.TLS.VerifyConnection = tt.auth, tt.verify
				if tt.from == ca { // a client shows none that isn't asked for
					g.TLS.ClientCAs = ca.Pool()
				}
				g.Authenticate = func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
					seen <- c
					return gateway.Identity{}, gateway.ErrCredentials
				}
			})
			cfg := clientTLS()
			cfg.Certificates = []tls.Certificate{tt.from.Client("ann")}
			if _, err := b.dialBy(&dialer.HTTPConnect{Addr: b.addr.String(), TLSConfig: cfg}, targetA); err == nil {
				t.Error("got a connection")
			}
			c := <-seen
			got := ""
			if len(c.Certificates) > 0 {
				got = c.Certificates[0].Subject.CommonName
			}
			if got != tt.want || c.ServerName != "gateway" || c.Address != targetA {
				t.Errorf("got %q, %q, %q", got, c.ServerName, c.Address)
			}
		})
	}
}

// TestRefusedCloses: what follows a CONNECT that is refused is read by nobody, though it comes
// later and looks like a request (RFC 9931, section 8).
func TestRefusedCloses(t *testing.T) {
	const good = "Proxy-Authorization: Basic YW5uOmNvcnJlY3QgaG9yc2U=\r\n"
	for _, tt := range []struct {
		name, request string
		want          int
	}{
		{"no credentials", "CONNECT " + targetA + " HTTP/1.1\r\n\r\n", 407},
		{"wrong ones, to be kept alive", "CONNECT " + targetA + " HTTP/1.1\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic YW5uOndyb25n\r\n\r\n", 407},
		{"another method", "GET http://a/ HTTP/1.1\r\n" + good + "\r\n", 405},
		{"no host:port", "CONNECT a HTTP/1.1\r\n" + good + "\r\n", 400},
		{"no such target", "CONNECT nowhere.test:1 HTTP/1.1\r\n" + good + "\r\n", 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := newBed(t, doorNamed(t, "connect"), nil).wire()
			write(t, conn, []byte(tt.request))
			r := bufio.NewReader(conn)
			res, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
			if err != nil || res.StatusCode != tt.want || !res.Close {
				t.Fatalf("got %v, %v, want %d and Connection: close", res, err, tt.want)
			}
			io.CopyN(io.Discard, r, res.ContentLength)
			io.WriteString(conn, "CONNECT "+targetA+" HTTP/1.1\r\n"+good+"\r\n")
			if rest, _ := io.ReadAll(r); len(rest) > 0 {
				t.Errorf("got %q after the refusal, want nothing", rest)
			}
		})
	}
}

// A client that is slow to ask is told so, and sent away.
func TestHandshakeTimeout(t *testing.T) {
	const slow = "HTTP/1.1 408 Request Timeout: the request took too long\r\n"
	for _, tt := range []struct{ door, say, want string }{
		{"connect", "", slow},
		{"connect", "CONNECT a:1 HTTP/1.1\r\nX: ", slow},
		{"connect, unix", "C", slow},
		{"connect, TLS", "", ""},
		{"connect, TLS", "\x16\x03\x01", ""},
		{"connect", "PRI * HTTP/2.0\r\n\r\n", "\x00"},
		{"connect", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00"},
	} {
		failed := make(chan error, 10)
		b := newBed(t, doorNamed(t, tt.door), func(g *gateway.Gateway) {
			g.HandshakeTimeout = 20 * time.Millisecond
			g.Hooks.Failed = func(err error) { failed <- err }
		})
		conn := b.wire()
		write(t, conn, []byte(tt.say))
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(got), tt.want) || tt.want == "" && len(got) > 0 {
			t.Errorf("%s, %q: got %q, %v, want %q", tt.door, tt.say, got, err, tt.want)
		}
		conn.Close()
		b.g.Close()
		if tt.want == "\x00" {
			continue
		}
		var e *gateway.Error
		if !errors.As(<-failed, &e) || e.Phase != gateway.PhaseHandshake || e.Request.Door != gateway.DoorConnect {
			t.Errorf("%s, %q: got %v", tt.door, tt.say, e)
		}
	}
}

// Nor is half a request that has ended called slow.
func TestHalfRequest(t *testing.T) {
	conn := newBed(t, doorNamed(t, "connect"), nil).wire()
	write(t, conn, []byte("CONNECT a:1 HTTP/1.1\r\nX: "))
	conn.(*net.TCPConn).CloseWrite()
	const want = "HTTP/1.1 400 Bad Request: the request ends in its header\r\n"
	if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// What a client sends while the target is dialed is kept for it.
func TestEarlyWhileDialing(t *testing.T) {
	dialing, release := make(chan struct{}), make(chan struct{})
	b := newBed(t, doorNamed(t, "connect"), func(g *gateway.Gateway) {
		dial := g.Dial
		g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
			close(dialing)
			<-release
			return dial(ctx, r)
		}
	})
	conn := b.wire()
	write(t, conn, []byte("CONNECT "+targetA+" HTTP/1.1\r\nProxy-Authorization: Basic YW5uOmNvcnJlY3QgaG9yc2U=\r\n\r\nearly "))
	<-dialing
	late := random(200 << 10)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		conn.Write(late)
		closeWrite(t, conn)
	}()
	close(release)
	target := <-b.targets
	defer target.Close()
	target.SetDeadline(time.Now().Add(10 * time.Second))
	expect(t, target, append([]byte("early "), late...))
	expectEnd(t, target)
	<-sent
}

// Who can't be asked about, or is known and may not come in, is not a client
// with wrong credentials.
func TestAuthenticateErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"unavailable", unavailable{errors.New("secret detail")}, 503},
		{"unavailable, and why", fmt.Errorf("%w: %w", unavailable{errors.New("secret detail")}, syscall.EACCES), 503},
		{"forbidden", fmt.Errorf("secret detail: %w", syscall.EACCES), 403},
		{"unknown", errors.New("secret detail"), 407},
	} {
		for _, d := range doors() {
			if d.codes != codesHTTP {
				continue
			}
			b := newBed(t, d, func(g *gateway.Gateway) {
				g.Authenticate = func(context.Context, gateway.Credentials) (gateway.Identity, error) {
					return gateway.Identity{}, tt.err
				}
			})
			_, err := b.dial("ann", secret)
			var r *dialer.Refusal
			if !errors.As(err, &r) || r.StatusCode != tt.want {
				t.Errorf("%s: %s: got %v, want %d", d.name, tt.name, err, tt.want)
			} else if strings.Contains(r.Reason+string(r.Body)+r.Header.Get("Proxy-Status"), "secret") {
				t.Errorf("%s: %s: the client sees %+v", d.name, tt.name, r)
			}
		}
	}
}

// Who has asked for nothing yet is not waited for at the end.
func TestDrainWaiting(t *testing.T) {
	for _, tt := range []struct{ door, want string }{
		{"connect", "HTTP/1.1 503 Service Unavailable: the gateway shuts down\r\n"},
		{"connect, TLS", ""},
	} {
		b := newBed(t, doorNamed(t, tt.door), func(g *gateway.Gateway) { g.Grace, g.HandshakeTimeout = time.Minute, time.Minute })
		conn := b.wire()
		other, target := b.pair() // so that conn was accepted
		other.Close()
		target.Close()
		b.cancel()
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(got), tt.want) {
			t.Errorf("%s: got %q, %v, want %q", tt.door, got, err, tt.want)
		}
		conn.Close()
		b.wait()
	}
}

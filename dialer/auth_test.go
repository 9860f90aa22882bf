package dialer_test

import (
	"bufio"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

const awkward = "p@ss:w/rd%+&' \u00fc"

func TestBasic(t *testing.T) {
	for _, tt := range []struct{ user, password string }{
		{"user", "password"},
		{"user", ""},
		{"", "password"},
		{"dom\\user", awkward},
	} {
		t.Run(tt.user+"/"+tt.password, func(t *testing.T) {
			d := &dialer.HTTPConnect{Forward: checked(t)}
			d.Addr = serve(t, listen(t), (&proxytest.HTTP{Username: tt.user, Password: tt.password, Dial: toEcho(t)}).Handle)
			d.Auth = dialer.Basic(dialer.Password(tt.user, tt.password))
			conn, err := d.DialContext(testContext(t), "tcp", target)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			exchange(t, conn, "")

			d.Auth = dialer.Basic(dialer.Password(tt.user, tt.password+"x"))
			_, err = d.DialContext(testContext(t), "tcp", target)
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != dialer.PhaseAuth || e.Status != 407 {
				t.Errorf("got %v, want a 407 of the auth phase", err)
			}
		})
	}
}

// toEcho dials an echo server, whatever the target.
func toEcho(t testing.TB) func(context.Context, string, string) (net.Conn, error) {
	addr := serve(t, listen(t), echo)
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.Direct{}.DialContext(ctx, "tcp", addr)
	}
}

func TestCredentialsChangeBetweenDials(t *testing.T) {
	var password atomic.Value
	password.Store("old")
	credentials := func(context.Context) (string, string, error) { return "user", password.Load().(string), nil }
	echo := toEcho(t)
	for name, d := range map[string]dialer.Dialer{
		"http":   &dialer.HTTPConnect{Addr: serve(t, listen(t), (&proxytest.HTTP{Username: "user", Password: "new", Dial: echo}).Handle), Auth: dialer.Basic(credentials)},
		"socks5": &dialer.SOCKS5{Addr: serve(t, listen(t), (&proxytest.SOCKS5{Username: "user", Password: "new", Dial: echo}).Handle), Credentials: credentials},
	} {
		t.Run(name, func(t *testing.T) {
			password.Store("old")
			if conn, err := d.DialContext(testContext(t), "tcp", target); err == nil {
				conn.Close()
				t.Fatal("the old password was accepted")
			}
			password.Store("new")
			conn, err := d.DialContext(testContext(t), "tcp", target)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		})
	}
}

// rounds answers a challenge of two rounds, as NTLM has.
type rounds struct{ challenges []string }

func (r *rounds) Authenticate(_ context.Context, c *dialer.Challenge) (string, error) {
	r.challenges = append(r.challenges, c.Header.Get("Proxy-Authenticate"))
	if c.Attempt == 0 {
		return "", nil
	}
	return fmt.Sprintf("Rounds %d", c.Attempt), nil
}

// A 407 is answered on the same connection if that was kept, and on a new one
// otherwise.
func TestAuthenticatorRounds(t *testing.T) {
	for _, tt := range []struct {
		name, header, body string
		connections        int32
	}{
		{"kept alive", "Content-Length: 4\r\n", "body", 1},
		{"chunked", "Transfer-Encoding: chunked\r\n", "4\r\nbody\r\n0\r\n\r\n", 1},
		{"empty", "Content-Length: 0\r\n", "", 1},
		{"Connection: close", "Connection: close\r\nContent-Length: 4\r\n", "body", 3},
		{"Proxy-Connection: close", "Proxy-Connection: close\r\nContent-Length: 4\r\n", "body", 3},
		{"no length", "", "body", 3},
		{"large body", "Content-Length: 100000\r\n", strings.Repeat("x", 100_000), 3},
		{"more than the body", "Content-Length: 4\r\n", "bodyHTTP/1.1 200 OK\r\n\r\n", 3},
		{"more than no body", "Content-Length: 0\r\n", "HTTP/1.1 200 OK\r\n\r\n", 3},
		{"two lengths", "Content-length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 3},
		{"body cut off", "Content-Length: 100\r\n", "body", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var connections atomic.Int32
			d := &dialer.HTTPConnect{Forward: checked(t)}
			d.Addr = serve(t, listen(t), func(ctx context.Context, conn net.Conn) {
				connections.Add(1)
				br := bufio.NewReader(conn)
				for {
					head, err := readHead(br)
					if err != nil {
						return
					}
					if strings.Contains(head, "\r\nProxy-Authorization: Rounds 2\r\n") {
						break
					}
					round := strings.Count(head, "Rounds 1")
					fmt.Fprintf(conn, "HTTP/1.1 407 No\r\nProxy-Authenticate: Rounds %d\r\n%s\r\n%s", round, tt.header, tt.body)
					if tt.connections > 1 {
						return
					}
				}
				io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
				io.Copy(conn, br)
			})
			auth := &rounds{}
			d.Auth = auth
			conn, err := d.DialContext(testContext(t), "tcp", target)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			exchange(t, conn, "")
			if got := connections.Load(); got != tt.connections {
				t.Errorf("got %d connections, want %d", got, tt.connections)
			}
			if got, want := strings.Join(auth.challenges, ","), ",Rounds 0,Rounds 1"; got != want {
				t.Errorf("got challenges %q, want %q", got, want)
			}
		})
	}
}

func TestBearer(t *testing.T) {
	var token atomic.Value
	broken := errors.New("vault is sealed")
	var challenges []int
	auth := dialer.Bearer(func(context.Context) (string, error) {
		if token.Load() == "" {
			return "", broken
		}
		return token.Load().(string), nil
	})
	d := &dialer.HTTPConnect{Forward: checked(t)}
	d.Auth = dialer.AuthFunc(func(ctx context.Context, c *dialer.Challenge) (string, error) {
		challenges = append(challenges, c.Attempt)
		return auth.Authenticate(ctx, c)
	})
	d.Addr = serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		br := bufio.NewReader(conn)
		head, _ := readHead(br)
		if !strings.Contains(head, "\r\nProxy-Authorization: Bearer new.T0k-en_~+/=\r\n") {
			io.WriteString(conn, "HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
			readHead(br)
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		io.Copy(conn, br)
	})
	for _, tt := range []struct {
		token, want string
		status      int
		is          error
	}{
		{"canary.old", "407", 407, nil},
		{"", "vault is sealed", 0, broken},
		{"canary with space", "bearer token", 0, nil},
		{"canary\n", "bearer token", 0, nil},
		{"new.T0k-en_~+/=", "", 0, nil},
	} {
		token.Store(tt.token)
		challenges = nil
		conn, err := d.DialContext(testContext(t), "tcp", target)
		if tt.want == "" {
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, conn, "")
			conn.Close()
			continue
		}
		var e *dialer.Error
		if !errors.As(err, &e) || e.Phase != dialer.PhaseAuth || e.Status != tt.status || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%q: got %v, want status %d of the auth phase", tt.token, err, tt.status)
		}
		if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: got %q, want %q and no token", tt.token, err, tt.want)
		}
	}
}

// Digest plugs in: its answer is made of the challenge and the target.
func TestDigestPlugsIn(t *testing.T) {
	hash := func(parts ...string) string { return fmt.Sprintf("%x", md5.Sum([]byte(strings.Join(parts, ":")))) }
	response := func(target string) string {
		return hash(hash("u", "realm", "p"), "nonce1", hash("CONNECT", target))
	}
	d := &dialer.HTTPConnect{Forward: checked(t)}
	d.Auth = dialer.AuthFunc(func(_ context.Context, c *dialer.Challenge) (string, error) {
		switch {
		case c.Attempt == 0:
			return "", nil
		case c.Attempt > 1 || !strings.Contains(c.Header.Get("Proxy-Authenticate"), `nonce="nonce1"`):
			return "", nil
		}
		return fmt.Sprintf(`Digest username="u", realm="realm", nonce="nonce1", uri="%s", response="%s"`, c.Target, response(c.Target)), nil
	})
	d.Addr = serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		br := bufio.NewReader(conn)
		for range 2 {
			head, err := readHead(br)
			if err != nil {
				return
			}
			if strings.Contains(head, response(target)) {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
				io.Copy(conn, br)
				return
			}
			io.WriteString(conn, "HTTP/1.1 407 No\r\nProxy-Authenticate: Digest realm=\"realm\", nonce=\"nonce1\"\r\nContent-Length: 0\r\n\r\n")
		}
	})
	conn, err := d.DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exchange(t, conn, "")
}

// An Authenticator that never gives up is stopped.
func TestAuthenticatorEndless(t *testing.T) {
	var requests atomic.Int32
	addr := serve(t, listen(t), func(ctx context.Context, conn net.Conn) {
		br := bufio.NewReader(conn)
		for {
			if _, err := readHead(br); err != nil {
				return
			}
			requests.Add(1)
			io.WriteString(conn, "HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
		}
	})
	_, err := (&dialer.HTTPConnect{Addr: addr, Auth: &rounds{}}).DialContext(testContext(t), "tcp", target)
	var e *dialer.Error
	if !errors.As(err, &e) || e.Status != 407 {
		t.Errorf("got %v, want a 407", err)
	}
	if got := requests.Load(); got != 6 {
		t.Errorf("got %d requests, want 6", got)
	}
}

func TestAuthenticatorError(t *testing.T) {
	broken := errors.New("vault is sealed")
	credentials := func(context.Context) (string, string, error) { return "", "", broken }
	for _, d := range []dialer.Dialer{
		&dialer.HTTPConnect{Addr: "proxy.invalid:1", Auth: dialer.Basic(credentials)},
		&dialer.SOCKS5{Addr: "proxy.invalid:1", Credentials: credentials},
	} {
		_, err := d.DialContext(testContext(t), "tcp", target)
		var e *dialer.Error
		if !errors.Is(err, broken) || !errors.As(err, &e) || e.Phase != dialer.PhaseAuth {
			t.Errorf("%T: got %v, want the error of the credentials", d, err)
		}
	}
}

// No text of an error or a dialer holds a secret.
func TestNoSecretInText(t *testing.T) {
	const canary = "CaNaRy-%-42"
	forms := []string{canary, "CaNaRy", base64.StdEncoding.EncodeToString([]byte("user:" + canary))}
	check := func(t *testing.T, v any) {
		t.Helper()
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			for _, form := range forms {
				if text := fmt.Sprintf(verb, v); strings.Contains(text, form) {
					t.Errorf("%s of a %T shows the secret: %s", verb, v, text)
				}
			}
		}
	}
	refusing := serve(t, listen(t), (&proxytest.HTTP{Username: "x", Password: "y"}).Handle)
	socks := serve(t, listen(t), (&proxytest.SOCKS5{Username: "x", Password: "y"}).Handle)
	closed := serve(t, listen(t), func(context.Context, net.Conn) {})
	escaped := "CaNaRy-%25-42"
	urls := []string{
		"http://user:" + escaped + "@" + refusing,
		"https://user:" + escaped + "@" + refusing,
		"socks5://user:" + escaped + "@" + socks,
		"http://user:" + escaped + "@" + closed,
		"socks5h://user:" + escaped + "@" + closed,
		"http://user:" + canary + "@proxy:3128",
		"http://user:" + escaped + "@pro xy:3128",
		"http://user:1/" + escaped + "@proxy:3128",
		"http://user:" + escaped + "/x@proxy:3128",
		"http://user:1?" + escaped + "@proxy:3128",
		"http://user:1#" + escaped + "@proxy:3128",
		"http://user:" + escaped + "@proxy:99999",
		"http://user:" + escaped + "@:3128",
		"http://user:" + escaped + "\n@proxy:3128",
		"http://us%3Aer:" + escaped + "@proxy:3128",
		"socks5://:" + escaped + "@proxy:1080",
		"socks5://user:" + escaped + strings.Repeat("x", 300) + "@proxy:1080",
		"ftp://user:" + escaped + "@proxy:3128",
		"user:" + escaped + "@proxy:3128",
		"CaNaRy-42:x",
		"http+unix://user:" + escaped + "@/no/such.sock",
		"socks5+unix://user:" + escaped + "@/no/such.sock",
		"http+unix://user:1/" + escaped + "@/no/such.sock",
		"http+unix://user:" + escaped + "@/no/such.sock?x",
		"//user:" + escaped + "@proxy:3128",
	}
	for i, text := range urls {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			u, err := dialer.ParseURL(text)
			var d dialer.Dialer
			if err == nil {
				d, err = dialer.FromURL(u, nil)
			}
			if err == nil {
				check(t, d)
				_, err = d.DialContext(testContext(t), "tcp", target)
			}
			if err == nil {
				t.Fatal("got no error")
			}
			for ; err != nil; err = errors.Unwrap(err) {
				check(t, err)
			}
		})
	}
}

package dialer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/dnstest"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// step is what a scripted SOCKS proxy reads and answers.
type step struct {
	want  string
	reply string
}

// socksScript is a proxy that checks the bytes of each step, answers byte by
// byte if drip is set, and then echoes.
func socksScript(t *testing.T, drip bool, steps ...step) string {
	return serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		for _, s := range steps {
			got := make([]byte, len(s.want))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != s.want {
				t.Errorf("proxy: got %q, %v; want %q", got, err, s.want)
				return
			}
			var r io.Reader = strings.NewReader(s.reply)
			if drip {
				r = iotest.OneByteReader(r)
			}
			if _, err := io.Copy(conn, r); err != nil {
				return
			}
		}
		io.Copy(conn, conn)
	})
}

const (
	offerNone  = "\x05\x01\x00"
	offerBoth  = "\x05\x02\x00\x02"
	takeNone   = "\x05\x00"
	takeLogin  = "\x05\x02"
	askTarget  = "\x05\x01\x00\x01\xc0\x00\x02\x0a\x19\x2b"
	bound4     = "\x01\x00\x00\x00\x00\x00\x00"
	loginRight = "\x01\x00"
)

func TestSOCKS5Success(t *testing.T) {
	v6 := "\x04" + strings.Repeat("\x00", 18)
	name := "\x03\x05bound\x00\x00"
	login := step{"\x01\x04user\x03p@s", loginRight}
	for _, tt := range []struct {
		name, address string
		login         bool
		steps         []step
		early         string
	}{
		{"no authentication", target, false, []step{{offerNone, takeNone}, {askTarget, "\x05\x00\x00" + bound4}}, ""},
		{"bound to IPv6", target, false, []step{{offerNone, takeNone}, {askTarget, "\x05\x00\x00" + v6}}, ""},
		{"bound to a name", target, false, []step{{offerNone, takeNone}, {askTarget, "\x05\x00\x00" + name}}, ""},
		{"bound to an empty name", target, false, []step{{offerNone, takeNone}, {askTarget, "\x05\x00\x00\x03\x00\x00\x00"}}, ""},
		{"banner with the reply", target, false, []step{{offerNone, takeNone}, {askTarget, "\x05\x00\x00" + bound4 + "SSH-2.0-x\r\n"}}, "SSH-2.0-x\r\n"},
		{"credentials not wanted", target, true, []step{{offerBoth, takeNone}, {askTarget, "\x05\x00\x00" + bound4}}, ""},
		{"credentials", target, true, []step{{offerBoth, takeLogin}, login, {askTarget, "\x05\x00\x00" + bound4}}, ""},
		{"login answered with version 5", target, true, []step{{offerBoth, takeLogin}, {login.want, "\x05\x00"}, {askTarget, "\x05\x00\x00" + bound4}}, ""},
		{"name", "api.example.com:443", false, []step{{offerNone, takeNone}, {"\x05\x01\x00\x03\x0fapi.example.com\x01\xbb", "\x05\x00\x00" + bound4}}, ""},
		{"IDN", "\u00fc.example:443", false, []step{{offerNone, takeNone}, {"\x05\x01\x00\x03\x0fxn--tda.example\x01\xbb", "\x05\x00\x00" + bound4}}, ""},
		{"mapped IPv4", "[::ffff:192.0.2.10]:6443", false, []step{{offerNone, takeNone}, {askTarget, "\x05\x00\x00" + bound4}}, ""},
		{"IPv6", "[2001:db8::1]:443", false, []step{{offerNone, takeNone}, {"\x05\x01\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x01\xbb", "\x05\x00\x00" + bound4}}, ""},
	} {
		for _, drip := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/drip=%t", tt.name, drip), func(t *testing.T) {
				d := &dialer.SOCKS5{Addr: socksScript(t, drip, tt.steps...), Forward: checked(t)}
				if tt.login {
					d.Credentials = dialer.Password("user", "p@s")
				}
				conn, err := d.DialContext(testContext(t), "tcp", tt.address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, ok := conn.(*net.TCPConn); !ok {
					t.Errorf("got a %T, want the raw connection", conn)
				}
				exchange(t, conn, tt.early)
			})
		}
	}
}

func TestSOCKS5Replies(t *testing.T) {
	for code, want := range map[byte]struct {
		text string
		is   error
	}{
		1:    {"general failure", nil},
		2:    {"not allowed", nil},
		3:    {"network unreachable", syscall.ENETUNREACH},
		4:    {"host unreachable", syscall.EHOSTUNREACH},
		5:    {"connection refused", syscall.ECONNREFUSED},
		6:    {"TTL expired", nil},
		7:    {"command not supported", nil},
		8:    {"address type not supported", nil},
		9:    {"unassigned", nil},
		0xff: {"unassigned", nil},
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			reply := string([]byte{5, code, 0}) + bound4
			d := &dialer.SOCKS5{Addr: socksScript(t, false, step{offerNone, takeNone}, step{askTarget, reply}), Forward: checked(t)}
			_, err := d.DialContext(testContext(t), "tcp", target)
			var e *dialer.Error
			var r dialer.SOCKSReply
			if !errors.As(err, &e) || !errors.As(err, &r) || byte(r) != code || e.Status != int(code) || e.Phase != dialer.PhaseConnect {
				t.Fatalf("got %#v, want reply %d", err, code)
			}
			if !strings.Contains(err.Error(), want.text) || want.is != nil && !errors.Is(err, want.is) {
				t.Errorf("got %v, want %q that is %v", err, want.text, want.is)
			}
			for _, other := range []error{syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ECONNREFUSED} {
				if other != want.is && errors.Is(err, other) {
					t.Errorf("%v is %v as well", err, other)
				}
			}
		})
	}
}

func TestSOCKS5Malformed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		login bool
		steps []step
		phase dialer.Phase
		want  string
	}{
		{"0xFF without credentials", false, []step{{offerNone, "\x05\xff"}}, dialer.PhaseAuth, "set Credentials"},
		{"0xFF with credentials", true, []step{{offerBoth, "\x05\xff"}}, dialer.PhaseAuth, "no authentication, user name and password"},
		{"method not offered", false, []step{{offerNone, "\x05\x02"}}, dialer.PhaseAuth, "method 2, which was not offered"},
		{"GSSAPI", true, []step{{offerBoth, "\x05\x01"}}, dialer.PhaseAuth, "method 1, which was not offered"},
		{"wrong password", true, []step{{offerBoth, takeLogin}, {"\x01\x04user\x03p@s", "\x01\x01"}}, dialer.PhaseAuth, "refused the user name and password"},
		{"SOCKS4", false, []step{{offerNone, "\x00\x5b"}}, dialer.PhaseConnect, "SOCKS4"},
		{"HTTP", false, []step{{offerNone, "HTTP/1.1 400 Bad Request\r\n\r\n"}}, dialer.PhaseConnect, "HTTP"},
		{"other version", false, []step{{offerNone, "\x06\x00"}}, dialer.PhaseConnect, "version 6"},
		{"other version in the reply", false, []step{{offerNone, takeNone}, {askTarget, "\x04\x00\x00" + bound4}}, dialer.PhaseConnect, "SOCKS4"},
		{"address type", false, []step{{offerNone, takeNone}, {askTarget, "\x05\x00\x00\x02\x00\x00"}}, dialer.PhaseConnect, "address type 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &dialer.SOCKS5{Addr: socksScript(t, false, tt.steps...), Forward: checked(t)}
			if tt.login {
				d.Credentials = dialer.Password("user", "p@s")
			}
			conn, err := d.DialContext(testContext(t), "tcp", target)
			if err == nil {
				conn.Close()
				t.Fatal("got no error")
			}
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != tt.phase || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in phase %s", err, tt.want, tt.phase)
			}
		})
	}
	d := &dialer.SOCKS5{Addr: socksScript(t, false, step{offerNone, "\x05\xff"})}
	if _, err := d.DialContext(testContext(t), "tcp", target); !errors.Is(err, dialer.ErrNoAuthMethod) {
		t.Errorf("0xFF: got %v, want ErrNoAuthMethod", err)
	}
}

// Wherever the proxy closes, the dial fails with io.ErrUnexpectedEOF.
func TestSOCKS5Cut(t *testing.T) {
	whole := []string{takeLogin, loginRight, "\x05\x00\x00\x03\x05bound\x00\x00"}
	for i, reply := range whole {
		for cut := range len(reply) {
			t.Run(fmt.Sprintf("answer %d after %d bytes", i, cut), func(t *testing.T) {
				addr := serve(t, listen(t), func(_ context.Context, conn net.Conn) {
					buf := make([]byte, 512)
					for _, r := range whole[:i] {
						conn.Read(buf)
						io.WriteString(conn, r)
					}
					conn.Read(buf)
					io.WriteString(conn, reply[:cut])
				})
				d := &dialer.SOCKS5{Addr: addr, Credentials: dialer.Password("u", "p"), Forward: checked(t)}
				_, err := d.DialContext(testContext(t), "tcp", target)
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("got %v, want io.ErrUnexpectedEOF", err)
				}
			})
		}
	}
}

func TestSOCKS5BadInput(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, tt := range []struct {
		name, address, want string
		credentials         dialer.Credentials
	}{
		{"host of 256 bytes", long + ":443", "256 bytes", nil},
		{"zone", "[fe80::1%eth0]:443", "zone", nil},
		{"empty user", target, "empty", dialer.Password("", "p")},
		{"user of 256 bytes", target, "user name has 256 bytes", dialer.Password(long, "p")},
		{"password of 256 bytes", target, "password has 256 bytes", dialer.Password("u", long)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &dialer.SOCKS5{Addr: "proxy:1080", Credentials: tt.credentials}
			d.Forward = dialer.Func(func(context.Context, string, string) (net.Conn, error) {
				t.Error("the proxy was dialed")
				return nil, os.ErrInvalid
			})
			_, err := d.DialContext(testContext(t), "tcp", tt.address)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), long) {
				t.Errorf("got %v, want it to contain %q and no secret", err, tt.want)
			}
		})
	}
	if _, err := (&dialer.SOCKS5{}).DialContext(testContext(t), "tcp", target); err == nil || !strings.Contains(err.Error(), "Addr is required") {
		t.Errorf("no Addr: got %v", err)
	}
}

func TestSOCKS5Context(t *testing.T) {
	d := &dialer.SOCKS5{Addr: serve(t, listen(t), hold), Forward: checked(t)}
	ctx, cancel := context.WithCancel(testContext(t))
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := d.DialContext(ctx, "tcp", target); !errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	checkTimeout(t, d, ctx)
	short := &dialer.SOCKS5{Addr: d.Addr, Forward: d.Forward, Timeout: 20 * time.Millisecond}
	checkTimeout(t, short, t.Context())
	login := &dialer.SOCKS5{Addr: serve(t, listen(t), func(ctx context.Context, conn net.Conn) {
		io.WriteString(conn, takeLogin)
		hold(ctx, conn)
	}), Credentials: dialer.Password("u", "p"), Forward: d.Forward, Timeout: 20 * time.Millisecond}
	_, err := login.DialContext(t.Context(), "tcp", target)
	var e *dialer.Error
	if !errors.As(err, &e) || e.Phase != dialer.PhaseAuth || e.Err.Error() != "context deadline exceeded: the dialer's Timeout of 20ms is over" {
		t.Errorf("silent to the login: got %v, want only the deadline, in the auth phase", err)
	}
	ctx = testContext(t) // whose deadline is later
	checkTimeout(t, short, ctx)
	if ctx.Err() != nil {
		t.Error("the Timeout did not bound the dial, the context did")
	}
}

// With a Resolver the proxy gets addresses, one after the other while it
// can't reach them.
func TestSOCKS5Resolver(t *testing.T) {
	var (
		mu  sync.Mutex // guards got
		got []string
	)
	answers := map[string]error{"[2001:db8::1]:443": syscall.EHOSTUNREACH, "192.0.2.1:443": syscall.ECONNREFUSED}
	echo := toEcho(t)
	p := &proxytest.SOCKS5{
		Log: func(r proxytest.Request) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, r.Target)
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if err := answers[address]; err != nil {
				return nil, err
			}
			return echo(ctx, network, address)
		},
	}
	resolver := dnstest.Hosts{"api.example.com.": {"192.0.2.1", "192.0.2.2", "2001:db8::1"}}.Resolver()
	d := &dialer.SOCKS5{Addr: serve(t, listen(t), p.Handle), Resolver: resolver, Forward: checked(t)}
	for _, tt := range []struct {
		network string
		want    []string
	}{
		{"tcp4", []string{"192.0.2.1:443", "192.0.2.2:443"}},
		{"tcp6", []string{"[2001:db8::1]:443"}},
	} {
		t.Run(tt.network, func(t *testing.T) {
			got = nil
			conn, err := d.DialContext(testContext(t), tt.network, "api.example.com:443")
			if err == nil {
				conn.Close()
			} else if tt.network == "tcp4" || !errors.Is(err, syscall.EHOSTUNREACH) {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("asked for (-want +got)\n%s", diff)
			}
		})
	}
	_, err := d.DialContext(testContext(t), "tcp", "nowhere.example.com:443")
	var e *dialer.Error
	var dns *net.DNSError
	if !errors.As(err, &e) || e.Phase != dialer.PhaseDNS || !errors.As(err, &dns) || !dns.IsNotFound {
		t.Errorf("got %v, want a name that was not found", err)
	}
	if d.Resolver = nil; bytes.ContainsAny([]byte(strings.Join(got, "")), "x") {
		t.Error("a name reached the proxy")
	}
}

package dialer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/dnstest"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// refusing is an address that nothing listens on: a port that was free once
// may be another test's by now.
const refusing = "127.0.0.1:1"

// answering is a proxy that reads a request and says text.
func answering(t *testing.T, text string) string {
	return serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		conn.Read(make([]byte, 1024))
		io.WriteString(conn, text)
	})
}

// socksClient is how golang.org/x/net/proxy says err.
func socksClient(err error) error { return &net.OpError{Op: "socks connect", Err: err} }

// What the first member's failure does: another proxy is tried or it is not.
func TestFailoverDecision(t *testing.T) {
	forward := checked(t)
	web := func(addr string) *dialer.HTTPConnect { return &dialer.HTTPConnect{Addr: addr, Forward: forward} }
	socks := func(addr string) *dialer.SOCKS5 { return &dialer.SOCKS5{Addr: addr, Forward: forward} }
	status := func(code int) *dialer.HTTPConnect {
		return web(answering(t, fmt.Sprintf("HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n", code)))
	}
	reply := func(code byte) string { return answering(t, "\x05\x00\x05"+string([]byte{code})+"\x00"+bound4) }
	login := func(answer string) *dialer.SOCKS5 {
		d := socks(answering(t, answer))
		d.Credentials = dialer.Password("u", "p")
		return d
	}
	behind := func(hop dialer.Dialer) dialer.Dialer {
		d := web("192.0.2.1:3128")
		d.Forward = hop
		return d
	}
	says := func(err error) dialer.Dialer {
		return dialer.Func(func(context.Context, string, string) (net.Conn, error) { return nil, err })
	}
	silent := web(serve(t, listen(t), hold))
	silent.Timeout = 20 * time.Millisecond
	tokenless := web(refusing)
	tokenless.Auth = dialer.Basic(func(context.Context) (string, string, error) {
		_, err := dialer.Direct{}.DialContext(testContext(t), "tcp", refusing)
		return "", "", err
	})
	silentLogin := login("")
	silentLogin.Addr = serve(t, listen(t), func(ctx context.Context, conn net.Conn) {
		io.WriteString(conn, "\x05\x02")
		hold(ctx, conn)
	})
	silentLogin.Timeout = 20 * time.Millisecond
	lateAuth := status(407) // asked again, it has no answer in time
	lateAuth.Timeout = 20 * time.Millisecond
	lateAuth.Auth = dialer.AuthFunc(func(ctx context.Context, c *dialer.Challenge) (string, error) {
		if c.Attempt > 0 {
			<-ctx.Done()
		}
		return "", ctx.Err()
	})
	lateLogin := socks(refusing)
	lateLogin.Credentials = func(context.Context) (string, string, error) { return "", "", os.ErrDeadlineExceeded }
	plainAsTLS := status(400)
	plainAsTLS.TLSConfig = &tls.Config{}
	localLookup := socks(refusing)
	localLookup.Resolver = dnstest.Hosts{}.Resolver()

	for _, tt := range []struct {
		name   string
		first  dialer.Dialer
		next   bool // whether the second is tried
		target string
	}{
		{"refused", web(refusing), true, target},
		{"refused, socks5", socks(refusing), true, target},
		{"no such proxy", web("proxy.invalid:3128"), true, target},
		{"not TLS", plainAsTLS, true, target},
		{"closed", web(answering(t, "")), true, target},
		{"closed in the answer", web(answering(t, "HTTP/1.1 200 OK\r\nVia")), true, target},
		{"closed, socks5", socks(answering(t, "")), true, target},
		{"silent", silent, true, target},
		{"silent to a login", silentLogin, true, target},
		{"direct, refused", dialer.Direct{}, true, refusing},
		{"direct, no such name", dialer.Direct{}, true, "nowhere.invalid:1"},
		{"target not found here", localLookup, true, "nowhere.invalid:1"},
		{"unreachable behind a hop", behind(status(502)), true, target},
		{"refused behind a hop", behind(socks(reply(5))), true, target},
		{"hop refused", behind(web(refusing)), true, target},
		{"unreachable behind a failover of hops", behind(&dialer.Failover{Dialers: []dialer.Dialer{status(502)}}), true, target},
		{"two that failed", &dialer.Failover{Dialers: []dialer.Dialer{web(refusing), socks(refusing)}}, true, target},
		{"foreign timeout", says(os.ErrDeadlineExceeded), true, target},
		{"foreign EOF", says(fmt.Errorf("reading: %w", io.EOF)), true, target},
		{"foreign lookup error", says(&net.DNSError{Err: "x"}), true, target},
		{"foreign closed connection", says(net.ErrClosed), true, target},
		{"foreign closed pipe", says(io.ErrClosedPipe), true, target},
		{"foreign TLS alert", says(&net.OpError{Op: "remote error", Err: tls.AlertError(116)}), true, target},
		{"foreign reset", says(fmt.Errorf("stream: %w", syscall.ECONNRESET)), true, target},
		{"foreign SOCKS client, refused", says(socksClient(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})), true, target},
		{"the same, wrapped", says(&dialer.Error{Op: "wrapper", Phase: dialer.PhaseTCP, Err: socksClient(io.EOF)}), true, target},
		{"foreign network error", says(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true, target},

		{"403", status(403), false, target},
		{"407", status(407), false, target},
		{"500", status(500), false, target},
		{"502", status(502), false, target},
		{"503", status(503), false, target},
		{"504", status(504), false, target},
		{"socks5 general failure", socks(reply(1)), false, target},
		{"socks5 not allowed", socks(reply(2)), false, target},
		{"socks5 refused", socks(reply(5)), false, target},
		{"socks5 method", socks(answering(t, "\x05\xff")), false, target},
		{"socks5 login", login("\x05\x02\x01\x01"), false, target},
		{"socks5 login, closed", login("\x05\x02"), false, target},
		{"not HTTP", web(answering(t, "SSH-2.0-x\r\n")), false, target},
		{"not SOCKS", socks(answering(t, "HTTP/1.1 400 x\r\n\r\n")), false, target},
		{"403 of a hop", behind(status(403)), false, target},
		{"407 of a hop", behind(status(407)), false, target},
		{"500 of a hop", behind(status(500)), false, target},
		{"no credentials to be had", tokenless, false, target},
		{"credentials too late", lateAuth, false, target},
		{"credentials too late, socks5", lateLogin, false, target},
		{"not allowed by a hop", behind(socks(reply(2))), false, target},
		{"hop not configured", behind(&dialer.Swap{}), false, target},
		{"not configured", web(""), false, target},
		{"address", web(refusing), false, "nonsense"},
		{"no after a failure", &dialer.Failover{Dialers: []dialer.Dialer{web(refusing), status(403)}}, false, target},
		{"foreign error", says(errors.New("denied")), false, target},
		{"foreign SOCKS client, answer", says(socksClient(errors.New("unknown error host unreachable"))), false, target},
		{"the same, wrapped", says(&dialer.Error{Op: "wrapper", Phase: dialer.PhaseTCP, Err: socksClient(errors.New("x"))}), false, target},
		{"foreign nothing", says(nil), false, target},
		{"foreign cancel", says(&net.OpError{Op: "dial", Err: context.Canceled}), false, target},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, hedge := range []time.Duration{0, time.Minute} {
				f := &dialer.Failover{Dialers: []dialer.Dialer{tt.first, way("second")}, Hedge: hedge}
				_, err := f.DialContext(testContext(t), "tcp", tt.target)
				var w way
				if tried := errors.As(err, &w); tried != tt.next {
					t.Errorf("hedge %v: second tried: got %t, want %t: %v", hedge, tried, tt.next, err)
				}
			}
		})
	}
}

func TestFailoverConnects(t *testing.T) {
	for _, hedge := range []time.Duration{0, time.Minute} {
		f := &dialer.Failover{Hedge: hedge, Dialers: []dialer.Dialer{
			&dialer.HTTPConnect{Addr: refusing, Forward: checked(t)},
			&dialer.SOCKS5{Addr: answering(t, ""), Forward: checked(t)},
			&dialer.HTTPConnect{Addr: serve(t, listen(t), (&proxytest.HTTP{Dial: toEcho(t)}).Handle), Forward: checked(t)},
			way("not needed"),
		}}
		for range 2 {
			ctx, cancel := context.WithCancel(testContext(t))
			conn, err := f.DialContext(ctx, "tcp", target)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			cancel() // it bounds the dial alone
			if _, ok := conn.(*net.TCPConn); !ok {
				t.Errorf("got a %T, want the raw connection", conn)
			}
			exchange(t, conn, "")
		}
	}
}

func TestFailoverRetry(t *testing.T) {
	busy := answering(t, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
	var asked error
	f := &dialer.Failover{
		Dialers: []dialer.Dialer{&dialer.HTTPConnect{Addr: busy}, way("second")},
		Retry: func(err error) bool {
			var e *dialer.Error
			asked = err
			return errors.As(err, &e) && e.Status == 503
		},
	}
	for range 2 {
		_, err := f.DialContext(testContext(t), "tcp", target)
		// The target is what failed: the first keeps its place.
		want := []int{0, 1}
		if diff := cmp.Diff(want, members(err)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if asked != error(way("second")) {
			t.Errorf("got %v, want to be asked about the member's own error", asked)
		}
	}
}

// members are the members of which err says that they failed.
func members(err error) (got []int) {
	var failures dialer.Failures
	errors.As(err, &failures)
	for _, f := range failures {
		got = append(got, f.Member)
	}
	return got
}

func TestFailoverError(t *testing.T) {
	denying := answering(t, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
	for _, hedge := range []time.Duration{0, time.Minute} {
		f := &dialer.Failover{Hedge: hedge, Dialers: []dialer.Dialer{
			&dialer.SOCKS5{Addr: refusing},
			&dialer.HTTPConnect{Addr: denying},
			way("not tried"),
		}}
		_, err := f.DialContext(testContext(t), "tcp", target)
		var e *dialer.Error
		if !errors.As(err, &e) || e.Op != "failover" || e.Phase != dialer.PhaseConnect || e.Status != 403 || e.Addr != target {
			t.Errorf("got %#v, want the phase and status of the last", err)
		}
		var failures dialer.Failures
		if !errors.As(err, &failures) || len(failures) != 2 {
			t.Fatalf("got %v, want two failures", err)
		}
		var first, second *dialer.Error
		if !errors.As(failures[0].Err, &first) || first.Proxy != "socks5://"+refusing || failures[0].Member != 0 {
			t.Errorf("got %+v first", failures[0])
		}
		if !errors.As(failures[1].Err, &second) || second.Proxy != "http://"+denying || failures[1].Member != 1 {
			t.Errorf("got %+v second", failures[1])
		}
		var refusal *dialer.Refusal
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &refusal) || e.Timeout() {
			t.Errorf("got %v, want both causes and no timeout", err)
		}
		for _, want := range []string{"dialer: " + target + ": connect: member 1: ", refusing, "; member 2: ", denying, "403 Forbidden", "allow port 6443"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, want it to contain %q", err, want)
			}
		}
		if strings.Count(err.Error(), "dialer:") != 1 {
			t.Errorf("got %q", err)
		}
	}
}

func TestFailoverBadFields(t *testing.T) {
	for _, tt := range []struct {
		name    string
		dialers []dialer.Dialer
		want    string
	}{
		{"none", nil, "Dialers is required"},
		{"nil", []dialer.Dialer{way("x"), nil}, "member 2 of 2 is nil"},
		{"nil pointer", []dialer.Dialer{(*dialer.HTTPConnect)(nil)}, "member 1 of 1 is nil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := (&dialer.Failover{Dialers: tt.dialers}).DialContext(t.Context(), "tcp", target)
			checkConfigError(t, err, tt.want)
		})
	}
}

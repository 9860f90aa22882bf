package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/examples/programs/internal/limits"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// floodDoor has a stranger of 127.0.0.9 ask as fast as they can, by 8 connections at
// once that come again, until n requests were answered or cut.
func floodDoor(t *testing.T, addr, ask string, n int) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}, Timeout: 10 * time.Second}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			answer := make([]byte, 4<<10)
			for asked := 0; asked < n/8; {
				conn, err := dialer.DialContext(t.Context(), "tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				conn.SetDeadline(time.Now().Add(20 * time.Second))
				for err = error(nil); err == nil && asked < n/8; asked++ {
					if _, err = io.WriteString(conn, ask); err == nil {
						_, err = conn.Read(answer)
					}
				}
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		})
	}
	wg.Wait()
}

// A stranger at the doors does not fill the log, nor hide what happens to clients.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServer(t, dir, "--connect", "127.0.0.1:0", "--socks5", "127.0.0.1:0", "--sni", "127.0.0.1:0", "--sni-name", "a.example.com="+cluster+"/api:443")
	connect, socks, sni := address(p, "connect"), address(p, "socks5"), address(p, "sni")
	if _, err := tls.Dial("tcp", sni, &tls.Config{ServerName: "a.example.com"}); err == nil {
		t.Error("a client got a connection without an agent")
	}
	p.Await(`remote=127\.0\.0\.1:\d+ door=sni cluster=default/prod target=api:443 phase=dial error=.* side=tunnel`)
	before := strings.Count(p.Text(), "\n")
	const n = 2000
	floodDoor(t, connect, "CONNECT api:443 HTTP/1.1\r\nProxy-Authorization: Basic YTpi\r\n\r\n", n)
	floodDoor(t, connect, "GET / HTTP/1.1\r\n\r\n", n)
	floodDoor(t, connect, "\x16\x03\x01", n)
	floodDoor(t, socks, "\x05\x01\x02\x01\x01a\x01b", n)
	floodDoor(t, socks, "\x04", n)
	floodDoor(t, sni, "GET / HTTP/1.1\r\n\r\n", n)
	p.Await(`remote=127\.0\.0\.9:\d+ door=connect phase=authenticate error="gateway: the credentials are missing or wrong"`)
	p.Await(`remote=127\.0\.0\.9:\d+ door=sni phase=handshake`)
	u, err := url.Parse(output(t, "", "ticket", cluster, "--state", dir, "--user", "ann", "--gateway", "http://"+connect))
	if err != nil {
		t.Fatal(err)
	}
	if through(t, u.String(), nil) == nil {
		t.Error("a client got a connection without an agent")
	}
	p.Await(`remote=127\.0\.0\.1:\d+ door=connect client=ann cluster=default/prod target=api:443 phase=dial error=`)
	lines := strings.Count(p.Text(), "\n") - before
	t.Logf("%d lines in the log of %d requests", lines, 6*n)
	if lines > 10 {
		t.Errorf("got %d lines in the log of %d requests, want 10 at most:\n%s", lines, 6*n, p.Text())
	}
}

// lineBuffer is a log in memory that goroutines share.
type lineBuffer struct {
	mu   sync.Mutex // guards the field below
	text bytes.Buffer
}

func (b *lineBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

// take returns what was written since the last call.
func (b *lineBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// textLog is a log in memory, as --log-format text writes it.
func textLog(w io.Writer) *slog.Logger {
	var f logs.Flags
	f.Add(pflag.NewFlagSet("", pflag.ContinueOnError))
	return f.New(w)
}

// Whatever strangers do, they write ten lines a second at most, and a hundred in a minute
// or some more: a flood of failures, refusals and accesses, of many networks.
func TestStrangersShareTheirLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text lineBuffer
		v := newEvents(textLog(&text))
		stop := v.start()
		defer stop()
		hooks, refused := v.doorHooks("sni"), v.tunnelHooks().Refused
		most, all := 0, 0
		for second := range 120 {
			for i := range 1000 {
				remote := &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("2001:db8:%x:%x::1", second, i)), Port: 1}
				r := gateway.Request{Credentials: gateway.Credentials{Remote: remote}, Cluster: "a/b"}
				hooks.Ended(r, gateway.Ended{})
				hooks.Failed(&gateway.Error{Request: r, Phase: gateway.PhaseHandshake, Err: errors.New("no")})
				refused(remote, &tunnel.Error{Op: "connect", Code: tunnel.CodeBadRequest})
			}
			time.Sleep(time.Second)
			synctest.Wait()
			n := strings.Count(text.take(), "\n")
			most, all = max(most, n), all+n
		}
		if most > 10 || all > 220 {
			t.Errorf("got %d lines in a second and %d in two minutes, want 10 and some 200", most, all)
		}
	})
}

// Lines that are left out are counted, for each source and reason. Clients with a name
// have lines of their own.
func TestFailuresAreSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text lineBuffer
		v := newEvents(textLog(&text))
		stop := v.start()
		defer stop()
		failed := v.doorHooks("connect").Failed
		fail := func(ip, client string, err error) {
			r := gateway.Request{Client: gateway.Identity{Name: client}, Cluster: "a/b", Address: "api:443"}
			r.Credentials.Remote = &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}
			phase := gateway.PhaseDial
			if client == "" {
				phase = gateway.PhaseAuthenticate
			}
			failed(&gateway.Error{Request: r, Phase: phase, Err: err})
		}
		for range 1000 {
			fail("192.0.2.1", "", errors.New("no"))
			fail("192.0.2.1", "ann", &tunnel.Error{Op: "dial", Code: tunnel.CodeRefused})
			fail("192.0.2.1", "ann", &tunnel.Error{Op: "dial", Code: tunnel.CodeDenied})
			fail("192.0.2.2", "bob", &tunnel.Error{Op: "dial", Code: tunnel.CodeRefused})
		}
		got := text.take()
		if strings.Count(got, "\n") != 4 {
			t.Errorf("got these lines, want one of each source or client and reason:\n%s", got)
		}
		if strings.Contains(got, `remote=192.0.2.1:1 door=connect cluster`) {
			t.Errorf("a stranger chose a cluster's name:\n%s", got)
		}
		time.Sleep(61500 * time.Millisecond)
		synctest.Wait()
		got = text.take()
		for _, want := range []string{
			`event="door failed" source=192.0.2.1 reason="connect authenticate" count=999 since=`,
			`event="door failed" source=ann reason="connect dial a/b: the target refused the connection" count=999`,
			`event="door failed" source=ann reason="connect dial a/b: the agent's policy does not allow the target" count=999`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("got no %s in:\n%s", want, got)
			}
		}
		if n := strings.Count(got, "\n"); n != 4 {
			t.Errorf("got %d lines a minute later, want 4:\n%s", n, got)
		}
	})
}

// Each limit that refuses a client has a line of its own.
func TestEachLimitHasALine(t *testing.T) {
	for _, client := range []string{"ann", ""} {
		var text lineBuffer
		v := newEvents(textLog(&text))
		r := gateway.Request{Client: gateway.Identity{Name: client}, Cluster: "a/b", Address: "api:443"}
		r.Credentials.Remote = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
		for _, kind := range []string{"client", "cluster", "source", "client"} {
			err := &limits.Error{Kind: kind, Name: "x", Limit: "connections", Most: 1}
			v.doorHooks("sni").Failed(&gateway.Error{Request: r, Phase: gateway.PhaseDial, Err: err})
		}
		if got := text.take(); strings.Count(got, "\n") != 3 || !strings.Contains(got, `limit: source \"x\"`) {
			t.Errorf("client %q: got these lines, want one of each kind:\n%s", client, got)
		}
	}
}

// An agent that connects a thousand times does not write a thousand lines.
func TestSessionsAreSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text lineBuffer
		v := newEvents(textLog(&text))
		stop := v.start()
		hooks := v.tunnelHooks()
		for range 1000 {
			s := tunnel.SessionInfo{Cluster: "a/b", Agent: "x", ID: "7", Remote: "192.0.2.1:1", Since: time.Now(), DialCounts: tunnel.DialCounts{Dials: 3}, BytesIn: 5}
			hooks.Connected(s)
			hooks.Disconnected(s, errors.New("lost"))
		}
		stop()
		got := text.take()
		if n := strings.Count(got, "\n"); n != 2*20+2 {
			t.Errorf("got %d lines, want 20 of each kind and 2 sums", n)
		}
		want := `msg=disconnected cluster=a/b agent=x session=7 remote=192.0.2.1:1 duration=0s dials=3 failed=0 bytesIn=5 bytesOut=0 error=lost`
		if !strings.Contains(got, want) || strings.Contains(got, "replica") {
			t.Errorf("got no %s, or a key without a value, in:\n%s", want, got)
		}
	})
}

// Each access has a line, with the agent that served it.
func TestAccessLog(t *testing.T) {
	dir := t.TempDir()
	p := startServer(t, dir, "--connect", "127.0.0.1:0", "--sni", "127.0.0.1:0", "--sni-name", "a.example.com="+cluster+"/api:443", "--log-format", "json")
	forward := p.Await(`"for":"forward","address":"([^"]+)"`)
	connect := p.Await(`"for":"connect","address":"([^"]+)"`)
	agent := startAgent(t, newInvitation(t, dir, "--server", p.Await(`"for":"listen","address":"([^"]+)"`)), echo(t), func(a *tunnel.Agent) { a.Replica = "pod-1" })
	id := receive(t, "session", agent.connected)
	conn, err := net.Dial("tcp", forward)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "hello")
	conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(conn); string(got) != "hello" {
		t.Fatalf("got %q, %v", got, err)
	}
	conn.Close()
	by := `"cluster":"default/prod","target":"api:443","agent":"` + id.Agent + `","replica":"pod-1","bytesIn":`
	p.Await(`"msg":"access","remote":"127\.0\.0\.1:\d+","door":"forward",` + by + `5,"bytesOut":5,"duration":0\.\d+}`)
	ticket := strings.TrimSpace(output(t, "", "ticket", cluster, "--state", dir, "--user", "ann", "--gateway", "http://"+connect))
	if err := through(t, ticket, nil); err != nil {
		t.Fatal(err)
	}
	p.Await(`"msg":"access","remote":"127\.0\.0\.1:\d+","door":"connect","client":"ann",` + by + `\d+,"bytesOut":\d+,"duration":0\.\d+`)
	if strings.Contains(p.Text(), strings.Split(strings.Split(ticket, "@")[0], ":")[2]) {
		t.Error("the log has the ticket's password")
	}
}

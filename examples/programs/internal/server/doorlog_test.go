package server

import (
	"bytes"
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
	dir := t.TempDir()
	p := startServer(t, dir, "--connect", "127.0.0.1:0", "--socks5", "127.0.0.1:0", "--sni", "127.0.0.1:0", "--sni-name", "a.example.com="+cluster+"/api:443")
	connect, socks, sni := address(p, "connect"), address(p, "socks5"), address(p, "sni")
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
	p.Await(`remote=127\.0\.0\.1:\d+ door=connect phase=dial client=ann cluster=default/prod address=api:443 error=`)
	lines := strings.Count(p.Text(), "\n") - before
	t.Logf("%d lines in the log of %d requests", lines, 6*n)
	if lines > 10 {
		t.Errorf("got %d lines in the log of %d requests, want 10 at most:\n%s", lines, 6*n, p.Text())
	}
}

// Strangers of many networks have a hundred lines in a minute, and clients others.
func TestDoorLogIsSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := newDoorLog(slog.New(slog.NewTextHandler(&text, nil)))
		fail := func(ip, client string) {
			r := gateway.Request{Door: gateway.DoorConnect, Client: gateway.Identity{Name: client}}
			r.Credentials.Remote = &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}
			log.failed(&gateway.Error{Request: r, Phase: gateway.PhaseAuthenticate, Err: errors.New("no")})
		}
		for i := range 1000 {
			fail(fmt.Sprintf("2001:db8:%x::1", i), "")
		}
		fail("192.0.2.1", "ann")
		fail("192.0.2.1", "ann")
		fail("192.0.2.1", "bob")
		if got := strings.Count(text.String(), "\n"); got != maxRefusals+2 {
			t.Errorf("got %d lines, want %d of strangers and 2 of clients", got, maxRefusals)
		}
		time.Sleep(refusalEvery)
		text.Reset()
		fail("2001:db8::1", "")
		if got := text.String(); !strings.Contains(got, "count=900") {
			t.Errorf("got %q a minute later, want how many were not logged", got)
		}
	})
}

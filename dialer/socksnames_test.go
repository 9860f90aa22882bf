package dialer_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http/httpproxy"

	"github.com/causewayproject/causeway/dialer"
)

// socksRecorder is a SOCKS5 listener that tells what it is asked for, and
// refuses it.
func socksRecorder(t *testing.T) (addr string, asked <-chan string) {
	requests := make(chan string, 100)
	return serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		br := bufio.NewReader(conn)
		head := make([]byte, 5)
		if _, err := io.ReadFull(br, head[:2]); err != nil {
			return
		}
		if _, err := br.Discard(int(head[1])); err != nil {
			return
		}
		io.WriteString(conn, takeNone)
		if _, err := io.ReadFull(br, head); err != nil {
			return
		}
		length := map[byte]int{1: 3, 3: int(head[4]), 4: 15}[head[3]] // a byte of it was read
		rest := make([]byte, length+2)
		if _, err := io.ReadFull(br, rest); err != nil {
			return
		}
		requests <- string(head) + string(rest)
		io.WriteString(conn, "\x05\x05\x00"+bound4)
	}), requests
}

// HTTPS_PROXY=socks5:// asks the proxy for the name, as net/http
// does. FromURL has curl's meaning.
func TestSOCKS5Names(t *testing.T) {
	const host = "api.causeway.test" // which this machine can't look up
	addr, asked := socksRecorder(t)
	want := "\x05\x01\x00\x03\x11" + host + "\x01\xbb"
	clients := map[string]func(t *testing.T, proxy string){
		"net/http": func(t *testing.T, proxy string) {
			u, err := url.Parse(proxy)
			if err != nil {
				t.Fatal(err)
			}
			transport := &http.Transport{Proxy: http.ProxyURL(u)}
			defer transport.CloseIdleConnections()
			req, err := http.NewRequestWithContext(testContext(t), "GET", "https://"+host, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := transport.RoundTrip(req); err == nil {
				resp.Body.Close()
				t.Error("got an answer")
			}
		},
		"FromEnvironment": func(t *testing.T, proxy string) {
			clearProxies(t)
			t.Setenv("HTTPS_PROXY", proxy)
			refusedBy(t, host, dialer.FromEnvironment)
		},
		"ALL_PROXY": func(t *testing.T, proxy string) {
			clearProxies(t)
			t.Setenv("ALL_PROXY", proxy)
			refusedBy(t, host, dialer.FromEnvironment)
		},
		"FromConfig": func(t *testing.T, proxy string) {
			refusedBy(t, host, func() (dialer.Dialer, error) { return dialer.FromConfig(&httpproxy.Config{HTTPSProxy: proxy}) })
		},
		"Config.Dialer": func(t *testing.T, proxy string) {
			opts := &dialer.Options{Resolver: names{host: {"192.0.2.1"}}}
			refusedBy(t, host, func() (dialer.Dialer, error) { return (&dialer.Config{HTTPSProxy: proxy}).Dialer(opts) })
		},
	}
	for name, ask := range clients {
		for _, scheme := range []string{"socks5", "socks5h"} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				ask(t, scheme+"://"+addr)
				checkAsked(t, asked, want)
			})
		}
	}
	t.Run("FromURL", func(t *testing.T) {
		opts := &dialer.Options{Resolver: names{host: {"192.0.2.1"}}}
		refusedBy(t, host, func() (dialer.Dialer, error) { return dialer.FromURL(&url.URL{Scheme: "socks5", Host: addr}, opts) })
		checkAsked(t, asked, "\x05\x01\x00\x01\xc0\x00\x02\x01\x01\xbb")
	})
}

func refusedBy(t *testing.T, host string, make func() (dialer.Dialer, error)) {
	t.Helper()
	d, err := make()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.DialContext(testContext(t), "tcp", host+":443"); err == nil || !strings.Contains(err.Error(), "answered 5") {
		t.Errorf("got %v, want the proxy's refusal", err)
	}
}

// checkAsked takes all that was asked, which is the same each time.
func checkAsked(t *testing.T, asked <-chan string, want string) {
	t.Helper()
	for n := 0; ; n++ {
		select {
		case got := <-asked:
			if got != want {
				t.Errorf("the proxy was asked %q, want %q", got, want)
			}
		default:
			if n == 0 {
				t.Error("the proxy was not asked")
			}
			return
		}
	}
}

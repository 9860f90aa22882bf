package dialer_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// Every conn that a dial returns is a net.Conn in full. The pipe is the dialed
// conn and the conn that the target accepted. The conn to an https proxy is
// left out: it is a *tls.Conn, which does not recover from a write that timed
// out, as crypto/tls documents.
func TestConns(t *testing.T) {
	t.Run("http", func(t *testing.T) {
		d := &dialer.HTTPConnect{Addr: serve(t, listen(t), (&proxytest.HTTP{}).Handle)}
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(d, "") })
	})
	t.Run("socks5", func(t *testing.T) {
		d := &dialer.SOCKS5{Addr: serve(t, listen(t), (&proxytest.SOCKS5{}).Handle)}
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(d, "") })
	})
	t.Run("with early bytes", func(t *testing.T) {
		// The proxy says "early" as the target would, in the same write as its 200.
		addr := serve(t, listen(t), func(ctx context.Context, conn net.Conn) {
			br := bufio.NewReader(conn)
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", req.Host)
			if err != nil {
				return
			}
			defer far.Close()
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nearly")
			done := make(chan struct{})
			go func() {
				defer close(done)
				io.Copy(conn, far)
				conn.Close()
			}()
			io.Copy(far, br)
			far.Close()
			<-done
		})
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(&dialer.HTTPConnect{Addr: addr}, "early") })
	})
}

// pipe dials a listener through d and reads what comes first.
func pipe(d dialer.Dialer, early string) (c1, c2 net.Conn, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, nil, err
	}
	defer l.Close()
	c1, err = d.DialContext(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		return nil, nil, nil, err
	}
	c2, err = l.Accept()
	if err != nil {
		return nil, nil, nil, err
	}
	if _, err := io.ReadFull(c1, make([]byte, len(early))); err != nil {
		return nil, nil, nil, err
	}
	return c1, c2, func() { c1.Close(); c2.Close() }, nil
}

// A closed conn yields nothing more, not even what was read ahead.
func TestEarlyBytesAfterClose(t *testing.T) {
	conn, err := (&dialer.HTTPConnect{Addr: scripted(t, false, "HTTP/1.1 200 OK\r\n\r\nearly")}).DialContext(testContext(t), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if n, err := conn.Read(make([]byte, 10)); n != 0 || err == nil {
		t.Errorf("got %d bytes, %v; want an error", n, err)
	}
}

func TestTransport(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/header" {
			w.Header().Set("A", strings.Repeat("b", 2<<20))
		}
		io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	requests := 0
	p := &proxytest.HTTP{
		Log: func(proxytest.Request) { requests++ },
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.Direct{}.DialContext(ctx, network, server.Listener.Addr().String())
		},
	}
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	tr := dialer.Transport(&dialer.HTTPConnect{Addr: serve(t, listen(t), p.Handle)})
	defer tr.CloseIdleConnections()
	tr.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	tr.TLSClientConfig.ServerName = "example.com"
	for range 3 {
		res, err := (&http.Client{Transport: tr}).Get("https://" + target)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != "HTTP/2.0" {
			t.Errorf("got %s, want HTTP/2.0", body)
		}
	}
	if requests != 1 {
		t.Errorf("got %d CONNECT requests, want 1", requests)
	}
	if res, err := (&http.Client{Transport: tr}).Get("https://" + target + "/header"); err == nil {
		res.Body.Close()
		t.Error("a header of 2 MiB is taken")
	}
	if tr.Proxy != nil {
		t.Error("Proxy is set")
	}
}

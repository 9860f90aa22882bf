package cli_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

// Strangers who hold connections with half a request keep no probe out, and no more of them
// are kept than have places or wait for one.
func TestServeHTTPStrangers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- cli.ServeHTTP(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	}()
	const strangers = 400
	closed := make(chan bool, strangers)
	for range strangers {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n")
		go func() {
			conn.Read(make([]byte, 1))
			closed <- true
		}()
	}
	for range strangers - 5*64 {
		select {
		case <-closed:
		case <-time.After(5 * time.Second): // half of what a header may take
			t.Fatal("all strangers keep their connections")
		}
	}
	kubelet := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: kubelet.DialContext}, Timeout: 5 * time.Second}
	if res, err := client.Get("http://" + l.Addr().String()); err != nil {
		t.Error(err)
	} else {
		res.Body.Close()
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

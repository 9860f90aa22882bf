package cli_test

import (
	"context"
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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
	var blamed atomic.Bool // a stranger has got an answer to half a request
	closed := make(chan bool, strangers)
	for range strangers {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n")
		go func() {
			if answer, _ := io.ReadAll(io.LimitReader(conn, 100)); len(answer) > 0 {
				blamed.Store(true)
			}
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
	if blamed.Load() {
		t.Error("got an answer for want of a place, as if the request were wrong")
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Strangers of more addresses than there are places, who ask for pages in advance, read no
// answer and come again: a probe gets in, and pages are made one after the other.
func TestServeHTTPUnreadPages(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	var made, now, most atomic.Int64
	busy := make(chan struct{})
	page := make([]byte, 256<<10)
	go func() {
		served <- cli.ServeHTTP(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" {
				return
			}
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			for range 20 {
				sha256.Sum256(page)
			}
			now.Add(-1)
			if made.Add(1) == 200 {
				close(busy)
			}
			w.Write(page)
		}))
	}()
	var strangers sync.WaitGroup
	for i := range 120 {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}}
		strangers.Go(func() {
			for ctx.Err() == nil {
				conn, err := from.DialContext(ctx, "tcp", l.Addr().String())
				if err != nil {
					continue
				}
				conn.(*net.TCPConn).SetWriteBuffer(4 << 10) // else the strangers need all of the CPU
				end := context.AfterFunc(ctx, func() { conn.Close() })
				for err == nil { // until it is displaced
					_, err = io.WriteString(conn, strings.Repeat("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 100))
				}
				end()
				conn.Close()
			}
		})
	}
	<-busy
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	for probe := range 4 {
		failed := 0
		for ; failed < 3; failed++ { // a kubelet's failureThreshold
			if res, err := client.Get("http://" + l.Addr().String() + "/healthz"); err == nil {
				res.Body.Close()
				break
			}
		}
		if failed == 3 {
			t.Errorf("probe %d: got no answer in 3 tries of a second", probe)
		}
	}
	if got := most.Load(); got > 1 {
		t.Errorf("got %d pages made at once, want one at a time", got)
	}
	stop()
	strangers.Wait()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

//go:build !race

package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// A servingProcess is the other process, as it is seen from outside.
type servingProcess struct {
	pid     int
	address string
	trusted *x509.CertPool
}

func startServing(t *testing.T) servingProcess {
	t.Helper()
	dir, ca := t.TempDir(), pki.NewCA("ca")
	cert, key := pki.PEM(ca.Server("127.0.0.1"))
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "tls.crt"), cert, 0o600), os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+dir, "GOMEMLIMIT=80MiB") // the manifest's
	cmd.Stderr = os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return servingProcess{cmd.Process.Pid, strings.TrimSpace(line), ca.Pool()}
}

// peakMiB returns what the process has had in memory at most.
func (s servingProcess) peakMiB(t *testing.T) (peak int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &peak); err != nil {
		t.Fatal(err)
	}
	return peak >> 10
}

func (s servingProcess) dial(ctx context.Context, from string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", s.address)
}

// ask is the API server's: a new connection for each request.
func (s servingProcess) ask(from string, body []byte) (time.Duration, error) {
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: s.trusted},
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx, from) }}}
	began := time.Now()
	res, err := c.Post("https://"+s.address, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK || err != nil {
		return 0, fmt.Errorf("got %s: %.200s, %v", res.Status, text, err)
	}
	return time.Since(began), nil
}

const (
	postHead = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
	envelope = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":`
)

// over has a stranger do the handshake, offer protocols, and say something.
func over(say string, alpn ...string) func(net.Conn) {
	text := []byte(say) // io.WriteString copies it for each of them
	return func(conn net.Conn) {
		c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: alpn})
		if c.Handshake() == nil {
			c.Write(text)
		}
	}
}

// review has a stranger send a whole request, and read nothing.
func review(request string) func(net.Conn) {
	body := envelope + request + "}"
	return over(fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", postHead, len(body), body))
}

func say(text string) func(net.Conn) { return func(conn net.Conn) { io.WriteString(conn, text) } }

// helloOnly stops when the server has answered the ClientHello.
func helloOnly(conn net.Conn) {
	tls.Client(helloConn{conn}, &tls.Config{InsecureSkipVerify: true}).Handshake()
}

type helloConn struct{ net.Conn }

func (helloConn) Read([]byte) (int, error) { return 0, io.EOF }

// Whatever strangers do who hold all that they get, and come again: the API server is
// answered at once at its own address, and after some attempts at theirs, and the process
// fits into its pod.
func TestStrangers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute of both cores")
	}
	const pods = `"resource":{"version":"v1","resource":"pods"},"operation":"CREATE","object":`
	big := strings.Repeat("x", 7<<20)
	fields := ""
	for n := range 4000 {
		fields += fmt.Sprintf("%x:\n", n)
	}
	for name, do := range map[string]func(net.Conn){
		"silent":                        say(""),
		"half a hello":                  say("\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + strings.Repeat("x", 50)),
		"a long hello":                  say("\x16\x03\x01\x30\x00\x01\x00\xff\x00" + strings.Repeat("x", 12<<10)),
		"a hello of many records":       say(strings.Repeat("\x16\x03\x01\x10\x00\x01\x00\xff\x00"+strings.Repeat("x", 4092), 15)),
		"half a handshake":              helloOnly,
		"no request":                    over(""),
		"HTTP without TLS":              say(postHead + "\r\n"),
		"half a header":                 over(postHead),
		"a long header":                 over(postHead + "A: " + strings.Repeat("x", 15<<10)),
		"a header of many lines":        over(postHead + fields),
		"many lines behind a request":   over("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n" + fields),
		"half a small body":             over(postHead + "Content-Length: 65536\r\n\r\n" + big[:65535]),
		"half a large body":             over(postHead + "Content-Length: 7340032\r\n\r\n" + big[1:]),
		"the beginning of a large body": over(postHead + "Content-Length: 7340032\r\n\r\n" + big[:65537]),
		"half a chunked body":           over(postHead + "Transfer-Encoding: chunked\r\n\r\n700000\r\n" + big[1:]),
		"a trailer of many lines":       over(postHead + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + fields[:4000]),
		"100-continue":                  over(postHead + "Expect: 100-continue\r\nContent-Length: 7340032\r\n\r\n"),
		"answered and idle":             over("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
		"pipelined":                     over(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 10000)),
		"HTTP/2":                        over("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "h2"),
		"a long uid":                    review(`{"uid":"` + strings.Repeat("<", 7<<20) + `"}`),
		"many values":                   review(`{"uid":"u",` + pods + `{"spec":{"containers":[{"env":[` + strings.Repeat("{},", 40000) + `{}]}]}}}`),
		"too many values":               review(`{"uid":"u",` + pods + `{"spec":{"containers":[` + strings.Repeat("{},", 2<<20) + `{}]}}}`),
		"nested":                        review(`{"uid":"u","object":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `}`),
		"compressed":                    over(postHead + "Content-Encoding: gzip\r\nContent-Length: 20\r\n\r\n\x1f\x8b\x08" + strings.Repeat("\x00", 17)),
		"large answers":                 review(`{"uid":"u",` + pods + `{"spec":{"containers":[` + strings.Repeat("{},", 1000) + `{}]}}}`),
	} {
		t.Run(name, func(t *testing.T) { testStrangers(t, do) })
	}
}

func testStrangers(t *testing.T, do func(net.Conn)) {
	const strangers, atOwn, atTheirs = 300, "127.0.0.2", "127.0.0.9"
	s := startServing(t)
	small := reviewOf(t, creation(t, somePod()))
	large := append(bytes.Clone(small), bytes.Repeat([]byte(" "), 3<<20)...)
	if _, err := s.ask(atOwn, large); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var came atomic.Int64
	defer all.Wait()
	defer stop()
	for range strangers {
		all.Go(func() {
			for ctx.Err() == nil {
				conn, err := s.dial(ctx, atTheirs)
				if err == nil {
					stopped := context.AfterFunc(ctx, func() { conn.Close() })
					do(conn)
					came.Add(1)
					conn.SetReadDeadline(time.Now().Add(20 * time.Second))
					for err == nil { // until it is closed
						time.Sleep(50 * time.Millisecond)
						_, err = conn.Read(make([]byte, 1))
					}
					stopped()
					conn.Close()
				}
			}
		})
	}
	for came.Load() < strangers/2 {
		time.Sleep(10 * time.Millisecond) // others' sockets
	}
	var slowest time.Duration
	for range 2 {
		for _, ask := range []struct {
			what, from string
			body       []byte
			attempts   int
		}{{"a small review", atOwn, small, 1}, {"a large review", atOwn, large, 1}, {"a small review from the strangers' address", atTheirs, small, 3}} {
			took, err := s.ask(ask.from, ask.body)
			for n := 1; n < ask.attempts && err != nil; n++ {
				took, err = s.ask(ask.from, ask.body)
			}
			if slowest = max(slowest, took); err != nil {
				t.Errorf("%s: %v", ask.what, err)
			}
		}
	}
	peak := s.peakMiB(t)
	t.Logf("%d strangers came; the slowest answer took %v; at most %d MiB", came.Load(), slowest, peak)
	if peak > 120 { // of the pod's 128
		t.Errorf("got %d MiB, want 120 at most", peak)
	}
}

package dialer_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// nghttpx starts the program of that name, as an https proxy that speaks
// HTTP/2, and returns a dialer to it. It does not connect to targets itself:
// that is done by a proxy of proxytest.
func nghttpx(t *testing.T) *dialer.HTTPConnect {
	t.Helper()
	program, err := exec.LookPath("nghttpx")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("nghttpx: install the Debian package nghttp2-proxy, or run .ci/install")
		}
		t.Skip("no nghttpx")
	}
	dir, ca := t.TempDir(), pki.NewCA("proxy")
	certPath, keyPath := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	cert, key := pki.PEM(ca.Server("127.0.0.1"))
	if err := os.WriteFile(certPath, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyPath, key, 0o600); err != nil {
		t.Fatal(err)
	}
	l := listen(t) // for a port
	addr := l.Addr().String()
	l.Close()
	behind := serve(t, listen(t), (&proxytest.HTTP{}).Handle)
	cmd := exec.Command(program, "--http2-proxy", "--conf=/dev/null", "--workers=1", "--single-process", "--errorlog-file="+filepath.Join(dir, "log"),
		"--frontend="+strings.Replace(addr, ":", ",", 1), "--backend="+strings.Replace(behind, ":", ",", 1), keyPath, certPath)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-exited })
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			break
		}
		select {
		case <-exited:
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("nghttpx has ended: %s", text)
		case <-time.After(10 * time.Millisecond):
		}
	}
	shared := &dialer.HTTP2{}
	t.Cleanup(func() { shared.Close() })
	return &dialer.HTTPConnect{Addr: addr, TLSConfig: &tls.Config{RootCAs: ca.Pool()}, HTTP2: shared}
}

// nghttpx tells a target only of a reset that its client has ended, and has 8
// connections to what is behind it: a stream that is closed must not stay.
func TestNghttpxClose(t *testing.T) {
	var targets sync.WaitGroup
	address := serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		defer targets.Done()
		io.Copy(conn, conn)
	})
	d := nghttpx(t)
	targets.Add(30)
	began := time.Now()
	for range 30 {
		conn, err := d.DialContext(testContext(t), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		exchangeAny(t, conn)
		conn.Close()
	}
	took := time.Since(began)
	targets.Wait()
	t.Logf("30 tunnels took %v, and their targets ended after %v", took, time.Since(began))
	if took > 5*time.Second {
		t.Errorf("30 tunnels took %v, as long as if they lingered", took)
	}
}

// What was written before Close arrives, also at a target that begins to read
// when the stream was reset.
func TestNghttpxCloseLosesNothing(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	got := make(chan int64, 1)
	address := serve(t, listen(t), func(_ context.Context, conn net.Conn) {
		time.Sleep(time.Second) // longer than it takes to be reset
		n, _ := io.Copy(io.Discard, conn)
		got <- n
	})
	d := nghttpx(t)
	for range 3 {
		conn, err := d.DialContext(testContext(t), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if n := <-got; n != size {
			t.Errorf("the target got %d bytes, want %d", n, size)
		}
	}
}

//go:build unix

package probe_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/kubeconfig/connect"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// lateContext runs out of time when the test says so: when what hangs has
// been reached.
type lateContext struct {
	context.Context
	deadline time.Time
	over     chan struct{}
	expire   func()
}

func newLateContext(t *testing.T) *lateContext {
	c := &lateContext{Context: t.Context(), deadline: time.Now().Add(time.Hour), over: make(chan struct{})}
	c.expire = sync.OnceFunc(func() { close(c.over) })
	return c
}

func (c *lateContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *lateContext) Done() <-chan struct{}       { return c.over }
func (c *lateContext) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// hang is what one kind of it needs of a test.
type hang struct {
	late    *lateContext
	answers map[string]http.HandlerFunc
	opts    connect.Options
	cluster *clientcmdapi.Cluster
	user    *clientcmdapi.AuthInfo
}

func (h *hang) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	h.late.expire()
	<-ctx.Done()
	return nil, ctx.Err()
}

// mute serves clients that it lets speak.
func (h *hang) mute(_ context.Context, conn net.Conn) {
	conn.Read(make([]byte, 1))
	h.late.expire()
	io.Copy(io.Discard, conn)
}

func (h *hang) answer(_ http.ResponseWriter, r *http.Request) {
	h.late.expire()
	<-r.Context().Done()
}

// plugin makes an exec plugin that ends with the test.
func (h *hang) plugin(t *testing.T) {
	*h.user = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		Command: "cat", Args: []string{pipeOf(t, h.late)}, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
}

// pipeOf returns a named pipe. When somebody has opened it to read, late expires; it has no
// end before the test's.
func pipeOf(t *testing.T, late *lateContext) string {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		// Opened when the reader has opened it.
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		late.expire()
		<-t.Context().Done()
		os.Remove(pipe) // the reader may open it again
		w.Close()
	}()
	return pipe
}

// What hangs is named, whatever it is.
func TestProbeHangs(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*testing.T, *hang)
		want failure
	}{
		{"dns", func(_ *testing.T, h *hang) {
			h.opts.Forward = dialer.Direct{Dialer: &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: h.dial}}}
			h.cluster.Server = "https://api.example.com:6443"
		}, failure{probe.PhaseDNS, "DNS does not answer for the name api.example.com", "DNS servers"}},
		{"tcp", func(_ *testing.T, h *hang) { h.opts.Forward = dialer.Func(h.dial) },
			failure{probe.PhaseTCP, "the API server does not answer at", "Open the firewall"}},
		{"tcp to the proxy", func(_ *testing.T, h *hang) {
			h.opts.Forward = dialer.Func(h.dial)
			h.cluster.ProxyURL = "socks5://proxy.test"
		}, failure{probe.PhaseTCP, "the proxy does not answer at proxy.test:1080", "in proxy-url"}},
		{"proxy tls", func(t *testing.T, h *hang) { h.cluster.ProxyURL = "https://" + script(t, nil, h.mute) },
			failure{probe.PhaseProxyTLS, "the proxy does not answer to TLS", adviceScheme}},
		{"connect", func(t *testing.T, h *hang) { h.cluster.ProxyURL = "http://" + script(t, nil, h.mute) },
			failure{probe.PhaseConnect, "the proxy does not answer to the request for 127.0.0.1:", "a firewall behind it"}},
		{"tls", func(t *testing.T, h *hang) { h.cluster.Server = "https://" + script(t, nil, h.mute) },
			failure{probe.PhaseTLS, "does not answer to TLS", "MTU"}},
		{"plugin", func(t *testing.T, h *hang) { h.plugin(t) },
			failure{probe.PhaseAuth, "the exec plugin cat does not answer", "by hand"}},
		{"auth", func(_ *testing.T, h *hang) { h.answers[review] = h.answer },
			failure{probe.PhaseAuth, "does not answer to a request", "Try again"}},
		{"readyz", func(_ *testing.T, h *hang) { h.answers["/readyz"] = h.answer },
			failure{probe.PhaseReady, "does not answer to a request", "Try again"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &hang{late: newLateContext(t), answers: map[string]http.HandlerFunc{}}
			config := newProbed(t, h.answers).config(t)
			h.cluster, h.user = config.Clusters["c1"], config.AuthInfos["c1-admin"]
			test.set(t, h)
			r := kubetest.NewClient(t, config, &h.opts).Probe(h.late)
			checkFailure(t, r, test.want)
			if err := r.Err(); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v, want a timeout", err)
			}
		})
	}
}

// A 101 that nobody has asked for does not hold the probe.
func TestProbeSwitchedProtocols(t *testing.T) {
	ca := newProbed(t, nil)
	server := script(t, &tls.Config{Certificates: []tls.Certificate{ca.ca.Server("api.test", "127.0.0.1")}}, func(ctx context.Context, conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil { // net/http takes what comes before it for no answer
			return
		}
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		<-ctx.Done()
	})
	config := ca.config(t)
	config.Clusters["c1"].Server = "https://" + server
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	checkFailure(t, probe.Run(ctx, config), failure{probe.PhaseAuth, "the answer is 101 Switching Protocols", "Check what listens at " + server + "."})
	if ctx.Err() != nil {
		t.Error("the probe waited for its context")
	}
}

// The header of an answer has an end, whatever the API server sends.
func TestProbeBoundsHeader(t *testing.T) {
	line := "A: " + strings.Repeat("b", 1<<20) + "\r\n"
	api := newProbed(t, map[string]http.HandlerFunc{review: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("A", line[3:1<<20])
		io.WriteString(w, `{"kind":"SelfSubjectReview"}`)
	}})
	endless := script(t, &tls.Config{Certificates: []tls.Certificate{api.ca.Server("api.test", "127.0.0.1")}}, func(_ context.Context, conn net.Conn) {
		_, err := http.ReadRequest(bufio.NewReader(conn)) // see above
		for head := "HTTP/1.1 200 OK\r\n"; err == nil; head = line {
			_, err = io.WriteString(conn, head)
		}
	})
	for server, want := range map[string]string{api.Listener.Addr().String(): "the request fails: ", endless: "headers exceeded 65536 bytes"} {
		for _, plain := range []bool{false, true} {
			config := api.config(t)
			config.Clusters["c1"].Server = "https://" + server
			checkFailure(t, probe.Options{Plain: plain}.Run(probeContext(t), config), failure{probe.PhaseAuth, want, "Check what listens at " + server + "."})
		}
	}
}

// TestProbeBoundsFrames: frames that are no part of an answer come to an end, too, and so do
// connections after each of which net/http makes another.
func TestProbeBoundsFrames(t *testing.T) {
	api := newProbed(t, nil)
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	for cause, after := range map[string][]byte{
		"the other end has sent more than 256 KiB, or has ended 16 connections": bytes.Repeat([]byte{0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 1000), // answers to no PING
		"": {0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, // GOAWAY
	} {
		var conns atomic.Int32
		config := &tls.Config{Certificates: []tls.Certificate{api.ca.Server("127.0.0.1")}, NextProtos: []string{"h2"}}
		hostile := script(t, config, func(_ context.Context, conn net.Conn) {
			conns.Add(1)
			_, err := conn.Write(settings)
			for err == nil {
				_, err = conn.Write(after)
			}
		})
		for _, plain := range []bool{false, true} {
			config := api.config(t)
			config.Clusters["c1"].Server = "https://" + hostile
			conns.Store(0)
			r := probe.Options{Plain: plain}.Run(probeContext(t), config)
			checkFailure(t, r, failure{probe.PhaseAuth, cause, ""})
			if n := conns.Load(); n > 30 { // one a request after the bound
				t.Errorf("got %d connections, want 16 and a few", n)
			}
		}
	}
}

func TestProbeEnded(t *testing.T) {
	api := newProbed(t, nil)
	c := kubetest.NewClient(t, api.config(t), nil)
	ctx, cancel := context.WithCancel(probeContext(t))
	cancel()
	r := c.Probe(ctx)
	checkFailure(t, r, failure{probe.PhaseTCP, "canceled", ""})
	if !errors.Is(r.Err(), context.Canceled) {
		t.Errorf("got %v, want context.Canceled", r.Err())
	}
	c.Close()
	r = c.Probe(probeContext(t))
	checkFailure(t, r, failure{probe.PhaseTCP, "the client was closed", ""})
	if !errors.Is(r.Err(), net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", r.Err())
	}
}

// A file of one's own kubeconfig may be read; it holds the probe no longer than the rest, and
// has an end.
func TestProbeFiles(t *testing.T) {
	const pipe = "pipe"
	sparse := filepath.Join(t.TempDir(), "sparse")
	if err := errors.Join(os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(file string, c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo){
		"certificate-authority": func(file string, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthority, c.CertificateAuthorityData = file, nil
		},
		"client-certificate": func(file string, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificate, u.ClientCertificateData = file, nil
		},
		"client-key": func(file string, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientKey, u.ClientKeyData = file, nil
		},
		"tokenFile": func(file string, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{TokenFile: file}
		},
	} {
		for file, cause := range map[string]string{
			pipe: "a file that it names does not end", "/dev/zero": name + ": is a device", sparse: name + ": has 1099511627776 bytes",
		} {
			t.Run(name+" "+filepath.Base(file), func(t *testing.T) {
				config := newProbed(t, nil).config(t)
				late := newLateContext(t)
				if file == pipe {
					file = pipeOf(t, late)
				}
				change(file, config.Clusters["c1"], config.AuthInfos["c1-admin"])
				checkFailure(t, probe.Run(late, config), failure{probe.PhaseConfig, cause, "orrect"})
			})
		}
	}
}

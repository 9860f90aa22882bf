package injector

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "hunter2-canary"

// files are a program's: its certificate and the directory of its configuration.
type files struct {
	t   *testing.T
	ca  *pki.CA
	dir string
}

func newFiles(t *testing.T) *files {
	f := &files{t, pki.NewCA("ca"), t.TempDir()}
	f.certificate()
	f.variable("HTTPS_PROXY", "http://user:"+canary+"@proxy:1\n")
	f.variable("NO_PROXY", "first")
	return f
}

func (f *files) variable(name, text string) { f.write(filepath.Join("config", name), []byte(text)) }

// with makes another directory of a configuration.
func (f *files) with(name, proxy, list string) string {
	f.write(filepath.Join(name, "HTTP_PROXY"), nil)
	f.write(filepath.Join(name, "HTTPS_PROXY"), []byte(proxy))
	f.write(filepath.Join(name, "NO_PROXY"), []byte(list))
	return filepath.Join(f.dir, name)
}

// values makes one that has values, and another file.
func (f *files) values(dir, name, text string) string {
	f.write(filepath.Join(dir, "values"), []byte("cluster: {proxy: {https: 'http://user:"+canary+"@proxy:1'}}"))
	f.write(filepath.Join(dir, name), []byte(text))
	return filepath.Join(f.dir, dir)
}

func (f *files) certificate() {
	cert, key := pki.PEM(f.ca.Server("127.0.0.1"))
	f.write("tls.crt", cert)
	f.write("tls.key", key)
}

func (f *files) write(name string, text []byte) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path)); err != nil {
		f.t.Fatal(err)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	_, err := command.Execute(ctx, Command(), args, stdin, stdout, stderr)
	return err
}

func (f *files) args(more ...string) []string {
	return append([]string{"--listen", "127.0.0.1:0", "--health", "127.0.0.1:0", "--config", filepath.Join(f.dir, "config"),
		"--cert", filepath.Join(f.dir, "tls.crt"), "--key", filepath.Join(f.dir, "tls.key"), "--secret", "proxy", "--drain-delay", "1ms"}, more...)
}

// client is the API server, which keeps no connection here.
func (f *files) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Minute,
		TLSClientConfig: &tls.Config{RootCAs: f.ca.Pool()}}}
}

const question = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","namespace":"a",
	"resource":{"version":"v1","resource":"pods"},"object":{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}}}`

func (f *files) ask(address string, body io.Reader) (patch string, serial string, err error) {
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, "https://"+address+"/pods", body)
	if err != nil {
		return "", "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
	res, err := f.client().Do(req)
	if err != nil {
		return "", "", err
	}
	defer res.Body.Close()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(res.Body).Decode(&review); err != nil || review.Response == nil {
		return "", "", fmt.Errorf("status %d, %w", res.StatusCode, err)
	}
	return string(review.Response.Patch), res.TLS.PeerCertificates[0].SerialNumber.String(), nil
}

func (f *files) mustAsk(address string) (patch, serial string) {
	f.t.Helper()
	patch, serial, err := f.ask(address, strings.NewReader(question))
	if err != nil {
		f.t.Fatal(err)
	}
	return patch, serial
}

// TestRun follows its configuration and its certificate, and has no password in
// its answers and its log.
func TestRun(t *testing.T) {
	f := newFiles(t)
	p := clitest.Start(t, run, nil, f.args("--pods", "10.244.0.0/16")...)
	address := p.Await(`for=reviews address=(\S+)`)
	patch, serial := f.mustAsk(address)
	if !strings.Contains(patch, `"localhost,127.0.0.1,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default,10.244.0.0/16,first,$(KUBERNETES_SERVICE_HOST)"`) || !strings.Contains(patch, `{"name":"proxy","key":"HTTPS_PROXY"}`) {
		t.Errorf("got %s, want the list and the Secret", patch)
	}
	p.Await(`review namespace=a pod=p reason=default containers=c`)
	f.variable("NO_PROXY", "second")
	p.Await(`config=.*second`)
	if patch, _ := f.mustAsk(address); !strings.Contains(patch, "second") {
		t.Errorf("got %s, want the second list", patch)
	}
	f.variable("HTTPS_PROXY", canary+"@")
	p.Await(`config: the one before stays`)
	if patch, _ := f.mustAsk(address); !strings.Contains(patch, "second") {
		t.Errorf("got %s, want the second list still", patch)
	}
	f.variable("HTTPS_PROXY", "\n")
	p.Await(`config: the one before stays" error="[^"]*HTTP_PROXY and HTTPS_PROXY in`)
	f.variable("HTTPS_PROXY", "http://user:"+canary+"@proxy:1\n")
	f.variable("NO_PROXY", "10.0.0.0/99")
	p.Await(`config: the one before stays" error=.*10\.0\.0\.0/99`)
	if patch, _ := f.mustAsk(address); !strings.Contains(patch, "second") || !strings.Contains(patch, `"key":"HTTPS_PROXY"`) {
		t.Errorf("got %s, want the second list and the proxy still", patch)
	}
	f.certificate()
	if _, renewed := f.mustAsk(address); renewed == serial {
		t.Error("got the same certificate, want the renewed one")
	}
	clitest.CheckMetrics(t, "http://"+p.Await(`for=health address=(\S+)`)+"/metrics", `causeway_injector_review_duration_seconds_count{result="injected"} 5`,
		`causeway_injector_review_duration_seconds_count{result="error"} 0`, `causeway_certificate_expiry_timestamp_seconds{listener="listen"} `)
	if err := p.Stop(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if strings.Contains(p.Text()+patch, canary) {
		t.Error("got the password in the log or an answer")
	}
}

// begun tells when it is read, which is when the program asks for it.
type begun struct {
	io.Reader
	once sync.Once
	read chan struct{}
	more chan struct{}
}

func (b *begun) Read(buf []byte) (int, error) {
	b.once.Do(func() { close(b.read) })
	<-b.more
	return b.Reader.Read(buf)
}

// refused waits until nobody listens at address.
func refused(t *testing.T, address string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		conn.Close()
		select {
		case <-late:
			t.Fatal("it still takes connections")
		case <-time.After(time.Millisecond):
		}
	}
}

// What was asked before the end is answered.
func TestDrain(t *testing.T) {
	f := newFiles(t)
	p := clitest.Start(t, run, nil, f.args("--drain", "1m")...)
	address, health := p.Await(`for=reviews address=(\S+)`), p.Await(`for=health address=(\S+)`)
	page := func(path string, want int) {
		t.Helper()
		res, err := f.client().Get("http://" + health + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("got %d of %s, want %d", res.StatusCode, path, want)
		}
	}
	page("/healthz", 200)
	page("/readyz", 200)
	body := &begun{Reader: strings.NewReader(question), read: make(chan struct{}), more: make(chan struct{})}
	answered := make(chan error, 1)
	go func() {
		_, _, err := f.ask(address, body)
		answered <- err
	}()
	<-body.read
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop() }()
	p.Await("draining")
	page("/healthz", 200)
	page("/readyz", 503)
	refused(t, address)
	close(body.more)
	if err := <-answered; err != nil {
		t.Errorf("got %v for what was asked before, want an answer", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestClientCA(t *testing.T) {
	f := newFiles(t)
	f.write("ca.crt", f.ca.CertPEM())
	p := clitest.Start(t, run, nil, f.args("--client-ca", filepath.Join(f.dir, "ca.crt"))...)
	address := p.Await(`for=reviews address=(\S+)`)
	if _, _, err := f.ask(address, strings.NewReader(question)); err == nil {
		t.Error("got an answer without a certificate, want none")
	}
	c := f.client()
	c.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{f.ca.Client("kube-apiserver")}
	res, err := c.Post("https://"+address, "application/json", strings.NewReader(question))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("got %d with a certificate, want 200", res.StatusCode)
	}
}

func TestUsage(t *testing.T) {
	f := newFiles(t)
	for _, tt := range []struct {
		name  string
		args  []string
		usage bool
		want  string
	}{
		{"nothing", nil, true, "--cert and --key must be set"},
		{"two configurations", f.args("--config-secret", "a/b"), true, "--config and --config-secret exclude each other"},
		{"no name of a Secret for it", f.args("--config", "", "--config-secret", "a"), true, `--config-secret "a" is not NAMESPACE/NAME`},
		{"no network", f.args("--pods", "10.0.0.1"), true, `--pods entry 0 "10.0.0.1": not a network`},
		{"values that differ", f.args("--config", f.values("differ", "HTTPS_PROXY", "http://other:1")), false, "--config: HTTPS_PROXY differs from values"},
		{"an argument", f.args("extra"), true, `unexpected argument "extra"`},
		{"a rule without a namespace", f.args("--always", "cert-manager"), true, `--always "cert-manager" is not NAMESPACE/LABEL=VALUE`},
		{"a rule that is no selector", f.args("--always", "a/b=c=d"), true, `--always "a/b=c=d"`},
		{"Secret and plain", f.args("--plain"), true, "--plain and --secret exclude each other"},
		{"no name of a Secret", f.args("--secret", "A b"), true, "--secret: not the name of a Secret"},
		{"user and password, and nowhere to put them", f.args("--secret", ""), false, "--secret names the Secret"},
		{"no such directory", f.args("--config", f.dir+"/none"), false, "--config: the folder can't be read: open " + f.dir + "/none: no such file"},
		{"another directory", f.args("--config", f.dir), false, "none of HTTP_PROXY, HTTPS_PROXY, NO_PROXY and values is in"},
		{"empty files", f.args("--config", f.with("empty", "", "a")), false, "--config: HTTP_PROXY and HTTPS_PROXY in " + f.dir + "/empty are missing or empty"},
		{"an entry that can't be used", f.args("--config", f.with("bad", "http://proxy:1", "a,10.0.0.0/99")), false, `--config: NO_PROXY: noproxy: entry 1 "10.0.0.0/99"`},
		{"a URL in the list", f.args("--config", f.with("url", "http://proxy:1", "http://u:"+canary+"@a")), false, `--config: NO_PROXY: noproxy: entry 0 "http://redacted"`},
		{"no certificate", f.args("--cert", f.dir+"/none"), false, "--cert and --key: "},
		{"no client CA in it", f.args("--client-ca", f.dir+"/config/NO_PROXY"), false, "--client-ca: there is no certificate in it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), tt.args, nil, &out, &out)
			var mistake cli.UsageError
			if err == nil || errors.As(err, &mistake) != tt.usage || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error()+out.String(), canary) {
				t.Errorf("got %v, want %q; of usage: %t", err, tt.want, tt.usage)
			}
		})
	}
}

// Anyone who reaches the port writes the log: a request is one short line.
func TestLogIsBounded(t *testing.T) {
	var b strings.Builder
	long := strings.Repeat("a", 1<<20)
	log := slog.New(slog.NewTextHandler(&b, nil))
	p := &program{log: log, reviews: newReviewMetrics(), asked: newAskedLog(log)}
	for range 1000 {
		p.hooks().Reviewed(webhook.Review{Namespace: long, Name: long, Injected: []string{long, long}})
	}
	if b.Len() > 10*2000 || !strings.Contains(b.String(), "aaa...") {
		t.Errorf("got %d bytes of a thousand requests", b.Len())
	}
}

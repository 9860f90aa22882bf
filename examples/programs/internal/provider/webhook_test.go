package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
	"github.com/causewayproject/causeway/internal/test/pki"
)

// TestWebhookCertificate renews the certificate while the webhook serves.
func TestWebhookCertificate(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	f := webhookFlags{listen: address, cert: filepath.Join(t.TempDir(), "tls.crt"), key: filepath.Join(t.TempDir(), "tls.key")}
	write := func(ca *pki.CA) {
		cert, key := pki.PEM(ca.Server("127.0.0.1"))
		if err := errors.Join(os.WriteFile(f.cert, cert, 0o600), os.WriteFile(f.key, key, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	first, second := pki.NewCA("first"), pki.NewCA("second")
	write(first)
	server, certificates, err := f.server(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	trusts := func(ca *pki.CA) error {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err := trusts(first); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	page := httptest.NewRecorder()
	metrics.Handler(nil, certificates).ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if !strings.Contains(page.Body.String(), `causeway_certificate_expiry_timestamp_seconds{listener="webhook-listen"} `) {
		t.Errorf("got no end of the certificate in %s", page.Body)
	}
	write(second)
	if err := trusts(second); err != nil {
		t.Errorf("got %v with the renewed certificate", err)
	}
}

func TestWebhookUsage(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tt := range []struct {
		args  string
		want  string // in the error
		usage bool
	}{
		{"", "", false},
		{"--webhook-listen=:9443", "--webhook-cert", true},
		{"--webhook-listen=:9443 --webhook-cert=a", "--webhook-key", true},
		{"--webhook-cert=a --webhook-key=b", "--webhook-listen", true},
		{"--webhook-listen=9443 --webhook-cert=a --webhook-key=b", "--webhook-listen", true},
		{"--webhook-listen=:0 --webhook-cert=a --webhook-key=b", "--webhook-listen", true},
		{"--webhook-listen=:9443 --webhook-cert=" + missing + " --webhook-key=" + missing, "--webhook-cert and --webhook-key", false},
	} {
		var f webhookFlags
		set := pflag.NewFlagSet("provider", pflag.ContinueOnError)
		f.add(set)
		if err := set.Parse(strings.Fields(tt.args)); err != nil {
			t.Fatal(err)
		}
		_, _, err := f.server(slog.New(slog.DiscardHandler))
		if tt.want == "" {
			if err != nil {
				t.Errorf("got %v of %q", err, tt.args)
			}
			continue
		}
		var mistake cli.UsageError
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, &mistake) != tt.usage {
			t.Errorf("got %v of %q, want an error with %q", err, tt.args, tt.want)
		}
	}
}

// TestRouteAdmissionComponent: what the component adds to the base's arguments are
// flags, and lead to the port and the files that it adds.
func TestRouteAdmissionComponent(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/components/route-admission/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var component struct {
		Patches []struct{ Patch string }
	}
	if err := yaml.Unmarshal(text, &component); err != nil || len(component.Patches) != 2 {
		t.Fatalf("got %+v, %v", component, err)
	}
	var patch []struct {
		Op, Path string
		Value    any
	}
	if err := yaml.UnmarshalStrict([]byte(component.Patches[0].Patch), &patch); err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, p := range patch {
		if p.Op != "add" {
			t.Errorf("got %+v, want what is there to stay", p)
		}
		if strings.HasSuffix(p.Path, "/args/-") {
			args = append(args, p.Value.(string))
		}
	}
	var f webhookFlags
	set := pflag.NewFlagSet("provider", pflag.ContinueOnError)
	f.add(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	if want := (webhookFlags{listen: ":9443", cert: "/tls/tls.crt", key: "/tls/tls.key"}); f != want {
		t.Errorf("got %+v, want %+v", f, want)
	}
	for _, want := range []string{"containerPort: 9443", "mountPath: /tls", "secretName: kubeconfig-provider-tls"} {
		if !strings.Contains(component.Patches[0].Patch, want) {
			t.Errorf("the patch lacks %q", want)
		}
	}
}

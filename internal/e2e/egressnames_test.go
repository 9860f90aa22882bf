package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel/egress"
)

// A URL webhook goes by the selection "controlplane".
const hookByURL = "192.0.2.50:443"

// What kube-apiserver makes of the older name "master" and of user info in the
// URL of a proxy, egress.Parse makes of them too.
func TestEgressConverted(t *testing.T) {
	b := sharedBed(t)
	files, requests := refusingProxy(t, b)
	const direct = "{name: %s, connection: {proxyProtocol: Direct}}"
	through := fmt.Sprintf("{name: master, connection: {proxyProtocol: HTTPConnect, transport: {tcp: "+
		"{url: 'https://user:s3cr3t@%s', tlsConfig: {caBundle: %s, clientCert: %s, clientKey: %s}}}}}",
		egressProxy, files.CABundle, files.ClientCert, files.ClientKey)
	for _, tt := range []struct{ name, version, selections, refused string }{
		{"alpha", "v1alpha1", through, ""},
		{"beta", "v1beta1", through, ""},
		{"case", "v1beta1", fmt.Sprintf(direct, "Master"), `Unsupported value: \"master\"`},
		{"both", "v1beta1", through + ", " + fmt.Sprintf(direct, "ControlPlane"), `Duplicate value: \"controlplane\"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := fmt.Sprintf("apiVersion: apiserver.k8s.io/%s\nkind: EgressSelectorConfiguration\negressSelections: [%s]\n",
				tt.version, tt.selections)
			parsed, parseErr := egress.Parse([]byte(text))
			k, err := startEgressFile(t, b, "egress-"+tt.name, []byte(text))
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) || parseErr == nil {
					t.Errorf("kube-apiserver: %v; Parse: %v; want that both refuse, with %q", err, parseErr, tt.refused)
				}
				return
			}
			if err != nil || parseErr != nil {
				t.Fatalf("kube-apiserver: %v; Parse: %v; want that both accept", err, parseErr)
			}
			if _, err := parsed.Dialer(egress.ControlPlane); err != nil {
				t.Error(err)
			}
			got := askHook(t, b, k, requests)
			if got.RequestURI != hookByURL || got.Header.Get("Proxy-Authorization")+got.Header.Get("Authorization") != "" {
				t.Errorf("kube-apiserver asked for %q with %v, want %s and no credentials", got.RequestURI, got.Header, hookByURL)
			}
		})
	}
}

// refusingProxy answers every CONNECT with 403.
func refusingProxy(t *testing.T, b *bed.Bed) (egress.TLS, <-chan *http.Request) {
	t.Helper()
	ca := pki.NewCA("egress")
	host, _, _ := net.SplitHostPort(egressProxy)
	l := tls.NewListener(listen(t, b.Network.Hub, egressProxy), &tls.Config{Certificates: []tls.Certificate{ca.Server(host)}})
	requests := make(chan *http.Request, 100)
	s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			requests <- r
			conn.Write([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"))
		}
	})
	t.Cleanup(s.Close)
	return egressFiles(t, ca), requests
}

// askHook makes kube-apiserver ask a webhook, which the proxy refuses it.
func askHook(t *testing.T, b *bed.Bed, k *bed.Kube, requests <-chan *http.Request) *http.Request {
	t.Helper()
	c := egressCell(t, b, k)
	if err := c.apply(t.Context(), fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: hook.example.com
  clientConfig: {url: "https://%s/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`, hookByURL)); err != nil {
		t.Fatal(err)
	}
	for len(requests) > 0 {
		<-requests // of another control plane
	}
	var got *http.Request
	// kube-apiserver takes a moment to know it.
	err := bed.Poll(t.Context(), "the webhook to be asked", func(ctx context.Context) error {
		out, err := c.hub.Run(ctx, c.kubectl("", "create", "configmap", "refused", "--dry-run=server"))
		select {
		case got = <-requests:
			return nil
		default:
			return errors.Join(fmt.Errorf("got %q, want that the proxy is asked", out), err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

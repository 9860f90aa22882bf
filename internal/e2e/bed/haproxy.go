package bed

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/causewayproject/causeway/internal/test/pki"
)

const (
	haproxyPort    = 3130
	haproxyTLSPort = 3131
)

// A HAProxy is haproxy in the proxy namespace, in front of squid. HAProxy is no
// forward proxy: it never connects to what a CONNECT asks for. But it passes a
// CONNECT on to a proxy behind it, and speaks HTTP/2 to the client whatever the
// one behind speaks. So this is a real proxy with CONNECT over HTTP/2, which
// neither squid nor tinyproxy has, nor a stock nginx (no CONNECT at all). The
// credentials, the refusals and their headers are squid's.
//
// HAProxy passes on a half-close, also as END_STREAM. Squid does not:
// it ends the tunnel, as tinyproxy does.
type HAProxy struct {
	// CA signed the certificate of the port with TLS, which prefers h2, and
	// takes a client certificate of the cluster's authority as squid's does.
	CA *pki.CA

	process *Process
}

// URL returns the http proxy's URL with credentials.
func (h *HAProxy) URL() *url.URL { return proxyURL("http", haproxyPort) }

// TLSURL returns the https proxy's URL with credentials.
func (h *HAProxy) TLSURL() *url.URL { return proxyURL("https", haproxyTLSPort) }

// Log returns the lines of its log, one a finished tunnel, as
//
//	port=3131 tls=TLSv1.3 client-certificate=- status=200 CONNECT 192.0.2.10:6443 HTTP/2.0
func (h *HAProxy) Log() ([]string, error) { return logLines(h.process.log) }

const haproxyConfig = `global
    log stdout format raw daemon
    user haproxy
    group haproxy
    maxconn 1000
defaults
    mode http
    log global
    log-format "port=%fp tls=%sslv client-certificate=%[ssl_c_s_dn] status=%ST %HM %HU %HV"
    timeout connect 10s
    timeout client 10m
    timeout server 10m
frontend proxy
    bind ${proxy}:${port}
    bind ${proxy}:${tlsport} ssl crt ${dir}/proxy.pem alpn h2,http/1.1 ca-file ${dir}/client-ca.crt verify optional
    default_backend squid
backend squid
    server squid ${proxy}:${squidport}
`

func startHAProxy(ctx context.Context, ns *Namespace, dir string, clientCA *pki.CA) (*HAProxy, error) {
	h := &HAProxy{CA: pki.NewCA("haproxy authority")}
	if err := h.writeFiles(dir, clientCA); err != nil {
		return nil, err
	}
	var err error
	h.process, err = ns.start("haproxy", programPath("haproxy"), "-db", "-f", filepath.Join(dir, "haproxy.cfg"))
	if err != nil {
		return nil, err
	}
	for _, port := range []int{haproxyPort, haproxyTLSPort} {
		if err := ns.waitListening(ctx, h.process, net.JoinHostPort(ProxyIP, strconv.Itoa(port))); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *HAProxy) writeFiles(dir string, clientCA *pki.CA) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("bed: haproxy: %w", err)
	}
	cert, key := pki.PEM(h.CA.Server("proxy.test", ProxyIP))
	config := expandTemplate(haproxyConfig, map[string]string{
		"dir":       dir,
		"proxy":     ProxyIP,
		"port":      strconv.Itoa(haproxyPort),
		"tlsport":   strconv.Itoa(haproxyTLSPort),
		"squidport": strconv.Itoa(squidPort),
	})
	for name, content := range map[string]string{
		"proxy.pem":     string(cert) + string(key),
		"client-ca.crt": string(clientCA.CertPEM()),
		"haproxy.cfg":   config,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("bed: haproxy: %w", err)
		}
	}
	return nil
}

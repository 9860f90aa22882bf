package egress_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel/egress"
)

func configuration(connection egress.Connection) *egress.Configuration {
	return &egress.Configuration{Selections: []egress.Selection{{Name: "Cluster", Connection: connection}}}
}

func newDialer(t *testing.T, connection egress.Connection) dialer.Dialer {
	t.Helper()
	d, err := configuration(connection).Dialer(egress.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDialerSocket(t *testing.T) {
	var got proxytest.Request
	path := filepath.Join(t.TempDir(), "egress.sock")
	serve(t, listen(t, "unix", path), (&proxytest.HTTP{Dial: toEcho(t), Log: func(r proxytest.Request) { got = r }}).Handle)
	if err := exchange(t, newDialer(t, egress.ThroughSocket(path)), target); err != nil {
		t.Fatal(err)
	}
	if got.Target != target {
		t.Errorf("the proxy was asked for %s, want %s", got.Target, target)
	}
}

// Without a selection, a dial is direct, as it is for kube-apiserver.
func TestDialerDirect(t *testing.T) {
	conn, err := toEcho(t)(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	echo := conn.RemoteAddr().String()
	if err := exchange(t, newDialer(t, egress.Direct()), echo); err != nil {
		t.Error(err)
	}
	d, err := configuration(egress.ThroughSocket("/none")).Dialer(egress.Etcd)
	if err != nil {
		t.Fatal(err)
	}
	if err := exchange(t, d, echo); err != nil {
		t.Error(err)
	}
}

func TestDialerErrors(t *testing.T) {
	dir := t.TempDir()
	cert, key := pki.PEM(pki.NewCA("a").Client("a"))
	_, otherKey := pki.PEM(pki.NewCA("b").Client("b"))
	whole := egress.TLS{ClientCert: write(t, dir, "crt", cert), ClientKey: write(t, dir, "key", key)}
	empty := write(t, dir, "empty", nil)
	const connection = "egressSelections[0].connection"
	through := func(change func(*egress.TLS)) *egress.Configuration {
		files := whole
		change(&files)
		return configuration(egress.ThroughTLS("https://127.0.0.1:1", files))
	}
	for _, tt := range []struct {
		name  string
		c     *egress.Configuration
		sel   egress.Name
		field string
		is    error
	}{
		{"unknown name", &egress.Configuration{}, "clusters", "egressSelections", nil},
		{"invalid", configuration(egress.ThroughSocket("x")), "etcd", connection + ".transport.uds.udsName", nil},
		{"GRPC", configuration(egress.Connection{ProxyProtocol: "GRPC", Transport: &egress.Transport{UDS: &egress.UDS{Name: "/x"}}}),
			"cluster", connection + ".proxyProtocol", egress.ErrProtocol},
		{"no CA", through(func(f *egress.TLS) { f.CABundle = dir + "/none" }), "CLUSTER", connection + ".transport.tcp.tlsConfig.caBundle", fs.ErrNotExist},
		{"empty CA", through(func(f *egress.TLS) { f.CABundle = empty }), "cluster", connection + ".transport.tcp.tlsConfig.caBundle", nil},
		{"no certificate", through(func(f *egress.TLS) { f.ClientCert += "x" }), "cluster", connection + ".transport.tcp.tlsConfig.clientCert", fs.ErrNotExist},
		{"no key", through(func(f *egress.TLS) { f.ClientKey += "x" }), "cluster", connection + ".transport.tcp.tlsConfig.clientKey", fs.ErrNotExist},
		{"another key", through(func(f *egress.TLS) { f.ClientKey = write(t, dir, "other", otherKey) }), "cluster", connection + ".transport.tcp.tlsConfig.clientCert", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := tt.c.Dialer(tt.sel)
			var field *egress.FieldError
			if !errors.As(err, &field) || field.Field != tt.field || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, %v; want an error of %s, and %v", d, err, tt.field, tt.is)
			}
		})
	}
}

// rotating is a proxy whose certificates, and what it wants of clients, change
// while it runs, and the files of its client.
type rotating struct {
	*testing.T
	server, clients *pki.CA
	config          atomic.Pointer[tls.Config]
	dir             string
	requests        chan proxytest.Request
	d               dialer.Dialer
}

func newRotating(t *testing.T) *rotating {
	r := &rotating{T: t, dir: t.TempDir(), requests: make(chan proxytest.Request, 10)}
	r.renew()
	address := tlsProxy(t, r.config.Load, func(q proxytest.Request) { r.requests <- q })
	r.d = newDialer(t, egress.ThroughTLS("https://"+address, egress.TLS{
		CABundle: filepath.Join(r.dir, "ca"), ClientCert: filepath.Join(r.dir, "crt"), ClientKey: filepath.Join(r.dir, "key"),
	}))
	return r
}

// renew makes all certificates anew, on both sides.
func (r *rotating) renew() {
	r.server, r.clients = pki.NewCA("server"), pki.NewCA("clients")
	r.config.Store(mutual(r.server, r.clients))
	cert, key := pki.PEM(r.clients.Client("kube-apiserver"))
	write(r.T, r.dir, "ca", r.server.CertPEM())
	write(r.T, r.dir, "crt", cert)
	write(r.T, r.dir, "key", key)
}

func TestDialerTLS(t *testing.T) {
	r := newRotating(t)
	if err := exchange(t, r.d, target); err != nil {
		t.Fatal(err)
	}
	if got := <-r.requests; got.Target != target || !got.ClientCertificate {
		t.Errorf("got %+v, want %s by a client with a certificate", got, target)
	}
	r.renew()
	if err := exchange(t, r.d, target); err != nil {
		t.Errorf("after all was renewed: %v", err)
	}
}

// While the files can't be used, the dials go on with what there was.
func TestDialerTLSHalfRenewed(t *testing.T) {
	r := newRotating(t)
	_, key := pki.PEM(r.clients.Client("next"))
	for name, change := range map[string]func(){
		"another's key": func() { write(t, r.dir, "key", key) },
		"no CA":         func() { write(t, r.dir, "ca", nil) },
		"no file":       func() { os.Remove(filepath.Join(r.dir, "crt")) },
	} {
		change()
		if err := exchange(t, r.d, target); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// And once they can, with what there is.
	r.renew()
	if err := exchange(t, r.d, target); err != nil {
		t.Error(err)
	}
}

// A proxy of another authority is not spoken to, and a client without the right
// certificate is not let in.
func TestDialerTLSRefused(t *testing.T) {
	r := newRotating(t)
	r.config.Store(mutual(pki.NewCA("another"), r.clients))
	err := exchange(t, r.d, target)
	var e *dialer.Error
	if unknown := new(x509.UnknownAuthorityError); !errors.As(err, &e) || e.Phase != dialer.PhaseTLS || !errors.As(err, unknown) {
		t.Errorf("another server: got %v, want an unknown authority", err)
	}
	r.config.Store(mutual(r.server, pki.NewCA("another")))
	if err := exchange(t, r.d, target); err == nil {
		t.Error("another authority of clients: got no error")
	}
}

func TestDialerTLSServerName(t *testing.T) {
	dir, ca := t.TempDir(), pki.NewCA("ca")
	address := tlsProxy(t, func() *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{ca.Server("egress.example.com")}}
	}, nil)
	cert, key := pki.PEM(ca.Client("a"))
	files := egress.TLS{CABundle: write(t, dir, "ca", ca.CertPEM()), ClientCert: write(t, dir, "crt", cert), ClientKey: write(t, dir, "key", key)}
	if err := exchange(t, newDialer(t, egress.ThroughTLS("https://"+address, files)), target); !errors.As(err, new(x509.HostnameError)) {
		t.Errorf("got %v, want that the name is another", err)
	}
	files.ServerName = "egress.example.com"
	if err := exchange(t, newDialer(t, egress.ThroughTLS("https://"+address, files)), target); err != nil {
		t.Error(err)
	}
}

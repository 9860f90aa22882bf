package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"

	"github.com/causewayproject/causeway/dialer"
)

// Dialer returns the Dialer of a selection. Without such a selection it returns
// [dialer.Direct], as kube-apiserver dials directly then. The error wraps a
// [*FieldError] for an unknown name, for each field that does not validate, or for a
// file that can't be read; for GRPC its cause is [ErrProtocol].
//
// A Dialer with TLS reads its files again for each dial, so that certificates can be
// renewed without a restart. While they can't be used, such as a new certificate with
// the old key, it uses what it read before.
//
// The proxy looks names up. The Dialer is safe for concurrent use, and need not be
// closed. The configuration may be changed afterwards.
func (c *Configuration) Dialer(name Name) (dialer.Dialer, error) {
	var f fieldErrors
	switch name.lowerCase() {
	case Cluster, ControlPlane, Etcd:
	default:
		f.addError("egressSelections", "the selection %q is unknown: want cluster, controlplane or etcd", name)
		return nil, f.joinErrors()
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	for i, s := range c.Selections {
		if s.Name.lowerCase() == name.lowerCase() {
			return s.Connection.newDialer(fmt.Sprintf("egressSelections[%d].connection", i))
		}
	}
	return dialer.Direct{}, nil
}

// newDialer returns the Dialer of a valid connection.
func (c Connection) newDialer(at string) (dialer.Dialer, error) {
	switch {
	case c.ProxyProtocol == ProtocolDirect:
		return dialer.Direct{}, nil
	case c.ProxyProtocol == ProtocolGRPC:
		return nil, &FieldError{at + ".proxyProtocol", fmt.Errorf("%w: GRPC; Konnectivity's server speaks HTTPConnect with --mode=http-connect", ErrProtocol)}
	case c.Transport.UDS != nil:
		return &dialer.HTTPConnect{Addr: "unix:" + c.Transport.UDS.Name}, nil
	}
	tcp := c.Transport.TCP
	u, err := url.Parse(tcp.URL)
	if err != nil {
		return nil, &FieldError{at + ".transport.tcp.url", err}
	}
	d := &tlsDialer{addr: u.Host, serverName: tcp.TLSConfig.ServerName, files: tlsFiles{names: *tcp.TLSConfig}}
	if _, err := d.files.load(); err != nil {
		err.Field = at + ".transport.tcp.tlsConfig." + err.Field
		return nil, err
	}
	return d, nil
}

// tlsDialer dials by an HTTPConnect with the present content of its files.
type tlsDialer struct {
	addr, serverName string
	files            tlsFiles
}

var _ dialer.Dialer = (*tlsDialer)(nil)

func (d *tlsDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	now := d.files.loadOrLast()
	proxy := &dialer.HTTPConnect{Addr: d.addr, TLSConfig: &tls.Config{
		MinVersion:   tls.VersionTLS12,
		RootCAs:      now.roots,
		Certificates: []tls.Certificate{now.pair},
		ServerName:   d.serverName,
	}}
	return proxy.DialContext(ctx, network, address)
}

// tlsFiles are a TLS's, read again whenever they are needed.
type tlsFiles struct {
	names TLS

	mu   sync.Mutex   // guards the field below
	last *tlsMaterial // not nil after the first load
}

// tlsMaterial is what was in the files. It is never written to.
type tlsMaterial struct {
	ca, cert, key []byte
	roots         *x509.CertPool // nil: the system's
	pair          tls.Certificate
}

// load reads the files. The error's Field is the name within tlsConfig.
func (f *tlsFiles) load() (*tlsMaterial, *FieldError) {
	m := &tlsMaterial{}
	for _, file := range []struct {
		field, name string
		data        *[]byte
	}{
		{"caBundle", f.names.CABundle, &m.ca},
		{"clientCert", f.names.ClientCert, &m.cert},
		{"clientKey", f.names.ClientKey, &m.key},
	} {
		if file.name == "" {
			continue // the CA alone may be
		}
		data, err := os.ReadFile(file.name)
		if err != nil {
			return nil, &FieldError{file.field, err}
		}
		*file.data = data
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && m.sameFiles(f.last) {
		return f.last, nil
	}
	if err := m.parse(f.names.CABundle != ""); err != nil {
		return nil, err
	}
	f.last = m
	return m, nil
}

// loadOrLast is load, or what was loaded before.
func (f *tlsFiles) loadOrLast() *tlsMaterial {
	m, err := f.load()
	if err == nil {
		return m
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (m *tlsMaterial) sameFiles(o *tlsMaterial) bool {
	return bytes.Equal(m.ca, o.ca) && bytes.Equal(m.cert, o.cert) && bytes.Equal(m.key, o.key)
}

// parse fills in what the bytes mean.
func (m *tlsMaterial) parse(ca bool) *FieldError {
	if ca {
		m.roots = x509.NewCertPool()
		// An empty pool would refuse everybody, and a nil one trust too many.
		if !m.roots.AppendCertsFromPEM(m.ca) {
			return &FieldError{"caBundle", errors.New("the file holds no certificate")}
		}
	}
	pair, err := tls.X509KeyPair(m.cert, m.key)
	if err != nil {
		return &FieldError{"clientCert", err} // package tls says which of the two
	}
	m.pair = pair
	return nil
}

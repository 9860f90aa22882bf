package egress

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"sync"
)

// files are a TLS's, read again whenever they are needed.
type files struct {
	names TLS

	mu   sync.Mutex // guards the field below
	last *material  // not nil after the first load
}

// material is what was in the files. It is never written to.
type material struct {
	ca, cert, key []byte
	roots         *x509.CertPool // nil: the system's
	pair          tls.Certificate
}

// load reads the files. The error's Field is the name within tlsConfig.
func (f *files) load() (*material, *FieldError) {
	m := &material{}
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
	if f.last != nil && m.equal(f.last) {
		return f.last, nil
	}
	if err := m.parse(f.names.CABundle != ""); err != nil {
		return nil, err
	}
	f.last = m
	return m, nil
}

// current is load, or what was loaded before.
func (f *files) current() *material {
	m, err := f.load()
	if err == nil {
		return m
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (m *material) equal(o *material) bool {
	return bytes.Equal(m.ca, o.ca) && bytes.Equal(m.cert, o.cert) && bytes.Equal(m.key, o.key)
}

// parse fills in what the bytes mean.
func (m *material) parse(ca bool) *FieldError {
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

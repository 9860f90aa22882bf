package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"strings"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/follow"
	"github.com/causewayproject/causeway/examples/programs/internal/limits"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// followCertificate returns TLS with the certificate in the files, which counts from the
// next handshake on when it changes.
func (p *program) followCertificate(listener, cert, key string) (*tls.Config, error) {
	var current atomic.Pointer[tls.Certificate]
	files, err := follow.Open(func(texts [][]byte) error {
		pair, err := tls.X509KeyPair(texts[0], texts[1])
		if err == nil {
			current.Store(&pair)
		}
		return err
	}, cert, key)
	if err != nil {
		return nil, err
	}
	if until := current.Load().Leaf.NotAfter; time.Now().After(until) {
		p.log.Warn("certificate has expired", "for", listener, "until", until)
	}
	p.watch.add(func() {
		if changed, err := files.Check(); changed {
			command.LogCertificate(p.log, listener, current.Load(), err)
		}
	})
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }
	p.metrics.certificates[listener] = get
	return &tls.Config{GetCertificate: get}, nil
}

// clientCAs are the authorities of clients' certificates.
type clientCAs struct {
	pool  *x509.CertPool
	certs [][]byte // DER
}

func parseClientCAs(text []byte) (*clientCAs, error) {
	c := &clientCAs{pool: x509.NewCertPool()}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			c.pool.AddCert(cert)
			c.certs = append(c.certs, cert.Raw)
		}
	}
	if c.certs == nil {
		return nil, errors.New("there is no certificate in it")
	}
	return c, nil
}

// trust reports whether a chain that was verified once is still good.
func (c *clientCAs) trust(chain []*x509.Certificate, now time.Time) bool {
	for _, cert := range chain {
		if now.After(cert.NotAfter) {
			return false
		}
	}
	last := chain[len(chain)-1].Raw
	for _, cert := range c.certs {
		if bytes.Equal(cert, last) {
			return true
		}
	}
	return false
}

// followClientCAs has the door ask for certificates of the authorities in the file, and
// lets their clients in: those that are there when a client asks for a connection, since
// the TLS of HTTP/2 may have begun long before.
func (p *program) followClientCAs(g *gateway.Gateway, file string) error {
	var current atomic.Pointer[clientCAs]
	files, err := follow.Open(func(texts [][]byte) error {
		c, err := parseClientCAs(texts[0])
		if err == nil {
			current.Store(c)
		}
		return err
	}, file)
	if err != nil {
		return err
	}
	p.watch.add(func() { files.LogChange(p.log, "client authorities", "door-client-ca") })
	g.TLS.ClientAuth, g.TLS.ClientCAs = tls.VerifyClientCertIfGiven, current.Load().pool
	first := g.TLS.Clone() // without GetConfigForClient
	g.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := first.Clone()
		now.ClientCAs = current.Load().pool
		return now, nil
	}
	g.Authenticate = gateway.FirstOf(func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
		if len(c.Certificates) == 0 || !current.Load().trust(c.Certificates, time.Now()) {
			return gateway.Identity{}, gateway.ErrCredentials
		}
		name := c.Certificates[0].Subject.CommonName
		return gateway.Identity{Name: name, Cluster: name}, nil
	}, g.Authenticate)
	return nil
}

// followLimits reads the file of --limits, now and when it changes.
func (p *program) followLimits(file string) error {
	files, err := follow.Open(func(texts [][]byte) error {
		c, err := limits.Parse(texts[0])
		if err == nil {
			p.metrics.limiter.Set(c)
			p.warnUnknownClusters(c)
		}
		return err
	}, file)
	if err != nil {
		return err
	}
	p.watch.add(func() { files.LogChange(p.log, "limits", "limits") })
	return nil
}

// warnUnknownClusters names the clusters that have limits and no agents: one whose name is
// wrong has no limit. It says nothing if the state can't be read.
func (p *program) warnUnknownClusters(c *limits.Config) {
	ctx, cancel := context.WithTimeout(p.late, revocationTimeout)
	defer cancel()
	var unknown []string
	for _, cluster := range c.Clusters() {
		_, notInvited := p.state.read(ctx, clusterFile(cluster))
		_, notJoining := p.state.read(ctx, joinFile(cluster))
		if errors.Is(notInvited, fs.ErrNotExist) && errors.Is(notJoining, fs.ErrNotExist) {
			unknown = append(unknown, cluster)
		}
	}
	if unknown != nil {
		p.log.Warn("limits: no agent was invited", "cluster", strings.Join(unknown, ", "))
	}
}

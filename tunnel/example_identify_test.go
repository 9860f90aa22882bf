package tunnel_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/url"
	"regexp"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

var agentID = regexp.MustCompile(`^spiffe://corp\.example/cluster/([a-zA-Z0-9._-]+/[a-zA-Z0-9._-]+)/agent/([a-zA-Z0-9._-]+)$`)

// identify verifies a certificate of SPIFFE's trust domain corp.example. The
// agent X of the cluster prod in the namespace default has the URI
// spiffe://corp.example/cluster/default/prod/agent/X. bundle returns the trust
// domain's authorities of now, as an X509Source of go-spiffe has them.
func identify(bundle func() *x509.CertPool) func(tls.ConnectionState) (tunnel.Identity, error) {
	return func(state tls.ConnectionState) (tunnel.Identity, error) {
		// Nobody has verified the chain yet.
		leaf, intermediates := state.PeerCertificates[0], x509.NewCertPool()
		for _, cert := range state.PeerCertificates[1:] {
			intermediates.AddCert(cert)
		}
		_, err := leaf.Verify(x509.VerifyOptions{
			Roots: bundle(), Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if err != nil {
			return tunnel.Identity{}, err // the agent reads only that it is not one of this server
		}
		if leaf.IsCA || len(leaf.URIs) != 1 {
			return tunnel.Identity{}, errors.New("not a certificate of one SPIFFE ID")
		}
		// As it is written: a %2F is no separator, and there is no query.
		m := agentID.FindStringSubmatch(leaf.URIs[0].String())
		if m == nil {
			return tunnel.Identity{}, fmt.Errorf("%s is not an agent of corp.example", leaf.URIs[0])
		}
		return tunnel.Identity{Cluster: m[1], Agent: m[2]}, nil
	}
}

// Agents that have a certificate of SPIFFE do not enrol.
func ExampleServer_identify() {
	bundle, source := workloadAPI("spiffe://corp.example/cluster/default/prod/agent/one")
	authority, err := tunnel.NewAuthority() // of the server's own certificate
	if err != nil {
		log.Fatal(err)
	}
	connected := make(chan tunnel.SessionInfo, 1)
	server := &tunnel.Server{Authority: authority, Identify: identify(bundle), Hooks: tunnel.Hooks{
		Connected: func(s tunnel.SessionInfo) { connected <- s },
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()

	// Beside the cluster. The pin is no secret.
	pin := authority.Pin()
	agent := &tunnel.Agent{
		Servers:              []string{listener.Addr().String()},
		GetClientCertificate: source,
		Invitation:           func(context.Context) (tunnel.Invitation, error) { return tunnel.Invitation{Pin: pin}, nil },
	}
	ran := make(chan error, 1)
	go func() { ran <- agent.Run(ctx) }()
	session := <-connected
	fmt.Println(session.Cluster, session.Agent)

	cancel()
	fmt.Println(<-served, <-ran)
	// Output:
	// default/prod one
	// <nil> <nil>
}

// workloadAPI stands in for SPIFFE's: the authorities of a trust domain, and the
// certificate of a workload.
func workloadAPI(id string) (func() *x509.CertPool, func(*tls.CertificateRequestInfo) (*tls.Certificate, error)) {
	uri, err := url.Parse(id)
	if err != nil {
		log.Fatal(err)
	}
	root := certify(&x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	pool := x509.NewCertPool()
	pool.AddCert(root.Leaf)
	svid := certify(&x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{uri},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, root)
	return func() *x509.CertPool { return pool }, func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return svid, nil }
}

// certify makes a key and its certificate, which by signs; nil: it signs itself.
func certify(template *x509.Certificate, by *tls.Certificate) *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		log.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		log.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

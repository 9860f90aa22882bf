package tunnel_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// trustDomain is a PKI like those of SPIFFE: a root that rotates, an
// intermediate, and short-lived certificates with a URI SAN.
type trustDomain struct {
	t    testing.TB
	name string

	mu     sync.Mutex // guards the fields below
	serial int64
	bundle []*x509.Certificate // the roots that a server trusts
	signer *tls.Certificate    // the intermediate
}

func newTrustDomain(t testing.TB, name string) *trustDomain {
	t.Helper()
	d := &trustDomain{t: t, name: name}
	d.rotate()
	return d
}

// rotate adds a root to the bundle; it signs from now on.
func (d *trustDomain) rotate() {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	authority := func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		c.NotAfter = time.Now().AddDate(1, 0, 0)
	}
	root := d.signLocked(nil, authority)
	d.bundle = append(d.bundle, root.Leaf)
	d.signer = d.signLocked(root, authority)
}

// dropOldest takes the oldest root out of the bundle.
func (d *trustDomain) dropOldest() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bundle = slices.Clone(d.bundle[1:])
}

// signLocked makes a certificate that is valid for an hour; change makes it
// another. If by is nil, it signs itself.
func (d *trustDomain) signLocked(by *tls.Certificate, change func(*x509.Certificate)) *tls.Certificate {
	d.t.Helper()
	d.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(d.serial), Subject: pkix.Name{Organization: []string{d.name}, SerialNumber: big.NewInt(d.serial).String()},
		NotBefore: time.Now().Add(-10 * time.Second), NotAfter: time.Now().Add(time.Hour),
	}
	change(template)
	return certify(template, by)
}

// issue returns the certificate of spiffe://domain/path with its intermediate.
func (d *trustDomain) issue(path string, change func(*x509.Certificate)) *tls.Certificate {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	cert := d.signLocked(d.signer, func(c *x509.Certificate) {
		c.KeyUsage = x509.KeyUsageDigitalSignature
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		c.URIs = []*url.URL{{Scheme: "spiffe", Host: d.name, Path: path}}
		if change != nil {
			change(c)
		}
	})
	cert.Certificate = append(cert.Certificate, d.signer.Leaf.Raw)
	return cert
}

// identify is a Server's: spiffe://domain/cluster/NAMESPACE/NAME/agent/X.
func (d *trustDomain) identify(state tls.ConnectionState) (tunnel.Identity, error) {
	leaf := state.PeerCertificates[0]
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	d.mu.Lock()
	for _, root := range d.bundle {
		roots.AddCert(root)
	}
	d.mu.Unlock()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return tunnel.Identity{}, err
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].Scheme != "spiffe" || leaf.URIs[0].Host != d.name {
		return tunnel.Identity{}, errors.New("not of the trust domain " + d.name)
	}
	cluster, name, ok := strings.Cut(strings.TrimPrefix(leaf.URIs[0].Path, "/cluster/"), "/agent/")
	if !ok {
		return tunnel.Identity{}, errors.New("not the path of an agent")
	}
	return tunnel.Identity{Cluster: cluster, Agent: name}, nil
}

// svidPath is of an agent of testCluster.
const svidPath = "/cluster/" + testCluster + "/agent/one"

// handAgent is an agent of crypto/tls and frames made by hand.
type handAgent struct {
	t    *testing.T
	conn *tls.Conn
	got  map[uint32]*bytes.Buffer // by stream
}

// handDial connects to the address of a server with the certificate, which may
// be nil.
func handDial(t *testing.T, address, proto string, cert *tls.Certificate) *handAgent {
	t.Helper()
	var raw net.Conn
	if strings.HasPrefix(address, "ws:") {
		raw = must(tunnel.WebSocket{}.Dial(testContext(t), nil, address))(t)
	} else {
		raw = must(net.Dial("tcp", address))(t)
	}
	return handOver(t, raw, proto, cert)
}

// handOver is handDial over a connection.
func handOver(t *testing.T, raw net.Conn, proto string, cert *tls.Certificate) *handAgent {
	t.Helper()
	t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(24 * time.Hour))
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	a := &handAgent{t: t, conn: tls.Client(raw, config), got: map[uint32]*bytes.Buffer{}}
	if err := a.conn.HandshakeContext(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return a
}

// The types and flags of frames.
const (
	frameData = 0
	framePing = 2
	flagSYN   = 1
	flagACK   = 2
)

func (a *handAgent) frame(kind byte, flags uint16, stream uint32, data []byte) {
	a.t.Helper()
	b := binary.BigEndian.AppendUint16([]byte{0, kind}, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	if _, err := a.conn.Write(append(b, data...)); err != nil {
		a.t.Fatal(err)
	}
}

// read returns n bytes of the stream, or an error once the session has ended.
func (a *handAgent) read(stream uint32, n int) ([]byte, error) {
	for a.got[stream] == nil || a.got[stream].Len() < n {
		var h [12]byte
		if _, err := io.ReadFull(a.conn, h[:]); err != nil {
			return nil, err
		}
		id, size := binary.BigEndian.Uint32(h[4:]), binary.BigEndian.Uint32(h[8:])
		switch {
		case h[1] == frameData:
			if a.got[id] == nil {
				a.got[id] = &bytes.Buffer{}
			}
			if _, err := io.CopyN(a.got[id], a.conn, int64(size)); err != nil {
				return nil, err
			}
		case h[1] == framePing && h[3]&flagSYN != 0:
			b := append([]byte{0, framePing, 0, flagACK, 0, 0, 0, 0}, h[8:]...)
			if _, err := a.conn.Write(b); err != nil {
				return nil, err
			}
		}
	}
	return a.got[stream].Next(n), nil
}

// handMessage is a message with its fields as they came.
type handMessage struct {
	kind   uint16
	fields map[uint16]string // the first of each tag
}

func (m handMessage) code() tunnel.Code {
	if v := m.fields[1]; len(v) == 8 {
		return tunnel.Code(binary.BigEndian.Uint64([]byte(v)))
	}
	return 0
}

// message reads one of the stream.
func (a *handAgent) message(stream uint32) handMessage {
	a.t.Helper()
	header, err := a.read(stream, 6)
	if err != nil {
		a.t.Fatal(err)
	}
	m := handMessage{binary.BigEndian.Uint16(header), map[uint16]string{}}
	body, err := a.read(stream, int(binary.BigEndian.Uint32(header[2:])))
	if err != nil {
		a.t.Fatal(err)
	}
	for len(body) > 0 {
		n := binary.BigEndian.Uint32(body[2:])
		tag := binary.BigEndian.Uint16(body)
		if _, ok := m.fields[tag]; !ok {
			m.fields[tag] = string(body[6 : 6+n])
		}
		body = body[6+n:]
	}
	return m
}

// hello says HELLO and returns the answer.
func (a *handAgent) hello() handMessage {
	a.t.Helper()
	a.frame(frameData, flagSYN, 1, rawHello())
	return a.message(1)
}

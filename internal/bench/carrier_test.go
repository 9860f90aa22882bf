package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/test/pki"
)

const (
	chunkSize   = 64 << 10 // a relay's buffer
	serverName  = "bench.example"
	dialTimeout = time.Minute
)

// writeCertificates leaves what serverTLS and clientTLS read.
func writeCertificates(dir string) error {
	ca := pki.NewCA("bench")
	cert, key := pki.PEM(ca.Server(serverName, "127.0.0.1"))
	clientCert, clientKey := pki.PEM(ca.Client("bench"))
	for name, content := range map[string][]byte{
		"ca.pem": ca.CertPEM(), "cert.pem": cert, "key.pem": key, "client.pem": clientCert, "client-key.pem": clientKey,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("bench: certificates: %w", err)
		}
	}
	return nil
}

// serverTLS and clientTLS are the same for all rows that speak TLS: 1.3, where
// Go takes AES-128-GCM on a processor that has it, and full records from the
// first byte on.
func serverTLS(dir string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		return nil, fmt.Errorf("bench: certificates: %w", err)
	}
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		Certificates:                []tls.Certificate{cert},
		DynamicRecordSizingDisabled: true,
		SessionTicketsDisabled:      true,
	}, nil
}

func readAuthority(dir string) (*x509.CertPool, error) {
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, fmt.Errorf("bench: certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("bench: certificates: none in ca.pem")
	}
	return pool, nil
}

func clientTLS(dir string) (*tls.Config, error) {
	pool, err := readAuthority(dir)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		RootCAs:                     pool,
		ServerName:                  serverName,
		DynamicRecordSizingDisabled: true,
	}, nil
}

// A carrier is a TLS connection over gathered.
type carrier struct {
	*tls.Conn
	below *gathered
}

func newCarrier(conn net.Conn, wrap func(net.Conn) *tls.Conn) (*carrier, error) {
	below := newGathered(conn)
	c := &carrier{wrap(below), below}
	if err := handshake(c.Conn); err != nil {
		return nil, err
	}
	below.startGathering()
	return c, nil
}

// handshake does it now, and closes the connection if it fails.
func handshake(c *tls.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		c.Close()
		return fmt.Errorf("bench: handshake: %w", err)
	}
	return nil
}

// gatherSize is that of the buffers below TLS.
const gatherSize = 128 << 10

// gathered is what lies below TLS: it reads as much as there is, and gathers
// what is written until Flush, once the handshake is over.
type gathered struct {
	net.Conn
	in *bufio.Reader

	mu     sync.Mutex // guards the fields below: the reader writes alerts
	gather bool
	out    *bufio.Writer
}

func newGathered(conn net.Conn) *gathered {
	return &gathered{Conn: conn, in: bufio.NewReaderSize(conn, gatherSize), out: bufio.NewWriterSize(conn, gatherSize)}
}

func (g *gathered) Read(b []byte) (int, error) { return g.in.Read(b) }

func (g *gathered) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gather {
		return g.Conn.Write(b)
	}
	return g.out.Write(b)
}

func (g *gathered) startGathering() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gather = true
}

// Flush sends what was gathered.
func (g *gathered) Flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.Flush()
}

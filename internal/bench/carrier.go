package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/test/pki"
)

const (
	chunkSize   = 64 << 10 // a relay's buffer
	serverName  = "bench.example"
	dialTimeout = 10 * time.Second
)

// writeCertificates leaves what serverTLS and clientTLS read.
func writeCertificates(dir string) error {
	ca := pki.NewCA("bench")
	cert, key := pki.PEM(ca.Server(serverName, "127.0.0.1"))
	for name, content := range map[string][]byte{"ca.pem": ca.CertPEM(), "cert.pem": cert, "key.pem": key} {
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

func clientTLS(dir string) (*tls.Config, error) {
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, fmt.Errorf("bench: certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("bench: certificates: none in ca.pem")
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
	below, err := newGathered(conn)
	if err != nil {
		return nil, err
	}
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

var gatherBuffers = sync.Pool{New: func() any { return new([gatherSize]byte) }}

// gathered is what lies below TLS: it reads as much as there is, and gathers
// what is written until Flush, once gather was called. While nothing comes or
// goes it holds no buffer.
type gathered struct {
	net.Conn
	raw syscall.RawConn

	// Of the one reader.
	in     *[gatherSize]byte // nil: nothing is left of it
	unread []byte

	mu     sync.Mutex // guards the fields below: the reader writes alerts
	gather bool
	out    *[gatherSize]byte // nil: it holds nothing
	n      int               // bytes in out
}

func newGathered(conn net.Conn) (*gathered, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.New("bench: carrier: not a socket")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("bench: carrier: %w", err)
	}
	return &gathered{Conn: conn, raw: raw}, nil
}

func (g *gathered) Read(b []byte) (int, error) {
	if len(g.unread) == 0 {
		if err := g.fillBuffer(); err != nil {
			return 0, err
		}
	}
	n := copy(b, g.unread)
	g.unread = g.unread[n:]
	if len(g.unread) == 0 {
		gatherBuffers.Put(g.in)
		g.in = nil
	}
	return n, nil
}

// fillBuffer takes a buffer only when there is something to read.
func (g *gathered) fillBuffer() error {
	var n int
	var rerr error
	err := g.raw.Read(func(fd uintptr) bool {
		if g.in == nil {
			g.in = gatherBuffers.Get().(*[gatherSize]byte)
		}
		for {
			if n, rerr = syscall.Read(int(fd), g.in[:]); rerr != syscall.EINTR {
				break
			}
		}
		if rerr == syscall.EAGAIN {
			gatherBuffers.Put(g.in)
			g.in = nil
			return false
		}
		return true
	})
	if err == nil {
		err = rerr
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		if g.in != nil {
			gatherBuffers.Put(g.in)
			g.in = nil
		}
		return err
	}
	g.unread = g.in[:n]
	return nil
}

func (g *gathered) startGathering() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gather = true
}

func (g *gathered) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gather {
		return g.Conn.Write(b)
	}
	if g.n+len(b) > gatherSize {
		if err := g.flushLocked(); err != nil {
			return 0, err
		}
	}
	if len(b) > gatherSize {
		return g.Conn.Write(b)
	}
	if g.out == nil {
		g.out = gatherBuffers.Get().(*[gatherSize]byte)
	}
	g.n += copy(g.out[g.n:], b)
	return len(b), nil
}

// Flush sends what was gathered.
func (g *gathered) Flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flushLocked()
}

func (g *gathered) flushLocked() error {
	if g.out == nil {
		return nil
	}
	_, err := g.Conn.Write(g.out[:g.n])
	gatherBuffers.Put(g.out)
	g.out, g.n = nil, 0
	return err
}

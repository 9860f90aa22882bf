package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/causewayproject/causeway/examples/programs/internal/command"
)

// tlsConfig follows the files: what they hold counts from the next handshake on.
func (f *doorFlags) tlsConfig(log *slog.Logger) (*tls.Config, error) {
	config, err := serverTLS(f.cert, f.key, log)
	if err != nil {
		return nil, fmt.Errorf("--door-cert: %w", err)
	}
	if f.clientCA == "" {
		return config, nil
	}
	authorities, err := loadClientCAs(f.clientCA, log)
	if err != nil {
		return nil, fmt.Errorf("--door-client-ca: %w", err)
	}
	config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, authorities.get()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := config.Clone()
		now.ClientCAs = authorities.get()
		return now, nil
	}
	return config, nil
}

// serverTLS reads the certificate again for each connection: certificates get renewed.
func serverTLS(cert, key string, log *slog.Logger) (*tls.Config, error) {
	followed, err := command.LoadCertificate(cert, key, log)
	if err != nil {
		return nil, err
	}
	return &tls.Config{GetCertificate: followed.Get}, nil
}

// clientCAs are the authorities in a file that is followed.
type clientCAs struct {
	file string
	log  *slog.Logger

	mu   sync.Mutex // guards the fields below
	text []byte     // as it was last read
	pool *x509.CertPool
}

func loadClientCAs(file string, log *slog.Logger) (*clientCAs, error) {
	c := &clientCAs{file: file, log: log}
	text, err := os.ReadFile(file)
	if err == nil {
		err = c.takeLocked(text)
	}
	return c, err
}

func (c *clientCAs) takeLocked(text []byte) error {
	c.text = text
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return errors.New("there is no certificate in it")
	}
	c.pool = pool
	return nil
}

// get returns what the file holds, or what it held when it could last be used.
func (c *clientCAs) get() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := os.ReadFile(c.file)
	if err != nil {
		text = []byte("unreadable")
	}
	if bytes.Equal(text, c.text) {
		return c.pool
	}
	if taken := c.takeLocked(text); err == nil {
		err = taken
	}
	if err != nil {
		c.log.Warn("client authorities: those before stay", "error", fmt.Errorf("--door-client-ca: %w", err))
	} else {
		c.log.Info("client authorities", "file", c.file)
	}
	return c.pool
}

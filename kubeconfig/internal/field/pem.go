package field

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/keypair"
)

// BlockCertificate is the type of a certificate's PEM block.
const BlockCertificate = "CERTIFICATE"

// MaxCertificates is how many certificates one text may have. Each is compared with others
// and may have to be checked as an issuer. A system's own bundle has some 150.
const MaxCertificates = 512

var errCutOff = errors.New("holds a PEM block that can't be read: it is cut off or its base64 is broken")

// PEMBlocks returns the PEM blocks of data. pem.Decode passes over a broken
// one in silence; here it is an error.
func PEMBlocks(data []byte) ([]*pem.Block, error) {
	var blocks []*pem.Block
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		blocks = append(blocks, block)
	}
	if bytes.Count(data, []byte("-----BEGIN ")) > len(blocks) {
		return nil, errCutOff
	}
	return blocks, nil
}

// ParseCertificates returns the certificates of data, which holds nothing else.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: want PEM certificates", ErrRequired)
	}
	blocks, err := PEMBlocks(data)
	if err != nil {
		return nil, err
	}
	if len(blocks) == 0 {
		return nil, errors.New("holds no PEM block: want PEM certificates")
	}
	if len(blocks) > MaxCertificates {
		return nil, fmt.Errorf("holds %d PEM blocks: want at most %d certificates", len(blocks), MaxCertificates)
	}
	certs := make([]*x509.Certificate, len(blocks))
	for i, block := range blocks {
		switch {
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			return nil, errors.New("holds a private key: want PEM certificates only")
		case block.Type != BlockCertificate:
			return nil, fmt.Errorf("PEM block %d is no certificate: want blocks of type %s only", i+1, BlockCertificate)
		}
		if certs[i], err = x509.ParseCertificate(block.Bytes); err != nil {
			return nil, fmt.Errorf("PEM block %d is no certificate: %w", i+1, err)
		}
		if err := keypair.CheckPublic(certs[i].PublicKey); err != nil {
			return nil, fmt.Errorf("PEM block %d: %w", i+1, err)
		}
	}
	return certs, nil
}

// FindCertificates returns the certificates that crypto/tls and client-go take out of a PEM
// text: they pass over everything else.
func FindCertificates(data []byte) (certs []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return certs
		}
		if block.Type != BlockCertificate {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			certs = append(certs, cert)
		}
	}
}

// EncodeCertificates returns certs in PEM.
func EncodeCertificates(certs []*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, cert := range certs {
		// A bytes.Buffer takes every write.
		_ = pem.Encode(&b, &pem.Block{Type: BlockCertificate, Bytes: cert.Raw})
	}
	return b.Bytes()
}

// CheckValidity says when cert begins or has ended, if it is not valid now.
func CheckValidity(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("the certificate expired at %s", cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s; check the clock", cert.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// ParsePrivateKey returns the first private key of data and its PEM block.
// An error of x509 about the key is left out: its text may contain parts of the key.
func ParsePrivateKey(data []byte) (crypto.Signer, *pem.Block, error) {
	blocks, err := PEMBlocks(data)
	if err != nil {
		return nil, nil, err
	}
	for _, block := range blocks {
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
			return nil, nil, errors.New("the private key is encrypted: want it in plain PEM")
		case !strings.HasSuffix(block.Type, "PRIVATE KEY"):
			continue // certificates, EC PARAMETERS
		}
		key, err := keypair.ParseDER(block.Bytes)
		if err != nil {
			return nil, nil, err
		}
		return key, &pem.Block{Type: block.Type, Bytes: block.Bytes}, nil
	}
	return nil, nil, errors.New("holds no private key: want one in PEM")
}

// SamePublicKey reports whether a and b are one key.
func SamePublicKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

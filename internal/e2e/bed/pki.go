package bed

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// writePair stores a certificate and its key as name.crt and name.key.
func writePair(dir, name string, pair tls.Certificate) (cert, key string, err error) {
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	certPEM, keyPEM := pki.PEM(pair)
	if err := os.WriteFile(cert, certPEM, 0o644); err != nil {
		return "", "", fmt.Errorf("bed: write certificate: %w", err)
	}
	if err := os.WriteFile(key, keyPEM, 0o600); err != nil {
		return "", "", fmt.Errorf("bed: write key: %w", err)
	}
	return cert, key, nil
}

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"os"
)

// makeKey writes a private key that ssh reads, and returns the line for
// authorized_keys (RFC 5656, section 3.1).
func makeKey(path string) (public string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", err
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return "", err
	}
	const kind, curve = "ecdsa-sha2-nistp256", "nistp256"
	var blob []byte
	for _, field := range []string{kind, curve, string(point)} {
		blob = binary.BigEndian.AppendUint32(blob, uint32(len(field)))
		blob = append(blob, field...)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return kind + " " + base64.StdEncoding.EncodeToString(blob) + " tunnelssh\n", os.WriteFile(path, text, 0o600)
}

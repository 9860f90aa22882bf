package wire

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
)

const (
	proofLabel    = "EXPORTER-causeway-proof"
	proofPrefix   = "causeway proof 1\x00"
	maxRequestDER = 8 << 10 // a request for RSA 4096 has 1.6 KiB
)

// AddRequest adds a certificate signing request for key, and the proof that
// its owner is at this end of the connection.
func (m *Message) AddRequest(state *tls.ConnectionState, key crypto.Signer) error {
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return err
	}
	proof, err := Prove(state, request, key)
	if err != nil {
		return err
	}
	m.AddBytes(TagRequest, request).AddBytes(TagProof, proof)
	return nil
}

// Prove returns the proof for a request: key's signature over what only the two
// ends of the connection know.
func Prove(state *tls.ConnectionState, request []byte, key crypto.Signer) ([]byte, error) {
	digest, err := proofDigest(state, request)
	if err != nil {
		return nil, err
	}
	if _, ok := key.Public().(ed25519.PublicKey); ok {
		return key.Sign(rand.Reader, digest, crypto.Hash(0))
	}
	return key.Sign(rand.Reader, digest, crypto.SHA256)
}

func proofDigest(state *tls.ConnectionState, request []byte) ([]byte, error) {
	exporter, err := state.ExportKeyingMaterial(proofLabel, nil, sha256.Size)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	io.WriteString(h, proofPrefix)
	h.Write(exporter)
	h.Write(request)
	return h.Sum(nil), nil
}

// ProvenKey returns the key of the message's request, if the proof shows that
// the other end of the connection has that key. The errors are for that end.
func (m *Message) ProvenKey(state *tls.ConnectionState) (crypto.PublicKey, error) {
	request := m.Bytes(TagRequest)
	if len(request) > maxRequestDER {
		return nil, errors.New("the request is too long")
	}
	csr, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, errors.New("the request cannot be read")
	}
	if err := CheckKey(csr.PublicKey); err != nil { // before it costs a signature's check
		return nil, err
	}
	if csr.CheckSignature() != nil {
		return nil, errors.New("the request's signature is wrong")
	}
	digest, err := proofDigest(state, request)
	if err != nil {
		return nil, errors.New("the connection cannot be proven")
	}
	if !verifyProof(csr.PublicKey, digest, m.Bytes(TagProof)) {
		return nil, errors.New("the proof is not of this connection")
	}
	return csr.PublicKey, nil
}

func verifyProof(pub crypto.PublicKey, digest, proof []byte) bool {
	switch pub := pub.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(pub, digest, proof)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(pub, crypto.SHA256, digest, proof) == nil
	case ed25519.PublicKey:
		return ed25519.Verify(pub, digest, proof)
	}
	return false
}

// CheckKey returns an error unless an agent may have such a key: strong enough, and
// of a size that costs the server little.
func CheckKey(pub crypto.PublicKey) error {
	switch pub := pub.(type) {
	case *ecdsa.PublicKey:
		if pub.Curve == elliptic.P256() || pub.Curve == elliptic.P384() {
			return nil
		}
	case *rsa.PublicKey:
		bits := pub.N.BitLen()
		if bits >= 2048 && bits <= 4096 && pub.E >= 65537 && pub.E <= 1<<31-1 && pub.E%2 == 1 {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	}
	return errors.New("the key is to be ECDSA P-256 or P-384, Ed25519, or RSA of 2048 to 4096 bits")
}

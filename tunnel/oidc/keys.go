package oidc

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"github.com/causewayproject/causeway/internal/keypair"
)

// maxKeys is how many keys an issuer may have: a token without a key's name is
// compared with all of them.
const maxKeys = 32

// signingKey is a public key of an issuer.
type signingKey struct {
	id        string // "": it has none, and any token may be of it
	algorithm string // "": any that fits the key
	public    crypto.PublicKey
}

type keySet []signingKey

// parseKeys reads a JWK set, or PEM. The error names no key.
func parseKeys(data []byte) (keys keySet, err error) {
	if text := bytes.TrimSpace(data); bytes.HasPrefix(text, []byte("-----BEGIN ")) {
		keys, err = keysFromPEM(text)
	} else {
		keys, err = keysFromSet(data)
	}
	switch {
	case err != nil:
		return nil, err
	case len(keys) == 0:
		return nil, errors.New("there is no key in it that signs tokens: want RSA of 2048 to 8192 bits, or ECDSA")
	case len(keys) > maxKeys:
		return nil, fmt.Errorf("it has %d keys, and %d is the most", len(keys), maxKeys)
	}
	return keys, nil
}

// keysFromSet reads a JWK set. Keys of other kinds and for other uses are left out.
func keysFromSet(data []byte) (keys keySet, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(data, &set) != nil {
		return nil, errors.New("it is neither a JWK set nor PEM")
	}
	for _, text := range set.Keys {
		var head struct {
			Use     string          `json:"use"`
			Private json.RawMessage `json:"d"`
		}
		if json.Unmarshal(text, &head) != nil || head.Use != "" && head.Use != "sig" {
			continue
		}
		if head.Private != nil { // go-jose would check the key, however large it is
			return nil, errors.New("it has a private key: only public ones belong here")
		}
		var key jose.JSONWebKey
		if key.UnmarshalJSON(text) == nil && canSign(key.Key) {
			keys = append(keys, signingKey{key.KeyID, key.Algorithm, key.Key})
		}
	}
	return keys, nil
}

// keysFromPEM reads public keys and certificates, as in the files of
// --service-account-key-file and in the Secret that Cluster API keeps.
func keysFromPEM(text []byte) (keys keySet, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var public crypto.PublicKey
		switch block.Type {
		case "PUBLIC KEY":
			public, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			public, err = x509.ParsePKCS1PublicKey(block.Bytes)
		case "CERTIFICATE":
			var cert *x509.Certificate
			if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
				public = cert.PublicKey
			}
		default:
			return nil, fmt.Errorf("it has a block %q: only public keys and certificates belong here", block.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("a block %q: %w", block.Type, err)
		}
		if canSign(public) {
			keys = append(keys, signingKey{id: keyIDOf(public), public: public})
		}
	}
	return keys, nil
}

// keyIDOf returns the name that Kubernetes gives to a key, "" if it can't be made.
func keyIDOf(public crypto.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// canSign reports whether tokens may be signed with such a key.
func canSign(public crypto.PublicKey) bool {
	switch key := public.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= 2048 && keypair.CheckPublic(key) == nil // a token costs a signature's check
	case *ecdsa.PublicKey:
		return algorithmOf(key) != ""
	}
	return false
}

// algorithmOf returns the one algorithm of the key's curve; "" if it has none.
func algorithmOf(key *ecdsa.PublicKey) jose.SignatureAlgorithm {
	switch key.Curve.Params().Name {
	case "P-256":
		return jose.ES256
	case "P-384":
		return jose.ES384
	case "P-521":
		return jose.ES512
	}
	return ""
}

// fits reports whether the key may have signed the token.
func (k signingKey) fits(t *token) bool {
	if id := t.keyID(); id != "" && k.id != "" && id != k.id {
		return false
	}
	if k.algorithm != "" && k.algorithm != string(t.header.Algorithm) {
		return false
	}
	if key, ok := k.public.(*ecdsa.PublicKey); ok {
		return t.header.Algorithm == algorithmOf(key)
	}
	return t.header.Algorithm[0] == 'R'
}

// verify returns ErrUnknownKey if no key fits the token, and ErrSignature if none of
// those that fit has signed it.
func (keys keySet) verify(t *token) error {
	err := ErrUnknownKey
	for _, key := range keys {
		if !key.fits(t) {
			continue
		}
		if _, wrong := t.jws.Verify(key.public); wrong == nil {
			return nil
		}
		err = ErrSignature
	}
	return err
}

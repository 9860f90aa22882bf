// Package keypair reads private keys and certificates that others wrote. It refuses an
// RSA key that is larger than [MaxRSABits] before that is used: the work of a check, and
// of a signature, grows with the third power of the size, and can't be canceled.
package keypair

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// MaxRSABits is the largest RSA key. crypto/tls has the same bound for peers.
const MaxRSABits = 8192

const (
	maxDER   = 16 << 10 // bytes of one key; RSA with 8,192 bits has 4,700
	maxDepth = 8
)

var (
	errTooLarge = fmt.Errorf("the private key is too large: want RSA with at most %d bits", MaxRSABits)
	errNoPair   = errors.New("want a PEM certificate and its private key")
)

// Check returns an error if a private key in a PEM text is too large. It uses no key: it
// is for texts that another package parses, such as x/crypto/ssh. Errors hold nothing of the text.
func Check(text []byte) error {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil
		}
		var err error
		switch {
		case block.Type == "OPENSSH PRIVATE KEY":
			err = checkOpenSSH(block.Bytes)
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			err = checkDER(block.Bytes)
		}
		if err != nil {
			return err
		}
	}
}

// CheckPublic returns an error if key is an RSA key that is too large.
func CheckPublic(key crypto.PublicKey) error {
	if public, ok := key.(*rsa.PublicKey); ok && public.N.BitLen() > MaxRSABits {
		return fmt.Errorf("the RSA key has %d bits: want at most %d", public.N.BitLen(), MaxRSABits)
	}
	return nil
}

// X509 is tls.X509KeyPair for keys that are not too large. Other errors say little: those
// of crypto/x509 may hold parts of the key.
func X509(certPEM, keyPEM []byte) (tls.Certificate, error) {
	if err := Check(keyPEM); err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, errNoPair
	}
	return pair, nil
}

// ParseDER returns the key in PKCS #1, PKCS #8 or SEC 1, whichever it is: the types of
// PEM blocks are often wrong.
func ParseDER(der []byte) (crypto.Signer, error) {
	if err := checkDER(der); err != nil {
		return nil, err
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	return nil, errors.New("the private key can't be read: want PKCS #1, PKCS #8 or SEC 1 (EC)")
}

func checkDER(der []byte) error {
	if len(der) > maxDER || !hasSmallIntegers(der, maxDepth) {
		return errTooLarge
	}
	return nil
}

// hasSmallIntegers reports whether no INTEGER in der is larger than an RSA modulus may
// be. It looks into octet strings, since a PKCS #8 key is in one. Bytes that are not DER have none.
func hasSmallIntegers(der []byte, depth int) bool {
	for len(der) > 0 {
		var value asn1.RawValue
		rest, err := asn1.Unmarshal(der, &value)
		switch {
		case err != nil:
			return true
		case depth == 0:
			return false
		case value.Class == asn1.ClassUniversal && value.Tag == asn1.TagInteger && isLarge(value.Bytes):
			return false
		case value.IsCompound || value.Class == asn1.ClassUniversal && value.Tag == asn1.TagOctetString:
			if !hasSmallIntegers(value.Bytes, depth-1) {
				return false
			}
		}
		der = rest
	}
	return true
}

// isLarge reports whether a number is larger than an RSA modulus may be.
func isLarge(number []byte) bool { return new(big.Int).SetBytes(number).BitLen() > MaxRSABits }

// openSSHMagic begins a key of OpenSSH's own format (PROTOCOL.key).
var openSSHMagic = []byte("openssh-key-v1\x00")

// checkOpenSSH looks at the numbers of a key of OpenSSH's own format that has no
// passphrase. Those of others are not used.
func checkOpenSSH(data []byte) error {
	data, _ = bytes.CutPrefix(data, openSSHMagic)
	cipher, data, _ := cutString(data)
	if string(cipher) != "none" {
		return nil
	}
	_, data, _ = cutString(data) // the function that makes a key of a passphrase
	_, data, _ = cutString(data) // and its options
	if len(data) < 4 {
		return nil
	}
	_, data, _ = cutString(data[4:]) // the public key
	private, _, ok := cutString(data)
	if !ok || len(private) < 8 {
		return nil
	}
	if len(private) > maxDER {
		return errTooLarge
	}
	kind, private, _ := cutString(private[8:])
	if string(kind) != "ssh-rsa" {
		return nil
	}
	for range 6 { // n, e, d, q⁻¹, p, q; a comment follows
		var number []byte
		if number, private, ok = cutString(private); !ok {
			return nil
		}
		if isLarge(number) {
			return errTooLarge
		}
	}
	return nil
}

// cutString returns the string that data begins with, as SSH writes it.
func cutString(data []byte) (text, rest []byte, ok bool) {
	if len(data) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(data)
	if uint64(n) > uint64(len(data)-4) {
		return nil, nil, false
	}
	return data[4 : 4+n], data[4+n:], true
}

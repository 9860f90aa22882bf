package wire

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"
)

const alphabet32 = "abcdefghijklmnopqrstuvwxyz234567"

// Base32 is the encoding of token IDs and agents' names.
var Base32 = base32.NewEncoding(alphabet32).WithPadding(base32.NoPadding)

const (
	tokenPrefix = "causeway1." // the number is the version of the format
	// tokenLabel is signed in front of the body. No certificate begins with it
	// (the first byte of one is 0x30), so a signature of a certificate is never
	// the signature of a token.
	tokenLabel = "causeway token 1\x00"
	// maxToken limits the text. The longest cluster and a key of RSA 16384 bits
	// make a token of 3,448 bytes.
	maxToken = 4 << 10

	maxOtherToken = 8 << 10

	tokenIDSize  = 10 // random bytes: 16 characters
	tokenKeySize = 4  // bytes of the authority's pin
	tokenHeader  = tokenIDSize + 8 + tokenKeySize
)

// Token is a token as the agent sends it (SPEC.md, section 6). ParseToken makes
// one.
type Token struct {
	ID        string
	Expires   time.Time
	Authority []byte // which authority signed: the first bytes of its pin
	Cluster   string
	Signature []byte

	body []byte // all of the above but the signature
}

// errTokenFormat is for people; it holds nothing of the token.
var errTokenFormat = errors.New("not a token: that begins with " + tokenPrefix + " and has two more parts, with a dot between them. " +
	"One that was made by an older version is void: make a new invitation")

// NewTokenID returns a random ID.
func NewTokenID() string {
	id := make([]byte, tokenIDSize)
	rand.Read(id) // crashes the program rather than fail
	return Base32.EncodeToString(id)
}

// SignToken returns the text of the token with this ID, for an agent of the cluster. key
// is the key of the authority whose certificate is authority.
func SignToken(key crypto.Signer, authority *x509.Certificate, id, cluster string, expires time.Time) (text string, err error) {
	body, err := Base32.DecodeString(id)
	if err != nil || !IsTokenID(id) {
		return "", errors.New("not the ID of a token")
	}
	body = binary.BigEndian.AppendUint64(body, uint64(expires.UnixMilli()))
	body = append(body, authorityID(authority)...)
	body = append(body, cluster...)
	_, hash := tokenAlgorithm(authority.PublicKey)
	signature, err := crypto.SignMessage(key, rand.Reader, append([]byte(tokenLabel), body...), hash)
	if err != nil {
		return "", err
	}
	return tokenPrefix + encodePart(body) + "." + encodePart(signature), nil
}

func authorityID(authority *x509.Certificate) []byte {
	sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	return sum[:tokenKeySize]
}

// tokenAlgorithm returns the algorithm by which crypto/x509 signs certificates
// with such a key. A key in a key management service often allows no other.
func tokenAlgorithm(pub crypto.PublicKey) (x509.SignatureAlgorithm, crypto.Hash) {
	switch pub := pub.(type) {
	case ed25519.PublicKey:
		return x509.PureEd25519, crypto.Hash(0)
	case *ecdsa.PublicKey:
		switch pub.Curve.Params().BitSize {
		case 384:
			return x509.ECDSAWithSHA384, crypto.SHA384
		case 521:
			return x509.ECDSAWithSHA512, crypto.SHA512
		}
		return x509.ECDSAWithSHA256, crypto.SHA256
	}
	return x509.SHA256WithRSA, crypto.SHA256
}

// ParseToken reads the text of a token. Each token has exactly one text. The
// signature is not checked.
func ParseToken(text string) (Token, error) {
	parts, ok := strings.CutPrefix(text, tokenPrefix)
	first, second, two := strings.Cut(parts, ".")
	if !ok || !two || len(text) > maxToken {
		return Token{}, errTokenFormat
	}
	body, err1 := decodePart(first)
	signature, err2 := decodePart(second)
	if err1 != nil || err2 != nil || len(body) < tokenHeader || len(signature) == 0 {
		return Token{}, errTokenFormat
	}
	t := Token{
		ID:        Base32.EncodeToString(body[:tokenIDSize]),
		Expires:   time.UnixMilli(int64(binary.BigEndian.Uint64(body[tokenIDSize:]))).UTC(),
		Authority: body[tokenHeader-tokenKeySize : tokenHeader],
		Cluster:   string(body[tokenHeader:]),
		Signature: signature,
		body:      body,
	}
	if CheckCluster(t.Cluster) != nil {
		return Token{}, errTokenFormat
	}
	return t, nil
}

// IsOwnToken reports whether the text is that of a token which an authority signs, by
// its beginning.
func IsOwnToken(text string) bool { return strings.HasPrefix(text, tokenPrefix) }

// CheckToken returns an error if no server can take the token: it is neither an own one
// nor has the form of a JSON Web Token. The error holds nothing of it.
func CheckToken(text string) error {
	mistyped := len(text) >= len(tokenPrefix) && strings.EqualFold(text[:len(tokenPrefix)], tokenPrefix)
	if mistyped {
		_, err := ParseToken(text)
		return err
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	strange := func(c rune) bool { return !strings.ContainsRune(letters, c) }
	if strings.Count(text, ".") != 2 || strings.ContainsFunc(text, strange) || len(text) > maxOtherToken {
		return errTokenFormat
	}
	return nil
}

func encodePart(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decodePart refuses what the decoder ignores: line ends, and bits after the
// last byte.
func decodePart(s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil && encodePart(b) != s {
		err = errTokenFormat
	}
	return b, err
}

// Verify returns an error unless one of the authorities signed the token. The
// error is for the agent.
func (t Token) Verify(authorities []*x509.Certificate) error {
	signed := append([]byte(tokenLabel), t.body...)
	known := false
	for _, a := range authorities {
		if !slices.Equal(authorityID(a), t.Authority) {
			continue
		}
		known = true
		if algorithm, _ := tokenAlgorithm(a.PublicKey); a.CheckSignature(algorithm, signed, t.Signature) == nil {
			return nil
		}
	}
	if !known {
		return errors.New("it is of another authority than this server's")
	}
	return errors.New("its signature is wrong: was it copied whole?")
}

// IsTokenID reports whether id has the form of a token's ID, which is safe as
// the name of a file.
func IsTokenID(id string) bool {
	// DecodeString ignores line ends, and takes 0xff for padding.
	return len(id) == Base32.EncodedLen(tokenIDSize) && strings.Trim(id, alphabet32) == ""
}

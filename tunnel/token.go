package tunnel

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

// Token is what a [Store] keeps of a token. Nothing in it is a secret, and
// nobody can make a token from it: that takes the key of an [Authority].
type Token struct {
	// ID names the token: 16 of the characters a-z and 2-7.
	ID string
	// Cluster is the one whose agent the token enrols.
	Cluster string
	// Created is when the token was made.
	Created time.Time
	// Expires is when the token ends, by the server's clock.
	Expires time.Time
	// Key is the hex fingerprint of the key that the token was spent for;
	// empty if it was not spent yet.
	Key string
}

const alphabet32 = "abcdefghijklmnopqrstuvwxyz234567"

var base32Lower = base32.NewEncoding(alphabet32).WithPadding(base32.NoPadding)

const (
	tokenPrefix = "causeway1." // the number is the version of the form
	// tokenLabel is what is signed in front of the body. No certificate begins
	// so (its first byte is 0x30): a signature of one is never one of the other.
	tokenLabel = "causeway token 1\x00"
	// maxToken is of the text. With the longest cluster and a key of RSA 16384
	// bits it has 3,448.
	maxToken = 4 << 10

	tokenID     = 10 // bytes of entropy: 16 characters
	tokenKey    = 4  // bytes of the authority's pin
	tokenHeader = tokenID + 8 + tokenKey
)

// signedToken is a token as the agent shows it (SPEC.md, section 6).
type signedToken struct {
	id        string
	expires   time.Time
	key       []byte // which authority signed: the first bytes of its pin
	cluster   string
	body      []byte // all of the above
	signature []byte
}

// errTokenForm is for people; it holds nothing of the token.
var errTokenForm = errors.New("not a token: that begins with " + tokenPrefix + " and has two more parts, with a dot between them. " +
	"One that was made by an older version is void: make a new invitation")

// signToken makes a token for an agent of the cluster.
func (a *Authority) signToken(cluster string, expires time.Time) (id, token string, err error) {
	key := sha256.Sum256(a.Certificate.RawSubjectPublicKeyInfo)
	body := make([]byte, tokenID, tokenHeader+len(cluster))
	rand.Read(body) // crashes the program rather than fail
	id = base32Lower.EncodeToString(body)
	body = binary.BigEndian.AppendUint64(body, uint64(expires.UnixMilli()))
	body = append(body, key[:tokenKey]...)
	body = append(body, cluster...)
	_, hash := tokenAlgorithm(a.Certificate.PublicKey)
	signature, err := crypto.SignMessage(a.Key, rand.Reader, append([]byte(tokenLabel), body...), hash)
	if err != nil {
		return "", "", err
	}
	return id, tokenPrefix + encodeToken(body) + "." + encodeToken(signature), nil
}

// tokenAlgorithm is the one by which crypto/x509 signs certificates with such a
// key: a key that is kept elsewhere may be able to do that one only.
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

// parseToken reads the text form. Each token has one text. The signature may be
// anybody's.
func parseToken(text string) (signedToken, error) {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	first, second, two := strings.Cut(rest, ".")
	if !ok || !two || len(text) > maxToken {
		return signedToken{}, errTokenForm
	}
	body, err1 := decodeToken(first)
	signature, err2 := decodeToken(second)
	if err1 != nil || err2 != nil || len(body) < tokenHeader || len(signature) == 0 {
		return signedToken{}, errTokenForm
	}
	t := signedToken{
		id:        base32Lower.EncodeToString(body[:tokenID]),
		expires:   time.UnixMilli(int64(binary.BigEndian.Uint64(body[tokenID:]))).UTC(),
		key:       body[tokenHeader-tokenKey : tokenHeader],
		cluster:   string(body[tokenHeader:]),
		body:      body,
		signature: signature,
	}
	if checkCluster(t.cluster) != nil {
		return signedToken{}, errTokenForm
	}
	return t, nil
}

func encodeToken(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decodeToken refuses what the decoder passes over: line ends, and bits behind
// the last byte.
func decodeToken(s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil && encodeToken(b) != s {
		err = errTokenForm
	}
	return b, err
}

// verify checks that one of the authorities signed the token. Its error is for
// the agent.
func (t signedToken) verify(authorities []*x509.Certificate) error {
	signed := append([]byte(tokenLabel), t.body...)
	known := false
	for _, a := range authorities {
		key := sha256.Sum256(a.RawSubjectPublicKeyInfo)
		if !slices.Equal(key[:tokenKey], t.key) {
			continue
		}
		known = true
		if algorithm, _ := tokenAlgorithm(a.PublicKey); a.CheckSignature(algorithm, signed, t.signature) == nil {
			return nil
		}
	}
	if !known {
		return errors.New("it is of another authority than this server's")
	}
	return errors.New("its signature is wrong: was it copied whole?")
}

// checkTokenID returns whether id is one of ours: safe as the name of a file.
func checkTokenID(id string) bool {
	if len(id) != base32Lower.EncodedLen(tokenID) {
		return false
	}
	// DecodeString passes over line ends, and takes 0xff for padding.
	for _, c := range []byte(id) {
		if strings.IndexByte(alphabet32, c) < 0 {
			return false
		}
	}
	return true
}

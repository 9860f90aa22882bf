package tunnel

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"strings"
	"time"
)

// Token is what a [Store] keeps of a token: no secret. The token itself is
// known to the agent alone.
type Token struct {
	// ID is the part of the token before the dot: 16 letters and digits.
	ID string
	// Hash is the hex SHA-256 of the whole token.
	Hash string
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
	tokenID     = 10 // bytes of entropy: 16 characters
	tokenSecret = 20 // 32 characters
)

// newToken makes an id, and a token that begins with it.
func newToken() (id, token string) {
	var b [tokenID + tokenSecret]byte
	rand.Read(b[:]) // crashes the program rather than fail
	id = base32Lower.EncodeToString(b[:tokenID])
	return id, id + "." + base32Lower.EncodeToString(b[tokenID:])
}

// parseToken returns the id of what looks like a token.
func parseToken(token string) (id string, ok bool) {
	id, secret, _ := strings.Cut(token, ".")
	return id, checkTokenID(id) && isBase32(secret, tokenSecret)
}

// checkTokenID returns whether id is one of ours: safe as the name of a file.
func checkTokenID(id string) bool { return isBase32(id, tokenID) }

func isBase32(s string, bytes int) bool {
	if len(s) != base32Lower.EncodedLen(bytes) {
		return false
	}
	// DecodeString passes over line ends, and takes 0xff for padding.
	for _, c := range []byte(s) {
		if strings.IndexByte(alphabet32, c) < 0 {
			return false
		}
	}
	return true
}

// hashToken needs no salt and no stretching: the secret has 160 random bits.
func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func (t Token) matches(token string) bool {
	return subtle.ConstantTimeCompare([]byte(t.Hash), []byte(hashToken(token))) == 1
}

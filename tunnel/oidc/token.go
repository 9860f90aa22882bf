package oidc

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

const (
	maxToken = 8 << 10
	maxLife  = time.Hour
	// leeway is how much the clocks of the issuer and of this machine may differ. It
	// is that of Kubernetes' API server.
	leeway = time.Minute
)

// algorithms are those with which Kubernetes signs, and those with which Kubernetes
// lets an external signer sign.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.RS384, jose.ES384, jose.RS512, jose.ES512}

// token is one that was read. Before its signature is verified, nothing in it counts
// except to refuse it.
type token struct {
	signed string // the text without the signature, of which there may be several
	jws    *jose.JSONWebSignature
	header header
	claims claims
}

// header has all fields that a header may have.
type header struct {
	Algorithm jose.SignatureAlgorithm `json:"alg"`
	KeyID     *string                 `json:"kid"` // nil: none
	Type      *string                 `json:"typ"` // nil: none
}

var headerFields = []string{"alg", "kid", "typ"}

type claims struct {
	Issuer     string   `json:"iss"`
	Subject    string   `json:"sub"`
	Audience   []string `json:"aud"`
	Expires    *int64   `json:"exp"` // seconds; nil: none
	NotBefore  *int64   `json:"nbf"`
	IssuedAt   *int64   `json:"iat"`
	Kubernetes struct {
		Pod struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"pod"`
	} `json:"kubernetes.io"`
}

// parseToken reads a token without a look at its signature. The error is ErrMalformed
// whatever is wrong: a cause might quote the token.
func parseToken(text string) (*token, error) {
	parts := strings.Split(text, ".")
	if len(text) > maxToken || len(parts) != 3 {
		return nil, ErrMalformed
	}
	var decoded [3][]byte
	for n, part := range parts {
		b, err := base64.RawURLEncoding.Strict().DecodeString(part)
		// The decoder ignores line ends.
		if err != nil || len(b) == 0 || strings.ContainsAny(part, "\r\n") {
			return nil, ErrMalformed
		}
		decoded[n] = b
	}
	t := &token{signed: parts[0] + "." + parts[1]}
	if !t.readHeader(decoded[0]) {
		return nil, ErrMalformed
	}
	// This decoder refuses names that occur twice, and tells upper from lower case.
	if json.Unmarshal(decoded[1], &t.claims) != nil {
		return nil, ErrMalformed
	}
	var err error
	if t.jws, err = jose.ParseSignedCompact(text, algorithms); err != nil {
		return nil, ErrMalformed
	}
	return t, nil
}

// readHeader reports whether the header has only what is allowed.
func (t *token) readHeader(text []byte) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil || json.Unmarshal(text, &t.header) != nil {
		return false
	}
	for name := range fields {
		if !slices.Contains(headerFields, name) {
			return false
		}
	}
	return slices.Contains(algorithms, t.header.Algorithm) && (t.header.Type == nil || *t.header.Type == "JWT")
}

// keyID returns "" if the token names no key.
func (t *token) keyID() string {
	if t.header.KeyID == nil {
		return ""
	}
	return *t.header.KeyID
}

// expires is when nobody may enrol with the token any more.
func (t *token) expires() time.Time { return time.Unix(*t.claims.Expires, 0).Add(leeway) }

// checkForm returns an error unless the token is a projected one that is valid now,
// whoever's it is.
func (t *token) checkForm(now time.Time) error {
	c := &t.claims
	switch {
	case c.Expires == nil || len(c.Audience) == 0:
		return ErrLegacy
	case c.IssuedAt == nil || c.NotBefore == nil:
		return ErrMalformed
	}
	// As numbers: the largest ones are no times. Seconds of now can't overflow.
	seconds, skew := now.Unix(), int64(leeway/time.Second)
	switch {
	case *c.IssuedAt > seconds+skew || *c.NotBefore > seconds+skew:
		return ErrNotYetValid
	case *c.Expires <= seconds-skew:
		return ErrExpired
	case *c.IssuedAt < 0 || *c.Expires-*c.IssuedAt > int64(maxLife/time.Second):
		return ErrLife
	case c.Kubernetes.Pod.Name == "" || c.Kubernetes.Pod.UID == "":
		return ErrNotBound
	}
	return nil
}

// checkClaims returns an error unless the token says that it is for the registration.
func (t *token) checkClaims(r *Registration) error {
	switch {
	case t.claims.Issuer != r.Issuer:
		return ErrIssuer
	case len(t.claims.Audience) != 1 || t.claims.Audience[0] != r.Audience:
		return ErrAudience
	case !slices.Contains(r.Subjects, t.claims.Subject):
		return ErrSubject
	}
	return nil
}

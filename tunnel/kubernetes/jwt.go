package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	maxToken = 32 << 10

	// A signature that kube-apiserver verifies has 64 bytes (ES256) or more, and
	// 1024 with an RSA key of 8192 bits.
	minSignature, maxSignature = 64, 1 << 10

	// clockSkew is how far the API server's clock may be behind this one.
	clockSkew = 5 * time.Minute
)

var (
	errNoJWT     = errors.New("the token is no signed JSON Web Token")
	errAudience  = errors.New("the token is for other audiences")
	errTokenOver = errors.New("the token has ended, or says no end")
)

// jwtClaims are the claims of a token. Only the API server can tell whether they
// are true.
type jwtClaims struct {
	audiences []string
	ends      time.Time // zero if it does not say
}

// parseJWT reads a JSON Web Token (RFC 7519) with a signature (RFC 7515, 7.1).
func parseJWT(token string) (jwtClaims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return jwtClaims{}, errNoJWT
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
			return jwtClaims{}, errNoJWT
		}
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	var claims struct {
		Audiences audienceList `json:"aud"`
		Expiry    float64      `json:"exp"`
	}
	signature := len(decoded[2])
	if json.Unmarshal(decoded[0], &header) != nil || header.Algorithm == "" || header.Algorithm == "none" ||
		json.Unmarshal(decoded[1], &claims) != nil || signature < minSignature || signature > maxSignature {
		return jwtClaims{}, errNoJWT
	}
	c := jwtClaims{audiences: claims.Audiences}
	if claims.Expiry > 0 && claims.Expiry < math.MaxInt32*100 {
		c.ends = time.Unix(int64(claims.Expiry), 0)
	}
	return c, nil
}

// checkUsable returns why the API server would refuse the token for each of the
// audiences.
func (c *jwtClaims) checkUsable(audiences []string, now time.Time) error {
	switch {
	case !slices.ContainsFunc(c.audiences, func(a string) bool { return slices.Contains(audiences, a) }):
		return errAudience
	case now.After(c.ends.Add(clockSkew)):
		return errTokenOver
	}
	return nil
}

// audienceList is a string or a list of them (RFC 7519, 4.1.3).
type audienceList []string

func (l *audienceList) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*l = audienceList{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(l))
}

var _ json.Unmarshaler = (*audienceList)(nil)

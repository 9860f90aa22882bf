package oidc_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/oidc"
)

// attack is a token that must be refused, shown for the cluster prod/a unless cluster
// says otherwise.
type attack struct {
	name, cluster, token string
	want                 error
}

// attackWorld is what the attacks are made of: the clusters prod/a and prod/b have the
// same issuer and other keys, prod/c another issuer.
type attackWorld struct {
	a, b, c, ec, stranger *key
	issuers               *oidc.Issuers
	strangers             *issuerServer // of the attacker
}

func newAttackWorld(t testing.TB) *attackWorld {
	w := &attackWorld{a: newRSA(t), b: newRSA(t), c: newRSA(t), ec: newECDSA(t, elliptic.P256()), stranger: newRSA(t), strangers: newIssuerServer(t)}
	c := pinned("prod/c", w.c)
	c.Issuer = "https://c.example"
	w.issuers = newIssuers(t, pinned("prod/a", w.a, w.ec), pinned("prod/b", w.b), c)
	return w
}

func (w *attackWorld) attacks(t testing.TB) []attack {
	return append(append(w.claimAttacks(), w.keyAttacks(t)...), w.formAttacks(t)...)
}

// claimAttacks are tokens that an API server has signed, but not for this.
func (w *attackWorld) claimAttacks() []attack {
	now := time.Now().Unix()
	a := func(changes object) string { return w.a.token(inCluster, changes) }
	pod := func(o object) object {
		return object{"kubernetes.io": o}
	}
	return []attack{
		{"another audience", "", a(object{"aud": []string{"https://kubernetes.default.svc.cluster.local"}}), oidc.ErrAudience},
		{"audience of another installation", "", a(object{"aud": []string{"causeway:other"}}), oidc.ErrAudience},
		{"several audiences", "", a(object{"aud": []string{audience, "vault"}}), oidc.ErrAudience},
		{"the same audience twice", "", a(object{"aud": []string{audience, audience}}), oidc.ErrAudience},
		{"an audience that begins alike", "", a(object{"aud": []string{audience + "x"}}), oidc.ErrAudience},
		{"an audience as text", "", a(object{"aud": audience}), oidc.ErrMalformed},
		{"another ServiceAccount", "", a(object{"sub": "system:serviceaccount:tunnel-agent:default"}), oidc.ErrSubject},
		{"the ServiceAccount of another namespace", "", a(object{"sub": "system:serviceaccount:default:tunnel-agent"}), oidc.ErrSubject},
		{"a subject in capitals", "", a(object{"sub": strings.ToUpper(subject)}), oidc.ErrSubject},
		{"a user", "", a(object{"sub": "tunnel-agent"}), oidc.ErrSubject},
		{"no subject", "", a(object{"sub": nil}), oidc.ErrSubject},
		{"another issuer", "", a(object{"iss": "https://c.example"}), oidc.ErrIssuer},
		{"an issuer with a slash more", "", a(object{"iss": inCluster + "/"}), oidc.ErrIssuer},
		{"no issuer", "", a(object{"iss": nil}), oidc.ErrIssuer},
		{"expired", "", a(object{"iat": now - 700, "nbf": now - 700, "exp": now - 61}), oidc.ErrExpired},
		{"not valid yet", "", a(object{"nbf": now + 120, "exp": now + 600}), oidc.ErrNotYetValid},
		{"issued in the future", "", a(object{"iat": now + 120, "exp": now + 600}), oidc.ErrNotYetValid},
		{"no end", "", a(object{"exp": nil}), oidc.ErrLegacy},
		{"no audience", "", a(object{"aud": nil}), oidc.ErrLegacy},
		{"an empty audience", "", a(object{"aud": []string{}}), oidc.ErrLegacy},
		{"a token of a Secret", "", w.a.sign(w.a.header().json(), object{"iss": "kubernetes/serviceaccount", "sub": subject,
			"kubernetes.io/serviceaccount/namespace": "tunnel-agent"}.json()), oidc.ErrLegacy},
		{"an hour and a minute", "", a(object{"exp": now + 3660}), oidc.ErrLife},
		{"a year", "", a(object{"exp": now + 365*24*3600}), oidc.ErrLife},
		{"the last end there is", "", a(object{"exp": int64(1<<63 - 1)}), oidc.ErrLife},
		{"an end that overflows", "", a(object{"iat": int64(-1 << 63), "nbf": int64(0), "exp": int64(1<<63 - 1)}), oidc.ErrLife},
		{"an end as text", "", a(object{"exp": "2099-01-01"}), oidc.ErrMalformed},
		{"an end with a fraction", "", a(object{"exp": float64(now) + 600.5}), oidc.ErrMalformed},
		{"no begin", "", a(object{"iat": nil}), oidc.ErrMalformed},
		{"no pod", "", a(pod(object{"namespace": "tunnel-agent", "serviceaccount": object{"name": "tunnel-agent", "uid": "1"}})), oidc.ErrNotBound},
		{"bound to a Secret", "", a(pod(object{"namespace": "tunnel-agent", "secret": object{"name": "x", "uid": "1"}})), oidc.ErrNotBound},
	}
}

// keyAttacks are tokens that the keys of another have signed, or of nobody.
func (w *attackWorld) keyAttacks(t testing.TB) []attack {
	good := claims(inCluster).json()
	signed := func(k *key, changes object) string { return k.sign(k.header().with(changes).json(), good) }
	unsigned := func(header object) string {
		return base64.RawURLEncoding.EncodeToString(header.json()) + "." + base64.RawURLEncoding.EncodeToString(good) + "."
	}
	mac := func(secret []byte) string {
		text := strings.TrimSuffix(unsigned(object{"alg": "HS256", "kid": w.a.id}), ".")
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
	}
	real := w.a.token(inCluster, nil)
	return []attack{
		{"another cluster's keys, same issuer", "", signed(w.b, nil), oidc.ErrUnknownKey},
		{"another cluster's keys, this one's name of a key", "", signed(w.b, object{"kid": w.a.id}), oidc.ErrSignature},
		{"another cluster's keys, no name of a key", "", signed(w.b, object{"kid": nil}), oidc.ErrSignature},
		{"another cluster's token", "", w.c.token("https://c.example", nil), oidc.ErrIssuer},
		{"the agent names another cluster with the same issuer", "prod/b", real, oidc.ErrUnknownKey},
		{"the agent names another cluster with another issuer", "prod/c", real, oidc.ErrIssuer},
		{"a cluster that is not registered", "prod/none", real, oidc.ErrNoRegistration},
		{"a stranger's key", "", signed(w.stranger, nil), oidc.ErrUnknownKey},
		{"a stranger's signature", "", signed(w.stranger, object{"kid": w.a.id}), oidc.ErrSignature},
		{"a key's name that is a path", "", signed(w.stranger, object{"kid": "../../../../dev/null"}), oidc.ErrUnknownKey},
		{"a key's name that is a URL", "", signed(w.stranger, object{"kid": w.strangers.URL + "/key"}), oidc.ErrUnknownKey},
		{"a key's name that is a number", "", w.a.sign([]byte(`{"alg":"RS256","kid":7}`), good), oidc.ErrMalformed},
		{"an empty signature", "", strings.Join(strings.Split(real, ".")[:2], ".") + ".", oidc.ErrMalformed},
		{"a signature of another token", "", strings.Join(strings.Split(real, ".")[:2], ".") + "." + strings.Split(signed(w.a, nil), ".")[2], oidc.ErrSignature},
		{"alg none", "", unsigned(object{"alg": "none"}), oidc.ErrMalformed},
		{"alg None, with a signature", "", unsigned(object{"alg": "None"}) + "AAAA", oidc.ErrMalformed},
		{"no alg", "", w.a.sign(object{"kid": w.a.id}.json(), good), oidc.ErrMalformed},
		{"HS256 with the public key as PEM", "", mac(w.a.pem(t)), oidc.ErrMalformed},
		{"HS256 with the public key as DER", "", mac(derOf(t, w.a.Public())), oidc.ErrMalformed},
		{"HS256 with the JWK set", "", mac(jwks(w.a)), oidc.ErrMalformed},
		{"PS256", "", signed(w.a, object{"alg": "PS256"}), oidc.ErrMalformed},
		{"EdDSA", "", signed(w.a, object{"alg": "EdDSA"}), oidc.ErrMalformed},
		{"ES256 with the name of an RSA key", "", w.ec.sign(object{"alg": "ES256", "kid": w.a.id}.json(), good), oidc.ErrUnknownKey},
		{"RS256 with the name of an ECDSA key", "", w.stranger.sign(object{"alg": "RS256", "kid": w.ec.id}.json(), good), oidc.ErrUnknownKey},
		{"RS512 with a key for RS256", "", signed(w.a, object{"alg": "RS512"}), oidc.ErrUnknownKey},
		{"a signature of zeros", "", zeroSignature(w.ec, good), oidc.ErrSignature},
		{"an embedded key", "", signed(w.stranger, object{"jwk": w.stranger.jwk()}), oidc.ErrMalformed},
		{"the URL of a key set", "", signed(w.stranger, object{"jku": w.strangers.URL + "/jwks"}), oidc.ErrMalformed},
		{"the URL of a certificate", "", signed(w.stranger, object{"x5u": w.strangers.URL + "/cert"}), oidc.ErrMalformed},
		{"an embedded certificate", "", signed(w.stranger, object{"x5c": []string{base64.StdEncoding.EncodeToString(w.strangers.Certificate().Raw)}}), oidc.ErrMalformed},
	}
}

// zeroSignature has r = s = 0, with which some libraries verify anything.
func zeroSignature(k *key, payload []byte) string {
	text := k.sign(k.header().json(), payload)
	return text[:strings.LastIndexByte(text, '.')+1] + base64.RawURLEncoding.EncodeToString(make([]byte, 64))
}

// formAttacks are tokens that parsers read in different ways.
func (w *attackWorld) formAttacks(t testing.TB) []attack {
	good := string(claims(inCluster).json())
	header := string(w.a.header().json())
	sign := func(header, payload string) string { return w.a.sign([]byte(header), []byte(payload)) }
	add := func(text, field string) string { return strings.TrimSuffix(text, "}") + "," + field + "}" }
	real := w.a.token(inCluster, nil)
	parts := strings.Split(real, ".")
	padded := base64.URLEncoding.EncodeToString([]byte(header + " "))
	for !strings.HasSuffix(padded, "=") {
		header += " "
		padded = base64.URLEncoding.EncodeToString([]byte(header + " "))
	}
	return []attack{
		{"no token", "", "", oidc.ErrMalformed},
		{"words", "", "let me in", oidc.ErrMalformed},
		{"two parts", "", parts[0] + "." + parts[1], oidc.ErrMalformed},
		{"four parts", "", real + ".AAAA", oidc.ErrMalformed},
		{"a line end after it", "", real + "\n", oidc.ErrMalformed},
		{"a line end in it", "", parts[0] + "." + parts[1][:8] + "\n" + parts[1][8:] + "." + parts[2], oidc.ErrMalformed},
		{"a space before it", "", " " + real, oidc.ErrMalformed},
		{"padding", "", padded + "." + parts[1] + "." + parts[2], oidc.ErrMalformed},
		{"bits after the last byte", "", looseBits(t, real), oidc.ErrMalformed},
		{"another alphabet", "", parts[0] + "." + parts[1] + "." + base64.RawStdEncoding.EncodeToString([]byte("\xff\xff\xfe???")), oidc.ErrMalformed},
		{"8 KiB and more", "", sign(header, add(good, `"x":"`+strings.Repeat("x", 8<<10)+`"`)), oidc.ErrMalformed},
		{"a megabyte", "", strings.Repeat("A", 1<<20), oidc.ErrMalformed},
		{"a megabyte of dots", "", strings.Repeat(".", 1<<20), oidc.ErrMalformed},
		{"JSON that is deep", "", sign(header, strings.Repeat("[", 5000)), oidc.ErrMalformed},
		{"a claim twice", "", sign(header, add(good, `"sub":"`+subject+`"`)), oidc.ErrMalformed},
		{"an audience twice", "", sign(header, add(good, `"aud":["`+audience+`"]`)), oidc.ErrMalformed},
		{"a pod twice", "", sign(header, strings.Replace(good, `"pod":{`, `"pod":{"name":"","uid":""},"pod":{`, 1)), oidc.ErrMalformed},
		{"a claim in capitals", "", sign(header, strings.Replace(good, `"sub":`, `"SUB":`, 1)), oidc.ErrSubject},
		{"a field of the header twice", "", sign(`{"alg":"RS256","alg":"RS256","kid":"`+w.a.id+`"}`, good), oidc.ErrMalformed},
		{"alg in capitals", "", sign(`{"ALG":"RS256","kid":"`+w.a.id+`"}`, good), oidc.ErrMalformed},
		{"crit", "", sign(add(header, `"crit":["exp"]`), good), oidc.ErrMalformed},
		{"b64", "", sign(add(header, `"b64":false,"crit":["b64"]`), good), oidc.ErrMalformed},
		{"zip", "", sign(add(header, `"zip":"DEF"`), good), oidc.ErrMalformed},
		{"an unknown field of the header", "", sign(add(header, `"x":1`), good), oidc.ErrMalformed},
		{"typ of an access token", "", sign(add(header, `"typ":"at+jwt"`), good), oidc.ErrMalformed},
		{"a token in a token", "", sign(add(header, `"cty":"JWT"`), real), oidc.ErrMalformed},
		{"a token in a token, unsaid", "", sign(header, `"`+real+`"`), oidc.ErrMalformed},
		{"an encrypted token", "", encrypted(t, w.a.Public(), good), oidc.ErrMalformed},
		{"the JSON form", "", jsonForm(real), oidc.ErrMalformed},
		{"data after the claims", "", sign(header, good+`{"x":1}`), oidc.ErrMalformed},
		{"data after the header", "", sign(header+`{}`, good), oidc.ErrMalformed},
		{"claims that are a list", "", sign(header, "["+good+"]"), oidc.ErrMalformed},
		{"claims that are null", "", sign(header, "null"), oidc.ErrLegacy},
	}
}

// looseBits sets bits that a lenient decoder ignores.
func looseBits(t testing.TB, token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1]) // of 256 bytes: four bits of it count
	if last%4 != 0 {
		t.Fatalf("the token ends with loose bits: %d", last)
	}
	return token[:len(token)-1] + string(alphabet[last+1])
}

func encrypted(t testing.TB, to crypto.PublicKey, payload string) string {
	t.Helper()
	e, err := jose.NewEncrypter(jose.A128GCM, jose.Recipient{Algorithm: jose.RSA_OAEP_256, Key: to}, nil)
	if err != nil {
		t.Fatal(err)
	}
	jwe, err := e.Encrypt([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwe.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func jsonForm(token string) string {
	parts := strings.Split(token, ".")
	return string(object{"protected": parts[0], "payload": parts[1], "signature": parts[2]}.json())
}

// TestAttacks: each is refused for its own reason, asks no Store and no server, and the
// error holds nothing of the token.
func TestAttacks(t *testing.T) {
	w := newAttackWorld(t)
	w.issuers.Store = brokenStore{t: t}
	for _, test := range w.attacks(t) {
		t.Run(test.name, func(t *testing.T) {
			cluster := test.cluster
			if cluster == "" {
				cluster = "prod/a"
			}
			got, err := w.issuers.Enroll(testContext(t), tunnel.Enrollment{Cluster: cluster, Token: test.token, Key: anyKey})
			if !errors.Is(err, test.want) || got != "" {
				t.Fatalf("got %q, %v; want %v", got, err, test.want)
			}
			var e *tunnel.Error
			if told := errors.As(err, &e); told != slices.Contains(ofTheToken, test.want) || told && (e.Cluster != "" || e.Code != wantCode(test.want)) {
				t.Errorf("got %#v, want the agent to be told what shows in the token, and of no cluster", err)
			}
			for _, part := range strings.Split(test.token, ".") {
				if len(part) > 8 && strings.Contains(err.Error(), part) {
					t.Errorf("the error has a part of the token: %.200v", err)
				}
			}
		})
	}
	if n := w.strangers.fetches.Load(); n != 0 {
		t.Errorf("the attacker's server was asked %d times, want none", n)
	}
}

// ofTheToken are the errors that show in the token itself, whatever is registered.
var ofTheToken = []error{oidc.ErrMalformed, oidc.ErrLegacy, oidc.ErrLife, oidc.ErrNotBound, oidc.ErrExpired, oidc.ErrNotYetValid}

func wantCode(err error) tunnel.Code {
	if err == oidc.ErrExpired {
		return tunnel.CodeTokenExpired
	}
	return tunnel.CodeTokenUnknown
}

// TestNamelessAgent: if several clusters have the issuer, the token says not which one.
func TestNamelessAgent(t *testing.T) {
	w := newAttackWorld(t)
	for _, token := range []string{w.a.token(inCluster, nil), w.a.token("https://nobody.example", nil)} {
		if got, err := w.issuers.Enroll(testContext(t), tunnel.Enrollment{Token: token, Key: anyKey}); !errors.Is(err, oidc.ErrNoRegistration) {
			t.Errorf("got %q, %v; want %v", got, err, oidc.ErrNoRegistration)
		}
	}
}

// TestReplay: a token is good for the key that came first, however its text is changed.
func TestReplay(t *testing.T) {
	w := newAttackWorld(t)
	token := w.ec.token(inCluster, nil)
	enroll := func(s *oidc.Issuers, token, key string) error {
		_, err := s.Enroll(testContext(t), tunnel.Enrollment{Cluster: "prod/a", Token: token, Key: key})
		return err
	}
	store := &tunnel.MemoryStore{}
	w.issuers.Store = store
	for range 2 { // an agent that did not get the answer repeats itself
		if err := enroll(w.issuers, token, "first"); err != nil {
			t.Fatal(err)
		}
	}
	// The token proves the cluster, so that its refusal is one of the cluster.
	if cluster, err := w.issuers.Enroll(testContext(t), tunnel.Enrollment{Cluster: "prod/a", Token: token, Key: "second"}); !errors.Is(err, oidc.ErrUsed) || cluster != "prod/a" {
		t.Errorf("another key: got %q, %v; want prod/a, %v", cluster, err, oidc.ErrUsed)
	}
	if err := enroll(w.issuers, otherSignature(t, w.ec, token), "second"); !errors.Is(err, oidc.ErrUsed) {
		t.Errorf("the token's second signature: got %v, want %v", err, oidc.ErrUsed)
	}
	other := newIssuers(t, pinned("prod/a", w.a, w.ec))
	other.Store = store
	if err := enroll(other, token, "second"); !errors.Is(err, oidc.ErrUsed) {
		t.Errorf("at another replica: got %v, want %v", err, oidc.ErrUsed)
	}
	if err := enroll(other, token, "first"); err != nil {
		t.Errorf("the first key at another replica: %v", err)
	}
	if err := enroll(w.issuers, w.ec.token(inCluster, nil), ""); !errors.Is(err, oidc.ErrUnavailable) {
		t.Errorf("without a key: got %v, want %v", err, oidc.ErrUnavailable)
	}
}

// otherSignature makes the second signature that ECDSA has for the same content.
func otherSignature(t *testing.T, k *key, token string) string {
	dot := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.DecodeString(token[dot+1:])
	if err != nil {
		t.Fatal(err)
	}
	order := k.Public().(*ecdsa.PublicKey).Params().N
	s := new(big.Int).Sub(order, new(big.Int).SetBytes(signature[32:]))
	s.FillBytes(signature[32:])
	return token[:dot+1] + base64.RawURLEncoding.EncodeToString(signature)
}

// TestManyTokens: a cluster that makes tokens without end can't fill the Store.
func TestManyTokens(t *testing.T) {
	k := newECDSA(t, elliptic.P256())
	s := newIssuers(t, pinned("prod/a", k), pinned("prod/b", k))
	at := newClock(s)
	enroll := func(cluster string) error {
		token := k.token(inCluster, object{"iat": at.unix(0), "nbf": at.unix(0), "exp": at.unix(10 * time.Minute)})
		_, err := s.Enroll(testContext(t), tunnel.Enrollment{Cluster: cluster, Token: token, Key: anyKey})
		return err
	}
	for range oidc.MaxUsed {
		if err := enroll("prod/a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := enroll("prod/a"); !errors.Is(err, oidc.ErrUnavailable) {
		t.Errorf("one more: got %v, want %v", err, oidc.ErrUnavailable)
	}
	if err := enroll("prod/b"); err != nil {
		t.Errorf("another cluster: %v", err)
	}
	at.advance(12 * time.Minute)
	if err := enroll("prod/a"); err != nil {
		t.Errorf("once the others have ended: %v", err)
	}
}

// TestBrokenStore: if the Store does not answer, nobody joins, and the agent tries again.
func TestBrokenStore(t *testing.T) {
	w := newAttackWorld(t)
	w.issuers.Store = brokenStore{}
	_, err := w.issuers.Enroll(testContext(t), tunnel.Enrollment{Cluster: "prod/a", Token: w.a.token(inCluster, nil), Key: anyKey})
	var e *tunnel.Error
	if !errors.Is(err, oidc.ErrUnavailable) || !errors.Is(err, errBroken) || !errors.As(err, &e) || e.Code != tunnel.CodeInternal {
		t.Errorf("got %v", err)
	}
}

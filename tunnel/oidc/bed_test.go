package oidc_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/oidc"
)

const (
	audience  = "causeway:test"
	subject   = "system:serviceaccount:tunnel-agent:tunnel-agent"
	inCluster = "https://kubernetes.default.svc.cluster.local" // of most clusters
	anyKey    = "aa"                                           // fingerprint of an agent's key
)

// key signs tokens as a Kubernetes API server does.
type key struct {
	crypto.Signer
	id string
}

func newRSA(t testing.TB) *key {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return withID(t, k)
}

func newECDSA(t testing.TB, curve elliptic.Curve) *key {
	t.Helper()
	k, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return withID(t, k)
}

func withID(t testing.TB, k crypto.Signer) *key {
	sum := sha256.Sum256(derOf(t, k.Public()))
	return &key{k, base64.RawURLEncoding.EncodeToString(sum[:])}
}

func derOf(t testing.TB, public crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func (k *key) pem(t testing.TB) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: derOf(t, k.Public())})
}

// algorithm is the one that Kubernetes uses with the key.
func (k *key) algorithm() string {
	if public, ok := k.Public().(*ecdsa.PublicKey); ok {
		return map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[public.Curve.Params().BitSize]
	}
	return "RS256"
}

// jwk is the public key as an API server shows it.
func (k *key) jwk() object {
	b64 := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	o := object{"use": "sig", "kid": k.id, "alg": k.algorithm()}
	switch public := k.Public().(type) {
	case *rsa.PublicKey:
		o["kty"], o["n"], o["e"] = "RSA", b64(public.N.Bytes()), b64(big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		size := (public.Curve.Params().BitSize + 7) / 8
		point, _ := public.Bytes()
		o["kty"], o["crv"] = "EC", public.Curve.Params().Name
		o["x"], o["y"] = b64(point[1:1+size]), b64(point[1+size:])
	}
	return o
}

func jwks(keys ...*key) []byte {
	list := []object{}
	for _, k := range keys {
		list = append(list, k.jwk())
	}
	return object{"keys": list}.json()
}

type object map[string]any

func (o object) json() []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return text
}

// with returns a copy with other fields; nil removes one.
func (o object) with(changes object) object {
	o = maps.Clone(o)
	for name, value := range changes {
		if value == nil {
			delete(o, name)
		} else {
			o[name] = value
		}
	}
	return o
}

func (k *key) header() object { return object{"alg": k.algorithm(), "kid": k.id} }

// claims are those of a token of the kubelet.
func claims(issuer string) object {
	now := time.Now().Unix()
	return object{
		"iss": issuer, "sub": subject, "aud": []string{audience}, "jti": rand.Text(),
		"iat": now, "nbf": now, "exp": now + 600,
		"kubernetes.io": object{
			"namespace": "tunnel-agent", "serviceaccount": object{"name": "tunnel-agent", "uid": "1"},
			"pod": object{"name": "tunnel-agent-x", "uid": "2"}, "node": object{"name": "n", "uid": "3"},
		},
	}
}

// sign makes a token of any header and payload.
func (k *key) sign(header, payload []byte) string {
	signed := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(payload)
	var h struct{ Alg string }
	json.Unmarshal(header, &h)
	hash := map[string]crypto.Hash{"384": crypto.SHA384, "512": crypto.SHA512}[strings.TrimLeft(h.Alg, "RESP")]
	if hash == 0 {
		hash = crypto.SHA256
	}
	w := hash.New()
	w.Write([]byte(signed))
	var signature []byte
	if private, ok := k.Signer.(*ecdsa.PrivateKey); ok {
		r, s, err := ecdsa.Sign(rand.Reader, private, w.Sum(nil))
		if err != nil {
			panic(err)
		}
		size := (private.Curve.Params().BitSize + 7) / 8
		signature = append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
	} else {
		var err error
		if signature, err = k.Sign(rand.Reader, w.Sum(nil), hash); err != nil {
			panic(err)
		}
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// token is one that the issuer makes for the agent, with changes.
func (k *key) token(issuer string, changes object) string {
	return k.sign(k.header().json(), claims(issuer).with(changes).json())
}

// issuerServer has the issuers https://HOST/NAME. Each answers as its handler says.
type issuerServer struct {
	*httptest.Server
	fetches atomic.Int64 // of any path

	mu       sync.Mutex
	handlers map[string]http.HandlerFunc // by path
}

func newIssuerServer(t testing.TB) *issuerServer {
	s := &issuerServer{handlers: map[string]http.HandlerFunc{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fetches.Add(1)
		s.mu.Lock()
		h := s.handlers[r.URL.Path]
		s.mu.Unlock()
		if h == nil {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}))
	s.Server.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *issuerServer) handle(path string, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[path] = h
}

func answer(text []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(text) }
}

// add makes an issuer with keys, or replaces its keys, and returns its URL.
func (s *issuerServer) add(name string, keys ...*key) string {
	url := s.URL + "/" + name
	s.handle("/"+name+"/.well-known/openid-configuration",
		answer(object{"issuer": url, "jwks_uri": url + "/openid/v1/jwks", "id_token_signing_alg_values_supported": []string{"RS256"}}.json()))
	s.handle("/"+name+"/openid/v1/jwks", answer(jwks(keys...)))
	return url
}

// registration is one whose keys are fetched.
func (s *issuerServer) registration(cluster, url string) oidc.Registration {
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return oidc.Registration{Cluster: cluster, Issuer: url, Audience: audience, Subjects: []string{subject}, RootCAs: roots}
}

// pinned is a registration with the keys in it.
func pinned(cluster string, keys ...*key) oidc.Registration {
	return oidc.Registration{Cluster: cluster, Issuer: inCluster, Audience: audience, Subjects: []string{subject}, Keys: jwks(keys...)}
}

func newIssuers(t testing.TB, registrations ...oidc.Registration) *oidc.Issuers {
	t.Helper()
	s := &oidc.Issuers{}
	for _, r := range registrations {
		if err := s.Register(r); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// clock is one that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock(s *oidc.Issuers) *clock {
	c := &clock{now: time.Now()}
	s.SetClock(func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.now
	})
	return c
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// unix is the time of the clock, d later.
func (c *clock) unix(d time.Duration) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now.Add(d).Unix()
}

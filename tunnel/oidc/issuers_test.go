package oidc_test

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/oidc"
)

func TestEnroll(t *testing.T) {
	rsaKey, p256 := newRSA(t), newECDSA(t, elliptic.P256())
	p384, p521 := newECDSA(t, elliptic.P384()), newECDSA(t, elliptic.P521())
	s := newIssuers(t,
		pinned("prod/rsa", rsaKey), pinned("prod/p256", p256), pinned("prod/p384", p384), pinned("prod/p521", p521),
		oidc.Registration{Cluster: "prod/pem", Issuer: inCluster, Audience: audience, Subjects: []string{subject}, Keys: rsaKey.pem(t)},
		oidc.Registration{Cluster: "prod/unique", Issuer: "https://unique.example", Audience: audience, Subjects: []string{subject}, Keys: jwks(rsaKey)},
		oidc.Registration{Cluster: "prod/audience", Issuer: inCluster, Audience: "mine", Subjects: []string{"x", subject}, Keys: jwks(rsaKey, p256)})
	withHeader := func(k *key, changes object) string {
		return k.sign(k.header().with(changes).json(), claims(inCluster).json())
	}
	now := time.Now().Unix()
	for _, test := range []struct{ name, cluster, token, want string }{
		{"RS256", "prod/rsa", rsaKey.token(inCluster, nil), "prod/rsa"},
		{"RS512", "prod/pem", withHeader(rsaKey, object{"alg": "RS512"}), "prod/pem"},
		{"ES256", "prod/p256", p256.token(inCluster, nil), "prod/p256"},
		{"ES384", "prod/p384", p384.token(inCluster, nil), "prod/p384"},
		{"ES512", "prod/p521", p521.token(inCluster, nil), "prod/p521"},
		{"PEM has the key's name", "prod/pem", rsaKey.token(inCluster, nil), "prod/pem"},
		{"no name of a key", "prod/rsa", withHeader(rsaKey, object{"kid": nil}), "prod/rsa"},
		{"no name of a key, two keys", "prod/audience", p256.sign(object{"alg": "ES256"}.json(), claims(inCluster).with(object{"aud": []string{"mine"}}).json()), "prod/audience"},
		{"typ", "prod/rsa", withHeader(rsaKey, object{"typ": "JWT"}), "prod/rsa"},
		{"an issuer that one cluster has", "", rsaKey.token("https://unique.example", nil), "prod/unique"},
		{"within the leeway", "prod/rsa", rsaKey.token(inCluster, object{"iat": now - 650, "nbf": now - 650, "exp": now - 50}), "prod/rsa"},
		{"a fast clock", "prod/rsa", rsaKey.token(inCluster, object{"iat": now + 50, "nbf": now + 50, "exp": now + 650}), "prod/rsa"},
		{"an hour", "prod/rsa", rsaKey.token(inCluster, object{"exp": claims("")["iat"].(int64) + 3600}), "prod/rsa"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := s.Enroll(testContext(t), tunnel.Enrollment{Cluster: test.cluster, Token: test.token, Key: anyKey})
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestRegister(t *testing.T) {
	good := newRSA(t)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	large, _ := pki.NewCA("large").LargeRSA()
	many := make([]*key, 33)
	for n := range many {
		many[n] = good
	}
	change := func(f func(r *oidc.Registration)) oidc.Registration {
		r := pinned("prod/a", good)
		f(&r)
		return r
	}
	keys := func(text string) oidc.Registration {
		return change(func(r *oidc.Registration) { r.Keys = []byte(text) })
	}
	issuer := func(url string) oidc.Registration {
		return change(func(r *oidc.Registration) { r.Keys, r.Issuer = nil, url })
	}
	for _, test := range []struct {
		name string
		r    oidc.Registration
		want string // part of the error
	}{
		{"no cluster", change(func(r *oidc.Registration) { r.Cluster = "" }), "field Cluster is required"},
		{"no issuer", change(func(r *oidc.Registration) { r.Issuer = "" }), "field Issuer: it is required"},
		{"no subject", change(func(r *oidc.Registration) { r.Subjects = nil }), "field Subjects: it is required"},
		{"an empty subject", change(func(r *oidc.Registration) { r.Subjects = []string{subject, ""} }), "no entry may be empty"},
		{"no key", keys(`{"keys":[]}`), "field Keys: there is no key in it"},
		{"not keys", keys("x"), "neither a JWK set nor PEM"},
		{"empty", keys(""), "neither a JWK set nor PEM"},
		{"a symmetric key", keys(`{"keys":[{"kty":"oct","k":"AAAA"}]}`), "there is no key in it"},
		{"a small key", keys(string(jwks(withID(t, small)))), "there is no key in it"},
		{"a large key", keys(string(large)), "there is no key in it"},
		{"a private key that is not checked", keys(`{"keys":[{"kty":"RSA","e":"AQAB","n":"AQAB","d":"AQAB"}]}`), "it has a private key"},
		{"a private key", keys("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), `a block "PRIVATE KEY"`},
		{"too many keys", keys(string(jwks(many...))), "33 keys, and 32 is the most"},
		{"http", issuer("http://issuer.example"), "field Issuer: without Keys"},
		{"a user", issuer("https://u:p@issuer.example"), "no user, query or fragment"},
		{"a query", issuer("https://issuer.example?a=b"), "no user, query or fragment"},
		{"a fragment", issuer("https://issuer.example/#"), "no user, query or fragment"},
		{"no host", issuer("https:///x"), "no user, query or fragment"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := newIssuers(t).Register(test.r)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "u:p") {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	silent := pinned("prod/a", good)
	silent.Audience = ""
	if err := newIssuers(t).Register(silent); err == nil || !strings.Contains(err.Error(), "field Audience") {
		t.Errorf("without an audience: %v", err)
	}
}

// TestRemove: what was removed, or replaced, counts at once.
func TestRemove(t *testing.T) {
	was, is := newRSA(t), newRSA(t)
	s := newIssuers(t, pinned("prod/a", was))
	enroll := func(k *key) error {
		_, err := s.Enroll(testContext(t), tunnel.Enrollment{Cluster: "prod/a", Token: k.token(inCluster, nil), Key: anyKey})
		return err
	}
	if err := enroll(was); err != nil {
		t.Fatal(err)
	}
	if err := s.Register(pinned("prod/a", is)); err != nil {
		t.Fatal(err)
	}
	if err := enroll(was); !errors.Is(err, oidc.ErrUnknownKey) {
		t.Errorf("a replaced key: %v", err)
	}
	if err := enroll(is); err != nil {
		t.Error(err)
	}
	s.Remove("prod/a")
	if err := enroll(is); !errors.Is(err, oidc.ErrNoRegistration) {
		t.Errorf("a removed cluster: %v", err)
	}
}

package kubeconfig_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

func write(t testing.TB, config *clientcmdapi.Config) []byte {
	t.Helper()
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func built(t testing.TB, spec kubeconfig.Spec) []byte {
	t.Helper()
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	return write(t, config)
}

func userOf(t testing.TB, data []byte) *clientcmdapi.AuthInfo {
	t.Helper()
	config, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	return config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
}

// renewed merges, and says whether the client certificate is another.
func renewed(t testing.TB, existing []byte, spec kubeconfig.Spec) (data []byte, renewed bool) {
	t.Helper()
	data = merged(t, existing, spec)
	was, is := userOf(t, existing), userOf(t, data)
	return data, !bytes.Equal(was.ClientCertificateData, is.ClientCertificateData)
}

// TestMergeChanges: what is the same in other words is not written.
func TestMergeChanges(t *testing.T) {
	ca, other := pki.NewCAWith(nil, nil), pki.NewCAWith(nil, nil)
	leaf, leafKey := ca.Issue("someone", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(24 * time.Hour) })
	signer := func(s *kubeconfig.Spec, a *pki.CA) { s.Credentials.CAKey = a.KeyPEM() }
	token := kubeconfig.Credentials{Token: "t"}
	pair := kubeconfig.Credentials{Certificate: pki.CertPEM(leaf), Key: pki.KeyPEM(leafKey)}
	for _, test := range []struct {
		name             string
		have             func(*kubeconfig.Spec)
		spec             func(*kubeconfig.Spec)
		changed, renewed bool
	}{
		{"none", nil, nil, false, false},
		{"nothing asked", nil, func(s *kubeconfig.Spec) { *s = kubeconfig.Spec{} }, false, false},
		{"another CA", nil, func(s *kubeconfig.Spec) { s.CA = other.CertPEM(); signer(s, other) }, true, true},
		{"another CA without its key", nil, func(s *kubeconfig.Spec) { s.CA = other.CertPEM(); s.Credentials = kubeconfig.Credentials{} }, true, false},
		{"a CA more, the old one signs", nil, func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(other.Cert, ca.Cert) }, true, false},
		{"a CA more, the new one signs", nil, func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(other.Cert, ca.Cert); signer(s, other) }, true, false},
		{"the CAs in another order", func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(other.Cert, ca.Cert) }, func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(ca.Cert, other.Cert) }, false, false},
		{"the old CA goes", func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(ca.Cert, other.Cert) }, func(s *kubeconfig.Spec) { s.CA = other.CertPEM(); signer(s, other) }, true, true},
		{"issued by another, the CA is right", func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(other.Cert, ca.Cert) }, func(s *kubeconfig.Spec) { s.CA = nil; signer(s, other) }, false, false},
		{"a token is asked for", nil, func(s *kubeconfig.Spec) { s.Credentials = token }, true, true},
		{"a token is there", func(s *kubeconfig.Spec) { s.Credentials = token }, func(s *kubeconfig.Spec) { s.Credentials = token }, false, false},
		{"a pair is given", nil, func(s *kubeconfig.Spec) { s.Credentials = pair }, true, true},
		{"a pair is there", func(s *kubeconfig.Spec) { s.Credentials = pair }, func(s *kubeconfig.Spec) { s.Credentials = pair }, false, false},
		{"another endpoint", nil, func(s *kubeconfig.Spec) { s.Endpoint.Port++ }, true, false},
		{"one more endpoint", nil, func(s *kubeconfig.Spec) { s.MoreEndpoints = []kubeconfig.Endpoint{{Host: "b.test", Port: 1}} }, true, false},
		{"the same endpoints", func(s *kubeconfig.Spec) { s.MoreEndpoints = []kubeconfig.Endpoint{{Host: "b.test", Port: 1}} }, func(s *kubeconfig.Spec) {
			s.MoreEndpoints = []kubeconfig.Endpoint{s.Endpoint, {Host: "b.test", Port: 1}}
		}, false, false},
		{"the same, IPv6 in other letters", func(s *kubeconfig.Spec) { s.Endpoint.Host = "2001:db8::1" }, func(s *kubeconfig.Spec) { s.Endpoint.Host = "2001:DB8:0::1" }, false, false},
		{"a proxy", nil, func(s *kubeconfig.Spec) { s.Route.ProxyURL = "http://p" }, true, false},
		{"a header", func(s *kubeconfig.Spec) { s.Route.ProxyURL = "http://p" }, func(s *kubeconfig.Spec) {
			s.Route = kubeconfig.Route{ProxyURL: "http://p", Header: map[string][]string{"X-Tenant": {"blue"}}}
		}, true, false},
		{"the proxy stays", func(s *kubeconfig.Spec) { s.Route.ProxyURL = "http://p" }, nil, false, false},
		{"the proxy goes", func(s *kubeconfig.Spec) { s.Route.ProxyURL = "http://p" }, func(s *kubeconfig.Spec) { s.Route.Direct = true }, true, false},
		{"a name", nil, func(s *kubeconfig.Spec) { s.TLSServerName = "x.test" }, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			have, spec := kubetest.Spec(ca), kubetest.Spec(ca)
			if test.have != nil {
				test.have(&have)
				spec.Endpoint, spec.CA = have.Endpoint, have.CA
			}
			if test.spec != nil {
				test.spec(&spec)
			}
			existing := built(t, have)
			data, renewed := renewed(t, existing, spec)
			if changed := &data[0] != &existing[0]; changed != test.changed || renewed != test.renewed {
				t.Errorf("got changed %t, certificate renewed %t; want %t, %t", changed, renewed, test.changed, test.renewed)
			}
		})
	}
}

// Cluster API renews a certificate of a year with less than 4380 hours left.
func TestMergeRenewsAtHalfLife(t *testing.T) {
	const hour, year = time.Hour, 8760 * time.Hour
	for _, test := range []struct {
		name        string
		begin, life time.Duration // begin is in the past
		at          time.Duration // the age of the certificate
		want        bool
	}{
		{"a year, half of it", 0, year, 4380 * hour, false},
		{"a year, past half of it", 0, year, 4380*hour + time.Second, true},
		{"a year, which began with the CA", 5 * year, 6 * year, 4380 * hour, false},
		{"a year, which began with the CA, past half", 5 * year, 6 * year, 4380*hour + time.Second, true},
		{"ten years", 0, 10 * year, 9 * year, false},
		{"ten years, half a year left", 0, 10 * year, 9*year + 4380*hour + time.Second, true},
		{"a day, half of it", 0, 24 * hour, 12 * hour, false},
		{"a day, past half of it", 0, 24 * hour, 12*hour + time.Second, true},
		{"expired", 0, 24 * hour, 25 * hour, true},
		{"not valid yet", -hour, year, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ca := pki.NewCAWith(nil, func(c *x509.Certificate) {
					c.NotBefore, c.NotAfter = start.Add(-7*year), start.Add(50*year)
				})
				leaf, key := ca.Issue("kubernetes-admin", func(c *x509.Certificate) {
					c.Subject.Organization = []string{"system:masters"}
					c.NotBefore = start.Add(-test.begin)
					c.NotAfter = c.NotBefore.Add(test.life)
				})
				have := kubetest.Spec(ca)
				have.Credentials = kubeconfig.Credentials{AuthInfo: &clientcmdapi.AuthInfo{ClientCertificateData: pki.CertPEM(leaf), ClientKeyData: pki.KeyPEM(key)}}
				existing := built(t, have)
				time.Sleep(test.at)

				data, got := renewed(t, existing, kubetest.Spec(ca))
				if got != test.want {
					t.Errorf("certificate renewed: got %t, want %t", got, test.want)
				}
				if _, again := renewed(t, data, kubetest.Spec(ca)); again {
					t.Error("renewed once more")
				}
				// Without the CA's key it stays.
				spec := kubetest.Spec(ca)
				spec.Credentials = kubeconfig.Credentials{}
				if _, got := renewed(t, existing, spec); got {
					t.Error("renewed without a key")
				}
			})
		})
	}
}

// A certificate that ends with its CA is renewed once more at most.
func TestMergeNearTheEndOfCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		ca := pki.NewCAWith(nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(1000 * day) })
		spec := kubetest.Spec(ca)
		data := built(t, spec)
		renewals := 0
		for range 100 {
			time.Sleep(9 * day)
			next, other := renewed(t, data, spec)
			if data = next; other {
				renewals++
			}
		}
		if renewals != 4 {
			t.Errorf("got %d renewals in 900 of 1000 days, want 4", renewals)
		}
		time.Sleep(101 * day)
		if _, err := kubeconfig.Merge(data, spec); !errors.As(err, new(*kubeconfig.FieldError)) {
			t.Errorf("the CA has ended: got %v", err)
		}
		// The CA renewed with its key signs again.
		spec.CA = pki.NewCAWith(ca.Key, nil).CertPEM()
		if _, other := renewed(t, data, spec); !other {
			t.Error("not renewed by the new CA")
		}
	})
}

// A new CA is worth a new certificate, though it ends before the old one.
func TestMergeToACAThatEnds(t *testing.T) {
	old := pki.NewCAWith(nil, nil)
	ending := pki.NewCAWith(nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(1000 * time.Hour) })
	leaf, key := old.Issue("kubernetes-admin", func(c *x509.Certificate) {
		c.Subject.Organization = []string{"system:masters"}
		c.NotBefore, c.NotAfter = time.Now().Add(-8000*time.Hour), time.Now().Add(2000*time.Hour)
	})
	have := kubetest.Spec(old)
	have.Credentials = kubeconfig.Credentials{Certificate: pki.CertPEM(leaf), Key: pki.KeyPEM(key)}
	if _, other := renewed(t, built(t, have), kubetest.Spec(ending)); !other {
		t.Error("not renewed")
	}
}

func TestMergeBrokenCertificate(t *testing.T) {
	ca := pki.NewCAWith(nil, nil)
	spec := kubetest.Spec(ca)
	for name, change := range map[string]func(*clientcmdapi.AuthInfo){
		"no certificate": func(u *clientcmdapi.AuthInfo) { u.ClientCertificateData = []byte("x") },
		"no key":         func(u *clientcmdapi.AuthInfo) { u.ClientKeyData = nil },
		"another key":    func(u *clientcmdapi.AuthInfo) { u.ClientKeyData = pki.KeyPEM(pki.NewKey()) },
	} {
		config, err := spec.Build()
		if err != nil {
			t.Fatal(err)
		}
		change(config.AuthInfos["c1-admin"])
		if _, other := renewed(t, write(t, config), spec); !other {
			t.Errorf("%s: not renewed", name)
		}
	}
}

// An administrator's certificate that will do is kept by Merge; another is not.
func TestMergeCAKey(t *testing.T) {
	ca, other := pki.NewCAWith(nil, nil), pki.NewCAWith(nil, nil)
	spec := kubetest.Spec(ca)
	good := built(t, spec)
	if got := merged(t, good, spec); &got[0] != &good[0] {
		t.Error("a good certificate was replaced")
	}
	someone, someonesKey := ca.Issue("someone", nil)
	old, oldKey := ca.Issue("kubernetes-admin", func(c *x509.Certificate) {
		c.Subject.Organization, c.NotAfter = []string{"system:masters"}, time.Now().Add(-time.Minute)
	})
	for name, credentials := range map[string]*clientcmdapi.AuthInfo{
		"token":      {Token: "t"},
		"nothing":    {},
		"someone":    {ClientCertificateData: pki.CertPEM(someone), ClientKeyData: pki.KeyPEM(someonesKey)},
		"expired":    {ClientCertificateData: pki.CertPEM(old), ClientKeyData: pki.KeyPEM(oldKey)},
		"another CA": userOf(t, built(t, kubetest.Spec(other))),
		"both":       func() *clientcmdapi.AuthInfo { u := userOf(t, good).DeepCopy(); u.Token = "t"; return u }(),
	} {
		have := spec
		have.Credentials = kubeconfig.Credentials{AuthInfo: credentials}
		user := userOf(t, merged(t, built(t, have), spec))
		if kept := bytes.Equal(user.ClientCertificateData, credentials.ClientCertificateData); kept != (name == "both") {
			t.Errorf("%s: the certificate was kept: %t", name, kept)
		}
		if user.Token != "" {
			t.Errorf("%s: the token was kept", name)
		}
		checkIssued(t, user, ca)
	}
	// The CA that is there does.
	spec.CA = nil
	if got := merged(t, good, spec); &got[0] != &good[0] {
		t.Error("without Spec.CA, a good certificate was replaced")
	}
}

func checkIssued(t *testing.T, user *clientcmdapi.AuthInfo, ca *pki.CA) {
	t.Helper()
	block, _ := pem.Decode(user.ClientCertificateData)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := cert.CheckSignatureFrom(ca.Cert); err != nil || cert.Subject.CommonName != "kubernetes-admin" {
		t.Errorf("got %s (%v), want one that the CA issued", cert.Subject, err)
	}
}

package kubeconfig_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

const (
	certificateLife    = kubeconfig.TriggerCertificateLife
	caExpires          = kubeconfig.TriggerCAExpires
	caChanged          = kubeconfig.TriggerCAChanged
	credentialsChanged = kubeconfig.TriggerCredentialsChanged
	endpointChanged    = kubeconfig.TriggerEndpointChanged
	routeChanged       = kubeconfig.TriggerRouteChanged
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

// rotated checks what holds for every Rotate and returns the kubeconfig and
// whether the client certificate is another.
func rotated(t testing.TB, existing []byte, spec kubeconfig.Spec, want ...kubeconfig.RotationTrigger) (data []byte, renewed bool) {
	t.Helper()
	before := bytes.Clone(existing)
	needs, err := kubeconfig.NeedsRotation(existing, spec)
	if err != nil {
		t.Fatal(err)
	}
	data, reasons, err := kubeconfig.Rotate(existing, spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range [][]kubeconfig.RotationTrigger{needs, reasons} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("reasons (-want +got):\n%s", diff)
		}
	}
	if !bytes.Equal(before, existing) {
		t.Error("Rotate wrote into what it was given")
	}
	if len(want) == 0 && &data[0] != &existing[0] {
		t.Errorf("without a reason, it changes:\n%s", cmp.Diff(string(existing), string(data)))
	}
	again, _, err := kubeconfig.Rotate(data, spec)
	if err != nil || &again[0] != &data[0] {
		t.Errorf("rotated again, it changes (%v):\n%s", err, cmp.Diff(string(data), string(again)))
	}
	was, is := userOf(t, existing), userOf(t, data)
	return data, !bytes.Equal(was.ClientCertificateData, is.ClientCertificateData)
}

func TestRotateReasons(t *testing.T) {
	ca, other := pki.NewCAWith(nil, nil), pki.NewCAWith(nil, nil)
	leaf, leafKey := ca.Issue("someone", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(24 * time.Hour) })
	signer := func(s *kubeconfig.Spec, a *pki.CA) { s.Credentials.CAKey = a.KeyPEM() }
	token := kubeconfig.Credentials{Token: "t"}
	stray, strayKey := other.Issue("someone", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(24 * time.Hour) })
	otherPair := kubeconfig.Credentials{Certificate: pki.CertPEM(stray), Key: pki.KeyPEM(strayKey)}
	pair := kubeconfig.Credentials{Certificate: pki.CertPEM(leaf), Key: pki.KeyPEM(leafKey)}
	for _, test := range []struct {
		name    string
		have    func(*kubeconfig.Spec)
		spec    func(*kubeconfig.Spec)
		want    []kubeconfig.RotationTrigger
		renewed bool
	}{
		{"none", nil, nil, nil, false},
		{"nothing asked", nil, func(s *kubeconfig.Spec) { *s = kubeconfig.Spec{} }, nil, false},
		{"another algorithm is no reason", nil, func(s *kubeconfig.Spec) { s.Credentials.KeyAlgorithm = kubeconfig.RSA2048 }, nil, false},
		{"another CA", nil, func(s *kubeconfig.Spec) { s.CA = other.CertPEM(); signer(s, other) }, []kubeconfig.RotationTrigger{caChanged}, true},
		{"another CA without its key", nil, func(s *kubeconfig.Spec) { s.CA = other.CertPEM(); s.Credentials = kubeconfig.Credentials{} }, []kubeconfig.RotationTrigger{caChanged}, false},
		{"another CA, a token", func(s *kubeconfig.Spec) { s.Credentials = token }, func(s *kubeconfig.Spec) { s.CA = other.CertPEM(); signer(s, other) }, []kubeconfig.RotationTrigger{caChanged}, false},
		{"a CA more, the old one signs", nil, func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(other.Cert, ca.Cert) }, []kubeconfig.RotationTrigger{caChanged}, false},
		{"a CA more, the new one signs", nil, func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(other.Cert, ca.Cert); signer(s, other) }, []kubeconfig.RotationTrigger{caChanged}, false},
		{"the CAs in another order", func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(other.Cert, ca.Cert) }, func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(ca.Cert, other.Cert) }, nil, false},
		{"the old CA goes", func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(ca.Cert, other.Cert) }, func(s *kubeconfig.Spec) { s.CA = other.CertPEM(); signer(s, other) }, []kubeconfig.RotationTrigger{caChanged}, true},
		{"issued by another, the CA is right", func(s *kubeconfig.Spec) { s.CA = pki.CertPEM(other.Cert, ca.Cert) }, func(s *kubeconfig.Spec) { s.CA = nil; signer(s, other) }, nil, false},
		{"issued by another, the CA is the same", func(s *kubeconfig.Spec) { s.Credentials = otherPair }, nil, []kubeconfig.RotationTrigger{caChanged}, true},
		{"a token is asked for", nil, func(s *kubeconfig.Spec) { s.Credentials = token }, []kubeconfig.RotationTrigger{credentialsChanged}, true},
		{"a token is there", func(s *kubeconfig.Spec) { s.Credentials = token }, func(s *kubeconfig.Spec) { s.Credentials = token }, nil, false},
		{"a token stays", func(s *kubeconfig.Spec) { s.Credentials = token }, nil, nil, false},
		{"files stay", func(s *kubeconfig.Spec) {
			s.Credentials = kubeconfig.Credentials{AuthInfo: &clientcmdapi.AuthInfo{ClientCertificate: "/c", ClientKey: "/k"}}
		}, nil, nil, false},
		{"a pair is given", nil, func(s *kubeconfig.Spec) { s.Credentials = pair }, []kubeconfig.RotationTrigger{credentialsChanged}, true},
		{"a pair is there", func(s *kubeconfig.Spec) { s.Credentials = pair }, func(s *kubeconfig.Spec) { s.Credentials = pair }, nil, false},
		{"another's pair stays", func(s *kubeconfig.Spec) { s.Credentials = pair }, nil, nil, false},
		{"another endpoint", nil, func(s *kubeconfig.Spec) { s.Endpoint.Port++ }, []kubeconfig.RotationTrigger{endpointChanged}, false},
		{"one more endpoint", nil, func(s *kubeconfig.Spec) { s.MoreEndpoints = []kubeconfig.Endpoint{{Host: "b.test", Port: 1}} }, []kubeconfig.RotationTrigger{endpointChanged}, false},
		{"the same endpoints", func(s *kubeconfig.Spec) { s.MoreEndpoints = []kubeconfig.Endpoint{{Host: "b.test", Port: 1}} }, func(s *kubeconfig.Spec) {
			s.MoreEndpoints = []kubeconfig.Endpoint{s.Endpoint, {Host: "b.test", Port: 1}}
		}, nil, false},
		{"the same, IPv6 in other letters", func(s *kubeconfig.Spec) { s.Endpoint.Host = "2001:db8::1" }, func(s *kubeconfig.Spec) { s.Endpoint.Host = "2001:DB8:0::1" }, nil, false},
		{"a proxy", nil, func(s *kubeconfig.Spec) { s.Route.ProxyURL = "http://p" }, []kubeconfig.RotationTrigger{routeChanged}, false},
		{"a header", func(s *kubeconfig.Spec) { s.Route.ProxyURL = "http://p" }, func(s *kubeconfig.Spec) {
			s.Route = kubeconfig.Route{ProxyURL: "http://p", Header: map[string][]string{"X-Tenant": {"blue"}}}
		}, []kubeconfig.RotationTrigger{routeChanged}, false},
		{"the proxy stays", func(s *kubeconfig.Spec) { s.Route.ProxyURL = "http://p" }, nil, nil, false},
		{"the proxy goes", func(s *kubeconfig.Spec) { s.Route.ProxyURL = "http://p" }, func(s *kubeconfig.Spec) { s.Route.Direct = true }, []kubeconfig.RotationTrigger{routeChanged}, false},
		{"a name", nil, func(s *kubeconfig.Spec) { s.TLSServerName = "x.test" }, []kubeconfig.RotationTrigger{routeChanged}, false},
		{"all at once", nil, func(s *kubeconfig.Spec) {
			s.CA = other.CertPEM()
			signer(s, other)
			s.Endpoint.Port++
			s.Route.ProxyURL = "http://p"
		}, []kubeconfig.RotationTrigger{caChanged, endpointChanged, routeChanged}, true},
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
			_, renewed := rotated(t, built(t, have), spec, test.want...)
			if renewed != test.renewed {
				t.Errorf("certificate renewed: got %t, want %t", renewed, test.renewed)
			}
		})
	}
}

// Cluster API renews a certificate of a year with less than 4380 hours left.
func TestRotateAtHalfLife(t *testing.T) {
	const hour, year = time.Hour, 8760 * time.Hour
	for _, test := range []struct {
		name        string
		begin, life time.Duration // begin is in the past
		at          time.Duration // the age of the certificate
		want        []kubeconfig.RotationTrigger
	}{
		{"a year, half of it", 0, year, 4380 * hour, nil},
		{"a year, past half of it", 0, year, 4380*hour + time.Second, []kubeconfig.RotationTrigger{certificateLife}},
		{"a year, which began with the CA", 5 * year, 6 * year, 4380 * hour, nil},
		{"a year, which began with the CA, past half", 5 * year, 6 * year, 4380*hour + time.Second, []kubeconfig.RotationTrigger{certificateLife}},
		{"ten years", 0, 10 * year, 9 * year, nil},
		{"ten years, half a year left", 0, 10 * year, 9*year + 4380*hour + time.Second, []kubeconfig.RotationTrigger{certificateLife}},
		{"a day, half of it", 0, 24 * hour, 12 * hour, nil},
		{"a day, past half of it", 0, 24 * hour, 12*hour + time.Second, []kubeconfig.RotationTrigger{certificateLife}},
		{"expired", 0, 24 * hour, 25 * hour, []kubeconfig.RotationTrigger{certificateLife}},
		{"not valid yet", -hour, year, 0, []kubeconfig.RotationTrigger{certificateLife}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ca := pki.NewCAWith(nil, func(c *x509.Certificate) {
					c.NotBefore, c.NotAfter = start.Add(-7*year), start.Add(50*year)
				})
				leaf, key := ca.Issue("kubernetes-admin", func(c *x509.Certificate) {
					c.NotBefore = start.Add(-test.begin)
					c.NotAfter = c.NotBefore.Add(test.life)
				})
				have := kubetest.Spec(ca)
				have.Credentials = kubeconfig.Credentials{AuthInfo: &clientcmdapi.AuthInfo{ClientCertificateData: pki.CertPEM(leaf), ClientKeyData: pki.KeyPEM(key)}}
				existing := built(t, have)
				time.Sleep(test.at)

				data, renewed := rotated(t, existing, kubetest.Spec(ca), test.want...)
				if renewed != (test.want != nil) {
					t.Errorf("certificate renewed: got %t, want %t", renewed, test.want != nil)
				}
				if renewed {
					rotated(t, data, kubetest.Spec(ca)) // no reason any more
				}
				// Who can't sign is told, and nothing is written.
				spec := kubetest.Spec(ca)
				spec.Credentials = kubeconfig.Credentials{}
				if _, renewed := rotated(t, existing, spec, test.want...); renewed {
					t.Error("renewed without a key")
				}
			})
		})
	}
}

// A certificate that ends with its CA is renewed once more at most.
func TestRotateNearTheEndOfCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		ca := pki.NewCAWith(nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(1000 * 24 * hour) })
		spec := kubetest.Spec(ca)
		data := built(t, spec)
		renewals, expires := 0, false
		for range 100 {
			time.Sleep(9 * 24 * hour)
			needs, err := kubeconfig.NeedsRotation(data, spec)
			if err != nil {
				t.Fatal(err)
			}
			next, renewed := rotated(t, data, spec, needs...)
			if data = next; renewed {
				renewals++
			}
			expires = expires || len(needs) == 1 && needs[0] == caExpires
			if expires && (renewed || len(needs) != 1 || needs[0] != caExpires) {
				t.Fatalf("after CAExpires: %v, renewed %t", needs, renewed)
			}
		}
		if renewals < 3 || renewals > 5 || !expires {
			t.Errorf("got %d renewals in 900 of 1000 days, CAExpires %t; want 4 and true", renewals, expires)
		}
		time.Sleep(101 * 24 * hour)
		if _, err := kubeconfig.NeedsRotation(data, spec); !errors.As(err, new(*kubeconfig.FieldError)) {
			t.Errorf("the CA has ended: got %v", err)
		}
		// The CA renewed with its key signs again.
		renewed := pki.NewCAWith(ca.Key, nil)
		spec.CA = renewed.CertPEM()
		if _, other := rotated(t, data, spec, certificateLife, caChanged); !other {
			t.Error("not renewed by the new CA")
		}
	})
}

// A new CA is worth a new certificate, though it ends before the old one.
func TestRotateToACAThatEnds(t *testing.T) {
	old := pki.NewCAWith(nil, nil)
	ending := pki.NewCAWith(nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(1000 * time.Hour) })
	leaf, key := old.Issue("kubernetes-admin", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-8000*time.Hour), time.Now().Add(2000*time.Hour)
	})
	have := kubetest.Spec(old)
	have.Credentials = kubeconfig.Credentials{Certificate: pki.CertPEM(leaf), Key: pki.KeyPEM(key)}
	spec := kubetest.Spec(ending)
	data, renewed := rotated(t, built(t, have), spec, certificateLife, caChanged)
	if !renewed {
		t.Error("not renewed")
	}
	rotated(t, data, spec)
}

func TestRotateBrokenCertificate(t *testing.T) {
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
		if _, renewed := rotated(t, write(t, config), spec, certificateLife); !renewed {
			t.Errorf("%s: not renewed", name)
		}
	}
}

func TestRotateAlgorithms(t *testing.T) {
	ca := pki.NewCAWith(nil, nil)
	for _, algorithm := range []kubeconfig.KeyAlgorithm{"", kubeconfig.RSA2048, kubeconfig.RSA3072, kubeconfig.RSA4096, kubeconfig.ECDSAP256, kubeconfig.ECDSAP384} {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ca := pki.NewCAWith(ca.Key, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(100000 * time.Hour) })
				spec := kubetest.Spec(ca)
				spec.Credentials.KeyAlgorithm = algorithm
				data := built(t, spec)
				rotated(t, data, spec)
				spec.Credentials.KeyAlgorithm = kubeconfig.ECDSAP256 // quick to make
				time.Sleep(5000 * time.Hour)
				if _, renewed := rotated(t, data, spec, certificateLife); !renewed {
					t.Error("not renewed")
				}
			})
		})
	}
	spec := kubetest.Spec(ca)
	data := built(t, spec)
	spec.Credentials.KeyAlgorithm = "RSA-1024"
	if _, _, err := kubeconfig.Rotate(data, spec); !errors.As(err, new(*kubeconfig.FieldError)) {
		t.Errorf("an unknown algorithm: got %v", err)
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

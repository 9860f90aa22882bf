package webhook_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

func TestCertificate(t *testing.T) {
	ca := pki.NewCA("ca")
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put := func(file string, text []byte) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := webhook.LoadCertificate(certFile, keyFile, nil); err == nil {
		t.Error("got nil without files, want an error")
	}
	pair1, pair2 := ca.Server("one"), ca.Server("two")
	cert1, key1 := pki.PEM(pair1)
	cert2, key2 := pki.PEM(pair2)
	put(certFile, cert1)
	put(keyFile, key1)
	var told []error
	c, err := webhook.LoadCertificate(certFile, keyFile, func(err error) { told = append(told, err) })
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name string
		do   func()
		want tls.Certificate
		told int
		bad  bool
	}{
		{"as it was", func() {}, pair1, 0, false},
		{"half renewed", func() { put(certFile, cert2) }, pair1, 1, true},
		{"still", func() {}, pair1, 1, true},
		{"renewed", func() { put(keyFile, key2) }, pair2, 2, false},
		{"cut short", func() { put(keyFile, key2[:20]) }, pair2, 3, true},
		{"gone", func() { os.Remove(keyFile) }, pair2, 4, true},
		{"back", func() { put(keyFile, key2) }, pair2, 5, false},
	}
	for _, s := range steps {
		s.do()
		got, err := c.Get(nil)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if string(got.Certificate[0]) != string(s.want.Certificate[0]) || len(told) != s.told {
			t.Errorf("%s: got the right certificate %t, told %v; want %d", s.name, string(got.Certificate[0]) == string(s.want.Certificate[0]), told, s.told)
		}
		if len(told) > 0 && (told[len(told)-1] != nil) != s.bad {
			t.Errorf("%s: got %v told, want an error %t", s.name, told[len(told)-1], s.bad)
		}
	}
}

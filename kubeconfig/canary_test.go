package kubeconfig_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig"
)

const (
	canary  = "Canary7f3aSecret"
	encoded = "Canary7f3a%53ecret" // as a URL may have it
)

// leaks returns the form in which text holds the canary or a part of keys.
func leaks(text string, keys ...[]byte) string {
	lower := strings.ToLower(text)
	secrets := []string{
		canary, encoded, base64.StdEncoding.EncodeToString([]byte(canary)), hex.EncodeToString([]byte(canary)),
		strings.Trim(fmt.Sprint([]byte(canary)), "[]"), // %v and %d of bytes
		"BEGIN PRIVATE KEY", "BEGIN EC PRIVATE KEY",
	}
	for _, key := range keys {
		block, _ := pem.Decode(key)
		line := strings.Split(string(key), "\n")[1]
		secrets = append(secrets, line, hex.EncodeToString(block.Bytes[40:50]), strings.Trim(fmt.Sprint(block.Bytes[40:50]), "[]"))
	}
	for _, secret := range secrets {
		if strings.Contains(lower, strings.ToLower(secret)) {
			return secret
		}
	}
	return ""
}

var verbs = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"}

func checkLeaks(t *testing.T, what string, value any, keys ...[]byte) {
	t.Helper()
	for _, verb := range verbs {
		if text := fmt.Sprintf(verb, value); leaks(text, keys...) != "" {
			t.Errorf("%s with %s holds %q:\n%s", what, verb, leaks(text, keys...), text)
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "value", value)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "value", value)
	if secret := leaks(log.String(), keys...); secret != "" {
		t.Errorf("%s logged holds %q:\n%s", what, secret, log.String())
	}
}

// canarySpec has a secret wherever one can be.
func canarySpec(t *testing.T, ca *authority) kubeconfig.Spec {
	spec := goodSpec(t, ca)
	spec.Route.ProxyURL = "https://user:" + encoded + "@proxy.test:3129"
	return spec
}

func TestNoSecretInErrors(t *testing.T) {
	ca := newAuthority(t, nil, nil)
	leaf, leafKey := ca.issue(t, "client", nil)
	keys := [][]byte{ca.keyPEM(t), keyPEM(t, leafKey)}
	more := invalidSpecs(t)
	add := func(name string, change func(*kubeconfig.Spec)) {
		more = append(more, invalidSpec{name: name, change: change})
	}
	add("every way set", func(s *kubeconfig.Spec) {
		s.Credentials = kubeconfig.Credentials{
			CAKey: keys[0], Certificate: certPEM(leaf), Key: keys[1], Token: canary,
			AuthInfo: &clientcmdapi.AuthInfo{Token: canary, Password: canary},
		}
	})
	add("token", func(s *kubeconfig.Spec) { s.Credentials = kubeconfig.Credentials{Token: canary + " " + canary} })
	add("AuthInfo", func(s *kubeconfig.Spec) {
		s.Credentials = kubeconfig.Credentials{AuthInfo: &clientcmdapi.AuthInfo{
			Token: canary, Username: "u", Password: canary, ClientCertificateData: []byte(canary), ClientKeyData: keys[1],
			Exec: &clientcmdapi.ExecConfig{Env: []clientcmdapi.ExecEnvVar{{Value: canary}}},
		}}
	})
	add("pasted keys", func(s *kubeconfig.Spec) { s.CA = keys[0]; s.Credentials = kubeconfig.Credentials{CAKey: keys[0][:150]} })
	add("key swapped with certificate", func(s *kubeconfig.Spec) {
		s.Credentials = kubeconfig.Credentials{Certificate: keys[1], Key: certPEM(leaf)}
	})
	add("text for keys", func(s *kubeconfig.Spec) {
		s.CA = []byte(canary)
		s.Credentials = kubeconfig.Credentials{Certificate: []byte(canary), Key: []byte(canary)}
	})
	add("tunnel", func(s *kubeconfig.Spec) {
		s.Route = kubeconfig.Route{Tunnel: &kubeconfig.Tunnel{Gateway: "ftp://u:" + canary + "@gw", User: "u:", Password: canary}}
	})
	add("a URL for a host", func(s *kubeconfig.Spec) { s.Endpoint.Host = "https://u:" + canary + "@api.test" })
	add("a URL for a server name", func(s *kubeconfig.Spec) { s.TLSServerName = "u:" + canary + "@api.test" })
	for _, u := range canaryURLs() {
		add("proxy "+u, func(s *kubeconfig.Spec) { s.Route.ProxyURL = u })
	}
	for _, test := range more {
		spec := canarySpec(t, ca)
		test.change(&spec)
		_, err := spec.Build()
		if err == nil {
			t.Errorf("%s: no error", test.name)
		}
		for _, e := range tree(err) {
			checkLeaks(t, test.name, e, keys...)
		}
		if test.name != "a URL for a server name" { // a name is printed
			checkLeaks(t, test.name+": Spec", spec, keys...)
			checkLeaks(t, test.name+": *Spec", &spec, keys...)
		}
		checkLeaks(t, test.name+": Route", spec.Route, keys...)
		checkLeaks(t, test.name+": Credentials", []any{spec.Credentials, &spec.Credentials}, keys...)
	}
}

// canaryURLs are proxy URLs that can't be used, with a password in places
// where mistakes put it.
func canaryURLs() []string {
	const c = canary
	return []string{
		c, "//" + c, c + ":x@proxy", "u:" + c + "@proxy:1", "http://u:" + c, "http://u:" + c + "/@proxy",
		"http://u:a/" + c + "@proxy", "http://u:a?" + c + "@proxy", "http://u:a#" + c + "@proxy", "http://u:1#" + c + "@proxy",
		"http://u:" + c + "%@proxy", "http://u:" + c + "%zz@proxy", "http://u:" + c + " @proxy", "http://u:" + c + "@proxy:port",
		"http://u:" + c + "@proxy:99999", "http://u:" + c + "@", "ftp://u:" + c + "@proxy", "http://u:" + c + "@[::1",
		"http://proxy/" + c, "http://proxy?" + c, "http://proxy#" + c, "http://u:" + c + "@a b", "http://u:" + c + "\n@proxy",
		"http://u%3A:" + c + "@proxy", "http://u:" + c + "%00@proxy",
		"socks5://:" + c + "@proxy", "socks5://u:" + c + strings.Repeat("p", 256) + "@proxy", "socks4://u:" + c + "@proxy",
	}
}

func TestNoSecretInClient(t *testing.T) {
	api := newAPIServer(t)
	spec := canarySpec(t, api.ca)
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	user := config.AuthInfos["c1-admin"]
	keys := [][]byte{user.ClientKeyData}
	opts := &kubeconfig.ClientOptions{
		ProxyTLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{[]byte(canary)}}}, ServerName: canary},
		Forward:  &dialer.HTTPConnect{Addr: "p:1", Auth: dialer.Basic(dialer.Password("u", canary))},
	}
	checkLeaks(t, "ClientOptions", *opts)
	checkLeaks(t, "*ClientOptions", opts)
	for name, change := range map[string]func(*clientcmdapi.AuthInfo){
		"certificate": func(*clientcmdapi.AuthInfo) {},
		"token":       func(u *clientcmdapi.AuthInfo) { *u = clientcmdapi.AuthInfo{Token: canary} },
		"basic":       func(u *clientcmdapi.AuthInfo) { *u = clientcmdapi.AuthInfo{Username: "u", Password: canary} },
	} {
		config := config.DeepCopy()
		change(config.AuthInfos["c1-admin"])
		c := newClient(t, config, opts)
		checkLeaks(t, name+": Client", c, keys...)
		checkLeaks(t, name+": Config", c.Config(), keys...)
		checkLeaks(t, name+": HTTP", c.HTTP(), keys...)
	}
	for _, u := range canaryURLs() {
		config.Clusters["c1"].ProxyURL = u
		c, err := kubeconfig.NewClient(config, nil)
		if err == nil {
			t.Errorf("%s: no error", u)
			c.Close()
		}
		for _, e := range tree(err) {
			checkLeaks(t, "NewClient with "+u, e, keys...)
		}
	}
	config.Clusters["c1"].ProxyURL = spec.Route.ProxyURL
	for name, change := range map[string]func(*clientcmdapi.Config){
		"server":      func(c *clientcmdapi.Config) { c.Clusters["c1"].Server = "https://u:" + canary + "@api.test" },
		"bad server":  func(c *clientcmdapi.Config) { c.Clusters["c1"].Server = "https://u:" + canary + " @api.test" },
		"key":         func(c *clientcmdapi.Config) { c.AuthInfos["c1-admin"].ClientKeyData = []byte(canary) },
		"cut off key": func(c *clientcmdapi.Config) { c.AuthInfos["c1-admin"].ClientKeyData = keys[0][:150] },
		"two ways": func(c *clientcmdapi.Config) {
			*c.AuthInfos["c1-admin"] = clientcmdapi.AuthInfo{Token: canary, Username: canary, Password: canary}
		},
		"CA":       func(c *clientcmdapi.Config) { c.Clusters["c1"].CertificateAuthorityData = []byte(canary) },
		"dangling": func(c *clientcmdapi.Config) { c.CurrentContext = "x" },
	} {
		config := config.DeepCopy()
		change(config)
		_, err := kubeconfig.NewClient(config, nil)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		for _, e := range tree(err) {
			checkLeaks(t, "NewClient: "+name, e, keys...)
		}
	}
	// No proxy at all: what a request fails with.
	c := newClient(t, config, &kubeconfig.ClientOptions{Forward: api.dialer()})
	for _, e := range tree(namespaces(c.Config())) {
		checkLeaks(t, "request", e, keys...)
	}
}

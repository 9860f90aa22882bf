// Package kubetest is what the tests of kubeconfig and of the packages below it
// share.
package kubetest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// Spec is a good Spec, from which tests change one thing.
func Spec(ca *pki.CA) kubeconfig.Spec {
	return kubeconfig.Spec{
		Name:        "c1",
		Endpoint:    kubeconfig.Endpoint{Host: "api.test", Port: 6443},
		CA:          ca.CertPEM(),
		Credentials: kubeconfig.Credentials{CAKey: ca.KeyPEM()},
	}
}

// NewClient returns a Client that is closed when the test ends.
func NewClient(t *testing.T, config *clientcmdapi.Config, opts *connect.Options) *connect.Client {
	t.Helper()
	c, err := connect.New(config, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// DeadProxy is where the environment of SetDeadEnvironment leads.
const DeadProxy = "http://127.0.0.1:1"

// SetDeadEnvironment makes a TestMain's whole package be tested with an
// environment that leads nowhere. net/http reads it once in a process: a single
// test could be too late.
func SetDeadEnvironment() {
	for name, value := range map[string]string{
		"HTTPS_PROXY":             DeadProxy,
		"https_proxy":             DeadProxy,
		"HTTP_PROXY":              DeadProxy,
		"ALL_PROXY":               DeadProxy,
		"NO_PROXY":                "",
		"KUBECONFIG":              "/dev/null/kubeconfig",
		"KUBERNETES_MASTER":       "https://192.0.2.1",
		"KUBERNETES_SERVICE_HOST": "192.0.2.1",
		"KUBERNETES_SERVICE_PORT": "443",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

// Canary is a secret that must not come out, EncodedCanary the same as a URL may
// have it.
const (
	Canary        = "Canary7f3aSecret"
	EncodedCanary = "Canary7f3a%53ecret"
)

// CanaryURLs are proxy URLs that can't be used, with a password in places
// where mistakes put it.
func CanaryURLs() []string {
	const c = Canary
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

// Leaks returns the form in which text holds the canary or a part of keys.
func Leaks(text string, keys ...[]byte) string {
	lower := strings.ToLower(text)
	secrets := []string{
		Canary, EncodedCanary, base64.StdEncoding.EncodeToString([]byte(Canary)), hex.EncodeToString([]byte(Canary)),
		strings.Trim(fmt.Sprint([]byte(Canary)), "[]"), // %v and %d of bytes
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

// Verbs are those of fmt with which a secret could come out.
var Verbs = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"}

// CheckLeaks fails t if value, printed or logged, holds a secret.
func CheckLeaks(t *testing.T, what string, value any, keys ...[]byte) {
	t.Helper()
	for _, verb := range Verbs {
		if text := fmt.Sprintf(verb, value); Leaks(text, keys...) != "" {
			t.Errorf("%s with %s holds %q:\n%s", what, verb, Leaks(text, keys...), text)
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "value", value)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "value", value)
	if secret := Leaks(log.String(), keys...); secret != "" {
		t.Errorf("%s logged holds %q:\n%s", what, secret, log.String())
	}
}

// ErrorTree returns err and all that it wraps.
func ErrorTree(err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		all = append(all, ErrorTree(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, ErrorTree(inner)...)
		}
	}
	return all
}

package kubeconfig

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/causewayproject/causeway/noproxy"
)

// checkBeyond checks the fields that are in the extension, and Direct.
func (r Route) checkBeyond() error {
	proxy := r.ProxyURL
	if r.Tunnel != nil {
		proxy = r.Tunnel.proxyURL()
	}
	var direct error
	if r.Direct && r.viaProxy() {
		direct = fieldErrorf("Route", "Direct is set along with ProxyURL or Tunnel; want one of them")
	}
	return errors.Join(direct,
		fieldError("Route.NoProxy", r.checkNoProxy()),
		fieldError("Route.Header", r.checkHeader(proxy)),
		r.checkProxyTLS(proxy),
	)
}

var errNoProxySet = errors.New("is for a proxy, and neither ProxyURL nor Tunnel is set")

func (r Route) viaProxy() bool { return r.ProxyURL != "" || r.Tunnel != nil }

func (r Route) checkNoProxy() error {
	if r.NoProxy != "" && !r.viaProxy() {
		return errNoProxySet
	}
	return checkNoProxy(r.NoProxy)
}

// checkHeader leaves out what is wrong with the proxy itself.
func (r Route) checkHeader(proxy string) error {
	if len(r.Header) == 0 {
		return nil
	}
	if !r.viaProxy() {
		return errNoProxySet
	}
	if err := checkHeader(r.Header); err != nil {
		return err
	}
	u, err := parseProxyURL(proxy)
	switch {
	case err != nil:
	case u.Scheme == "socks5":
		return errors.New("is for an http or https proxy: SOCKS5 has no header")
	case u.User != nil && hasHeader(r.Header, "Proxy-Authorization"):
		return errors.New("holds Proxy-Authorization, and there are a user and a password for the proxy; want one of them")
	}
	return nil
}

func (r Route) checkProxyTLS(proxy string) error {
	if r.ProxyTLS == nil {
		return nil
	}
	const field = "Route.ProxyTLS"
	if !r.viaProxy() {
		return fieldError(field, errNoProxySet)
	}
	if u, err := parseProxyURL(proxy); err == nil && u.Scheme != "https" {
		return fieldErrorf(field, "is for an https proxy, not for %s", u.Scheme)
	}
	return r.ProxyTLS.check(field, fieldNames)
}

func checkNoProxy(list string) error {
	if list == "" {
		return nil
	}
	if _, err := (noproxy.Options{Strict: true}).Parse(list); err != nil {
		// The item may be a URL with a password: it is not repeated.
		return errors.New("holds an item that covers no host: want names, addresses and networks, separated by commas")
	}
	return nil
}

func hasHeader(header map[string][]string, name string) bool {
	for other := range header {
		if http.CanonicalHeaderKey(other) == name {
			return true
		}
	}
	return false
}

// checkHeader wants what can be sent along with a CONNECT. Names are told,
// values are not.
func checkHeader(header map[string][]string) error {
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return errors.New("a name in it is none that a header can have")
		case canonical == "Host", canonical == "Content-Length", canonical == "Transfer-Encoding":
			return fmt.Errorf("%s can't be set", canonical)
		case seen[canonical]:
			return fmt.Errorf("%s is there twice, spelled differently", canonical)
		case slices.ContainsFunc(header[name], func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }):
			return fmt.Errorf("a value of %s holds a control character", canonical)
		}
		seen[canonical] = true
	}
	return nil
}

func (t *ProxyTLS) isZero() bool {
	return len(t.CA) == 0 && t.CAFile == "" && t.ServerName == "" && t.CertificateFile == "" && t.KeyFile == "" && t.Secret == nil
}

// Names of ProxyTLS's fields: CA, ServerName, CertificateFile, KeyFile,
// Secret, Namespace, Name.
type proxyTLSNames [7]string

var (
	fieldNames = proxyTLSNames{"CA", "ServerName", "CertificateFile", "KeyFile", "Secret", "Namespace", "Name"}
	wireNames  = proxyTLSNames{"certificateAuthorityData", "serverName", "clientCertificate", "clientKey", "secret", "namespace", "name"}
)

// check opens no files: they may be elsewhere.
func (t *ProxyTLS) check(field string, names proxyTLSNames) error {
	if t == nil {
		return nil
	}
	at := func(i int) string { return field + "." + names[i] }
	var caErr, nameErr, pairErr, secretErr error
	if len(t.CA) > 0 {
		_, err := parseCertificates(t.CA)
		caErr = fieldError(at(0), err)
	}
	if t.ServerName != "" {
		nameErr = fieldError(at(1), checkHost(t.ServerName))
	}
	switch {
	case t.CertificateFile != "" && t.KeyFile == "":
		pairErr = fieldErrorf(at(3), "%w along with %s", errRequired, names[2])
	case t.CertificateFile == "" && t.KeyFile != "":
		pairErr = fieldErrorf(at(2), "%w along with %s", errRequired, names[3])
	case t.CertificateFile != "" && t.Secret != nil:
		pairErr = fieldErrorf(at(4), "is set along with %s; want one client certificate", names[2])
	}
	if t.Secret != nil {
		secret := at(4) + "."
		secretErr = errors.Join(
			fieldError(secret+names[5], checkNamespace(t.Secret.Namespace)),
			fieldError(secret+names[6], checkObjectName(t.Secret.Name)),
		)
	}
	return errors.Join(caErr, nameErr, pairErr, secretErr)
}

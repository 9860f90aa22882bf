package kubeconfig

import (
	"errors"
	"net/http"

	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// checkBeyond checks the fields that are in the extension, and Direct.
func (r Route) checkBeyond() error {
	proxy := r.ProxyURL
	if r.Tunnel != nil {
		proxy = r.Tunnel.proxyURL()
	}
	var direct error
	if r.Direct && r.viaProxy() {
		direct = field.Errorf("Route", "Direct is set along with ProxyURL or Tunnel; want one of them")
	}
	return errors.Join(direct,
		field.Wrap("Route.NoProxy", r.checkNoProxy()),
		field.Wrap("Route.Header", r.checkHeader(proxy)),
		r.checkProxyTLS(proxy),
	)
}

var errNoProxySet = errors.New("is for a proxy, and neither ProxyURL nor Tunnel is set")

func (r Route) viaProxy() bool { return r.ProxyURL != "" || r.Tunnel != nil }

func (r Route) checkNoProxy() error {
	if r.NoProxy != "" && !r.viaProxy() {
		return errNoProxySet
	}
	return field.CheckNoProxy(r.NoProxy)
}

// checkHeader leaves out what is wrong with the proxy itself.
func (r Route) checkHeader(proxy string) error {
	if len(r.Header) == 0 {
		return nil
	}
	if !r.viaProxy() {
		return errNoProxySet
	}
	if err := field.CheckHeader(r.Header); err != nil {
		return err
	}
	u, err := field.ParseProxyURL(proxy)
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
	const path = "Route.ProxyTLS"
	if !r.viaProxy() {
		return field.Wrap(path, errNoProxySet)
	}
	if u, err := field.ParseProxyURL(proxy); err == nil && u.Scheme != "https" {
		return field.Errorf(path, "is for an https proxy, not for %s", u.Scheme)
	}
	return r.ProxyTLS.extension().Check(path, entry.GoNames)
}

func hasHeader(header map[string][]string, name string) bool {
	for other := range header {
		if http.CanonicalHeaderKey(other) == name {
			return true
		}
	}
	return false
}

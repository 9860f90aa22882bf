package field

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/noproxy"
)

// ParseProxyURL returns text as client-go takes it: with socks5 for socks5h,
// and with none of the other schemes that package dialer has.
func ParseProxyURL(text string) (*url.URL, error) {
	if u, err := url.Parse(text); err == nil && u.Opaque == "" {
		switch u.Scheme {
		case "", "http", "https", "socks5", "socks5h":
		default:
			return nil, fmt.Errorf("the scheme %q is not http, https, socks5 or socks5h", u.Scheme)
		}
	}
	u, err := dialer.ParseURL(text)
	if err == nil && u.Scheme == "socks5h" {
		u.Scheme = "socks5"
	}
	return u, err
}

// Keys of a Secret with credentials for a proxy, which say for which one.
const (
	KeyProxyURL = "proxy-url"
	KeyGateway  = "gateway"
)

// SecretProxy returns the proxy that the credentials in a Secret's data are for; empty if
// the Secret doesn't say.
func SecretProxy(data map[string][]byte) string {
	proxy := cmp.Or(string(data[KeyProxyURL]), string(data[KeyGateway]))
	return strings.TrimRight(proxy, "\r\n") // which files have
}

// SameProxy reports whether a and b are one proxy: of one scheme, host and port, with
// whatever user info. A URL that can't be read is no proxy.
func SameProxy(a, b string) bool {
	x, errX := ParseProxyURL(a)
	y, errY := ParseProxyURL(b)
	return errX == nil && errY == nil && x.Scheme == y.Scheme && proxyAddress(x) == proxyAddress(y)
}

var defaultPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080"}

// proxyAddress returns the host and port in the form in which they can be compared.
func proxyAddress(u *url.URL) string {
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	} else if ascii, err := httpguts.PunycodeHostPort(host); err == nil {
		host = strings.TrimSuffix(strings.ToLower(ascii), ".")
	}
	return net.JoinHostPort(host, cmp.Or(strings.TrimLeft(u.Port(), "0"), defaultPorts[u.Scheme]))
}

// WithoutUser returns a proxy's URL without its user info.
func WithoutUser(proxy string) string {
	u, err := dialer.ParseURL(proxy)
	if err != nil {
		return "(invalid proxy URL)"
	}
	return u.Scheme + "://" + u.Host
}

// CheckNoProxy checks a no_proxy list, each item of which has to cover something.
func CheckNoProxy(list string) error {
	if list == "" {
		return nil
	}
	if _, err := (noproxy.Options{Strict: true}).Parse(list); err != nil {
		// The item may be a URL with a password: it is not repeated.
		return errors.New("holds an item that covers no host: want names, addresses and networks, separated by commas")
	}
	return nil
}

// CheckHeader wants what can be sent along with a CONNECT. Names are told,
// values are not.
func CheckHeader(header map[string][]string) error {
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

// HasHeader reports whether the header has the name, in any spelling.
func HasHeader(header map[string][]string, name string) bool {
	for other := range header {
		if strings.EqualFold(other, name) {
			return true
		}
	}
	return false
}

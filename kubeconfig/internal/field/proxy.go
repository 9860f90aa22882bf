package field

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

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

// Package hostport says why nobody can dial an address, in words that go behind its name.
package hostport

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// CheckAddress is Check for host:port.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("it has no port, or is not HOST:PORT, with brackets around an IPv6 host")
	}
	return Check(host, port)
}

// Check returns an error if nobody can dial host and port. It does not show them: they may
// be parts of a URL with a password.
func Check(host, port string) error {
	if host == "" {
		return errors.New("it has no host")
	}
	if strings.ContainsFunc(host, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._:%", r)
	}) {
		return errors.New("its host is neither a name nor an IP address")
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "" {
		return errors.New("it is link-local, and names no zone, as in [fe80::1%eth0]:8443")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("its port is not a number from 1 to 65535")
	}
	return nil
}

// ParseServer reads where an API server is: host:port, or an http or https URL. The result has a port, 80
// or 443 if the URL names none, and no slash at its end. The error shows nothing of the text.
func ParseServer(text string) (*url.URL, error) {
	const want = ": want host:port or https://host:port"
	if !strings.Contains(text, "://") {
		text = "https://" + text
		if _, _, err := net.SplitHostPort(text[len("https://"):]); err != nil {
			return nil, errors.New("is no address" + want)
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("not a URL" + want)
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("has an unknown scheme" + want)
	case u.Hostname() == "":
		return nil, errors.New("has no host" + want)
	case u.User != nil:
		return nil, errors.New("holds user info" + want)
	case err != nil || n == 0:
		return nil, errors.New("has another port: want a port from 1 to 65535")
	}
	u.Host = net.JoinHostPort(u.Hostname(), port)
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	return u, nil
}

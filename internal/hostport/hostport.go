// Package hostport says why nobody can dial an address, in words that go behind its name.
package hostport

import (
	"errors"
	"net"
	"net/netip"
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

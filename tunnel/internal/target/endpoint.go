package target

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// endpoint is a host and a port in the one spelling that patterns are compared
// with.
type endpoint struct {
	name string     // lower-case ASCII without a final dot; empty if addr is valid
	addr netip.Addr // without zone; an IPv4-mapped address is the IPv4 one
	port uint16
}

const (
	localhost  = "localhost"
	maxName    = 253
	maxLabel   = 63
	maxAddress = 1024 // of host:port, before an internationalised name shrinks
)

// parseEndpoint reads host:port. host is the name for the resolver: with its
// final dot, if it had one.
func parseEndpoint(address string) (e endpoint, host string, err error) {
	if len(address) > maxAddress {
		return endpoint{}, "", errors.New("longer than an address can be")
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return endpoint{}, "", errNotHostPort
	}
	if e.port, err = parsePort(portText); err != nil {
		return endpoint{}, "", err
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return endpoint{}, "", errors.New("an address with a zone")
		}
		e.addr = addr.Unmap()
		return e, host, nil
	}
	if host, err = asciiName(host); err != nil {
		return endpoint{}, "", err
	}
	e.name = strings.TrimSuffix(host, ".")
	return e, host, checkHost(e.name)
}

// CheckAddress returns why an agent would not read host:port.
func CheckAddress(address string) error {
	_, _, err := parseEndpoint(address)
	return err
}

var errNotHostPort = errors.New("not host:port, with brackets around an IPv6 host")

// parsePort accepts one spelling of each port, so that no other program can
// read another port.
func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || text[0] == '0' {
		return 0, errors.New("the port is not a number from 1 to 65535 without leading zeros")
	}
	return uint16(n), nil
}

// asciiName returns the lower-case ASCII form of a name.
func asciiName(name string) (string, error) {
	for i := range len(name) {
		if name[i] >= 0x80 {
			ascii, err := idna.Lookup.ToASCII(name)
			if err != nil {
				return "", errors.New("not an internationalised name")
			}
			return ascii, nil
		}
	}
	return strings.ToLower(name), nil
}

// checkHost returns an error unless name is the name of a host. It refuses what
// some resolvers take for an address: 127.1, 0x7f.1, 2130706433.
func checkHost(name string) error {
	if len(name) > maxName {
		return errors.New("longer than a name can be")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel {
			return errors.New("a label of the host is empty or longer than 63 bytes")
		}
		for i := range len(label) {
			if c := label[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return fmt.Errorf("no host has the character %q in its name", c)
			}
		}
	}
	if isNumber(name[strings.LastIndexByte(name, '.')+1:]) {
		return errors.New("not an address in its usual form, and no name ends in a number")
	}
	return nil
}

// isNumber reports whether C's inet_aton could read the label as a number.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

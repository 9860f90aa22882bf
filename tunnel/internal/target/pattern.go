package target

import (
	"errors"
	"net"
	"net/netip"
	"strings"
)

// pattern is an entry of Config.Allow: a name or a network, and ports.
type pattern struct {
	name    string       // of a name pattern; begins with a dot if below is set; empty: all names
	below   bool         // the names below name
	network netip.Prefix // of a network pattern; else invalid
	ports   portRange
}

type portRange struct{ first, last uint16 }

func (r portRange) has(port uint16) bool { return r.first <= port && port <= r.last }

// matchesName reports whether p is a name pattern that matches e.
func (p pattern) matchesName(e endpoint) bool {
	switch {
	case e.name == "", !p.ports.has(e.port):
		return false
	case p.below:
		return strings.HasSuffix(e.name, p.name)
	}
	return e.name == p.name
}

// parsePattern refuses a pattern that no target can match.
func parsePattern(text string) (p pattern, err error) {
	host, ports, err := net.SplitHostPort(text)
	if err != nil {
		return pattern{}, errNotHostPort
	}
	if p.ports, err = parsePorts(ports); err != nil {
		return pattern{}, err
	}
	if strings.Contains(host, "/") {
		p.network, err = parseNetwork(host)
		return p, err
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" || addr.Is4In6() {
			return pattern{}, errors.New("write the address without a zone, and an IPv4 one as such")
		}
		p.network = netip.PrefixFrom(addr, addr.BitLen())
		return p, nil
	}
	p.name, p.below, err = parseNamePattern(host)
	return p, err
}

func parsePorts(text string) (portRange, error) {
	if text == "*" {
		return portRange{1, 65535}, nil
	}
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		last = first
	}
	var r portRange
	var err error
	if r.first, err = parsePort(first); err == nil {
		r.last, err = parsePort(last)
	}
	if err == nil && r.first > r.last {
		err = errors.New("the first port of the range is above the last")
	}
	return r, err
}

func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("not a network: write an address, a slash and a length that fits it")
	case network.Addr().Is4In6():
		return netip.Prefix{}, errors.New("write an IPv4 network as such")
	case network != network.Masked():
		return netip.Prefix{}, errors.New("the address has bits outside of the network: write " + network.Masked().String())
	}
	return network, nil
}

func parseNamePattern(host string) (name string, below bool, err error) {
	if host == "*" {
		return "", true, nil
	}
	host, below = strings.CutPrefix(host, "*.")
	if name, err = asciiName(host); err != nil {
		return "", false, err
	}
	name = strings.TrimSuffix(name, ".")
	if err = checkHost(name); err != nil {
		return "", false, err
	}
	if name == localhost || strings.HasSuffix(name, "."+localhost) {
		return "", false, errors.New("no name may lead to a loopback address: write 127.0.0.1 or [::1]")
	}
	if below {
		name = "." + name
	}
	return name, below, nil
}

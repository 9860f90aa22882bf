package dialer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// target is the address that a proxy is asked for. It is checked before anything is
// dialed, so that it can't end the request and begin another one.
type target struct {
	host string     // an ASCII name, or an address without brackets
	addr netip.Addr // valid if host is an address; mapped IPv4 is IPv4
	port uint16
	// authority is host:port with brackets around an IPv6 address, the form of
	// RFC 9110, section 9.3.6.
	authority string
}

// newTarget returns a target. Its strings are parts of address if that has the right
// form already, which it nearly always has. This saves an allocation.
func newTarget(host string, addr netip.Addr, port uint16, address string) target {
	var buf [len("[xxxx:xxxx:xxxx:xxxx:xxxx:xxxx:255.255.255.255]:65535") + 255]byte
	b := buf[:0]
	switch {
	case addr.Is4():
		b = addr.AppendTo(b)
	case addr.IsValid():
		b = append(addr.AppendTo(append(b, '[')), ']')
	default:
		b = append(b, host...)
	}
	hostEnd := len(b)
	b = strconv.AppendUint(append(b, ':'), uint64(port), 10)
	if string(b) != address {
		address = string(b)
	}
	return target{strings.Trim(address[:hostEnd], "[]"), addr, port, address}
}

func addrTarget(addr netip.Addr, port uint16) target {
	return newTarget("", addr, port, "")
}

func parseTarget(network, address string) (target, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return target{}, net.UnknownNetworkError(network)
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return target{}, errors.New("the address is not host:port, with brackets around an IPv6 host")
	}
	port, ok := parsePort(portText)
	if !ok {
		return target{}, errors.New("the port of the address is not a number from 1 to 65535")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return target{}, errors.New("the address has an IPv6 zone, which has no meaning at the proxy")
		}
		addr = addr.Unmap()
		if network == "tcp4" && !addr.Is4() || network == "tcp6" && addr.Is4() {
			return target{}, fmt.Errorf("the address is not of the IP version of %s", network)
		}
		return newTarget("", addr, port, address), nil
	}
	if host, err = asciiName(host); err != nil {
		return target{}, err
	}
	return newTarget(host, netip.Addr{}, port, address), nil
}

// asciiName checks a host name, and returns the ASCII form of an internationalised
// one.
func asciiName(host string) (string, error) {
	if host == "" {
		return "", errors.New("the address has no host")
	}
	ascii := true
	for i := range len(host) {
		switch c := host[i]; {
		case c >= 0x80:
			ascii = false
		case c <= ' ' || c == 0x7f:
			return "", errors.New("the host of the address holds a space or a control character")
		case strings.IndexByte(`:/?#[]@\%`, c) >= 0:
			return "", fmt.Errorf("the host of the address holds %q", c)
		}
	}
	if ascii {
		return host, nil
	}
	name, err := idna.Lookup.ToASCII(host)
	if err != nil {
		return "", fmt.Errorf("the host of the address is not a valid internationalised name: %w", err)
	}
	return name, nil
}

// unixPrefix is the beginning of a field Addr that has the path of a unix socket.
const unixPrefix = "unix:"

// proxyAddr is where a proxy is.
type proxyAddr struct {
	network, address string // for Forward
	// host and port are those of a TCP address, without a zone. TLS compares the
	// certificate with host.
	host string
	port uint16
}

// parseProxyAddr checks the field Addr of a proxy.
func parseProxyAddr(addr string) (proxyAddr, error) {
	if addr == "" {
		return proxyAddr{}, errors.New("field Addr is required: the proxy's host:port")
	}
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		if err := checkSocket(path); err != nil {
			return proxyAddr{}, fmt.Errorf("field Addr: %w", err)
		}
		return proxyAddr{network: "unix", address: path}, nil
	}
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return proxyAddr{}, errors.New("field Addr is not host:port, with brackets around an IPv6 host")
	}
	port, ok := parsePort(portText)
	if !ok {
		return proxyAddr{}, errors.New("field Addr: the port is not a number from 1 to 65535")
	}
	if host == "" {
		return proxyAddr{}, errors.New("field Addr has no host")
	}
	name, err := proxyHost(host)
	if err != nil {
		return proxyAddr{}, fmt.Errorf("field Addr: %w: want host:port without a scheme; credentials go into Auth or Credentials", err)
	}
	if name != host {
		addr = net.JoinHostPort(name, portText)
	}
	name, _, _ = strings.Cut(name, "%")
	return proxyAddr{"tcp", addr, name, port}, nil
}

// proxyHost checks the host of a proxy, and returns a name in its ASCII form. The
// error does not quote the host: it may be a part of a password.
func proxyHost(host string) (string, error) {
	if _, err := netip.ParseAddr(host); err == nil && strings.IndexByte(host, '@') < 0 {
		return host, nil
	}
	name, err := asciiName(host)
	if err != nil {
		return "", errors.New("the proxy's host is neither a name nor an address")
	}
	return name, nil
}

// parsePort reads a number from 1 to 65535.
func parsePort(text string) (port uint16, ok bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n > 0
}

// checkSocket checks the path of a unix socket.
func checkSocket(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"), strings.HasSuffix(path, "/"):
		return errors.New("the unix socket has no absolute path")
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return errors.New("the unix socket is a URL with a host or a user: want its path")
	case strings.IndexByte(path, 0) >= 0:
		return errors.New("the path of the unix socket holds a NUL byte")
	}
	return nil
}

// isTarget reports whether t is the proxy itself.
func (p *proxyAddr) isTarget(t *target) bool {
	if p.port != t.port {
		return false
	}
	if t.addr.IsValid() {
		addr, err := netip.ParseAddr(p.host)
		return err == nil && addr.Unmap() == t.addr
	}
	return strings.EqualFold(strings.TrimSuffix(p.host, "."), strings.TrimSuffix(t.host, "."))
}

// proxyURL returns a proxy's URL for errors and traces, without user info.
func proxyURL(scheme, addr string) string {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		return scheme + "+unix://" + path
	}
	return scheme + "://" + addr
}

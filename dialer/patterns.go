package dialer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/causewayproject/causeway/noproxy"
)

// Patterns is a compiled list of hosts, networks and ports, for a [Route]. It
// never changes, so any number of goroutines may use it at once. The zero
// Patterns matches nothing.
type Patterns struct {
	patterns []string
	rules    *noproxy.Rules
	loopback []loopbackPattern
}

// loopbackPattern is an address or network with addresses that noproxy never
// proxies, whether they are listed or not.
type loopbackPattern struct {
	network netip.Prefix
	port    string // "" is any port
}

// ParsePatterns compiles patterns, which mean what they mean in a no_proxy
// list:
//
//	example.com         the name and every name below it
//	.example.com        the names below it, not the name
//	*.example.com       the same
//	10.0.0.1            the address, also as ::ffff:10.0.0.1
//	2001:db8::1         the address, with any zone
//	10.0.0.0/8          the addresses of the network
//	example.com:8443    the name and those below it, on this port
//	10.0.0.1:8443       the address, on this port
//	[2001:db8::1]:8443  the address, on this port
//	*                   everything
//
// There are two differences. Nothing is implied: localhost and loopback
// addresses match where they are listed. And a pattern that could match no host
// is an error, an [*Error] of [PhaseConfig] that joins one for each: a network
// with a port, brackets without one, an asterisk inside a name, an address with
// a zone or a number missing, a URL, white space, an empty pattern, an empty
// list.
func ParsePatterns(patterns ...string) (*Patterns, error) {
	var errs []error
	if len(patterns) == 0 {
		errs = append(errs, errors.New("no pattern: at least one is required"))
	}
	p := &Patterns{patterns: slices.Clone(patterns)}
	for i, text := range patterns {
		loopback, err := parsePattern(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("pattern %d%s: %w", i+1, quoted(text), err))
		}
		p.loopback = append(p.loopback, loopback...)
	}
	if len(errs) > 0 {
		return nil, &Error{Op: "patterns", Phase: PhaseConfig, Err: errors.Join(errs...)}
	}
	p.rules = noproxy.Parse(strings.Join(patterns, ","))
	return p, nil
}

// quoted is text for an error, unless it may hold a password.
func quoted(text string) string {
	if strings.Contains(text, "@") {
		return ""
	}
	return fmt.Sprintf(", %q", printable(text))
}

// String returns the patterns, separated by commas.
func (p *Patterns) String() string {
	if p == nil {
		return ""
	}
	return strings.Join(p.patterns, ",")
}

// match is the one place that knows how to ask noproxy about the list alone.
// What it implies besides is told apart here: "localhost", which it recognises
// in lower case only, and the loopback addresses.
func (p *Patterns) match(t target, port string) bool {
	switch {
	case t.addr.IsLoopback():
		for _, l := range p.loopback {
			if l.network.Contains(t.addr) && (l.port == "" || l.port == port) {
				return true
			}
		}
		return false
	case t.host == "localhost":
		return p.rules.Bypass("LOCALHOST", port)
	}
	return p.rules.Bypass(t.host, port)
}

// everyAddress is what the pattern "*" has of addresses.
var everyAddress = []loopbackPattern{
	{network: netip.PrefixFrom(netip.IPv4Unspecified(), 0)},
	{network: netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
}

// parsePattern checks a pattern, and returns what it has of loopback addresses.
func parsePattern(text string) ([]loopbackPattern, error) {
	switch {
	case text == "":
		return nil, errors.New("it is empty")
	case text == "*":
		return everyAddress, nil
	case strings.Contains(text, "://"):
		return nil, errors.New("it is a URL: write the host, or host:port")
	case strings.Contains(text, "/"):
		return parseNetwork(text)
	}
	host, port := text, ""
	if addr, err := netip.ParseAddr(text); err != nil || !addr.Is6() {
		var err error
		if host, port, err = splitPattern(text); err != nil {
			return nil, err
		}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil, checkPatternName(host)
	}
	if addr.Zone() != "" {
		return nil, errors.New("an address in a pattern has no zone: without one it matches with any")
	}
	addr = addr.Unmap()
	return []loopbackPattern{{netip.PrefixFrom(addr, addr.BitLen()), port}}, nil
}

// splitPattern splits host:port and [address]:port, and returns a host without
// a port as it is.
func splitPattern(text string) (host, port string, err error) {
	if !strings.Contains(text, ":") {
		return text, "", nil
	}
	host, port, err = net.SplitHostPort(text)
	if err != nil {
		return "", "", errors.New("it is not host:port; an IPv6 address has brackets where a port follows, and none otherwise")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", "", errors.New("the port is not a number from 1 to 65535 without leading zeros")
	}
	return host, port, nil
}

func parseNetwork(text string) ([]loopbackPattern, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return nil, errors.New("it is not a network such as 10.0.0.0/8, which has no port and no zone")
	}
	// As in noproxy, a network of mapped addresses is one of IPv4.
	if addr := network.Addr(); addr.Is4In6() && network.Bits() >= 96 {
		network = netip.PrefixFrom(addr.Unmap(), network.Bits()-96)
	}
	return []loopbackPattern{{network: network}}, nil
}

func checkPatternName(name string) error {
	if below, ok := strings.CutPrefix(name, "*."); ok {
		name = below
	} else {
		name = strings.TrimPrefix(name, ".")
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil || !utf8.ValidString(name) {
			return errors.New("it is no internationalised name")
		}
		name = ascii
	}
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	switch {
	case slices.Contains(labels, ""):
		return errors.New("it is no name, or a part of it is empty")
	case strings.Contains(name, "*"):
		return errors.New("an asterisk stands alone, or before a dot at the beginning")
	case strings.Trim(labels[len(labels)-1], "0123456789") == "":
		return errors.New("it is neither a name nor an IP address")
	case strings.ContainsFunc(name, notInName):
		return errors.New("it holds what no host name can: a pattern is one host, address or network")
	}
	return nil
}

func notInName(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune(`,?#[]@\%:`, r)
}

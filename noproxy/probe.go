package noproxy

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// probe is a question that tells apart how an item can be read.
type probe struct{ host, port string }

// String returns the probe as a human would write what is connected to.
func (p probe) String() string {
	host := p.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if p.port == "http" || p.port == "https" {
		return p.port + "://" + host + "/"
	}
	return host + ":" + p.port
}

// probes returns what to ask about an item: hosts that it covers, and their
// neighbours that it should not cover, in an order that never changes.
func probes(item string) []probe {
	var ps []probe
	e := parseEntry(item)
	if (Options{}).fault(strings.TrimSpace(item)) != "" {
		ps = deadProbes(item)
	} else {
		ps = entryProbes(e)
	}
	if strings.Contains(item, ":") {
		ps = append(ps, scanProbes(item)...)
	}
	return slices.DeleteFunc(ps, func(p probe) bool { return !p.possible() })
}

// possible reports whether there can be such a host.
func (p probe) possible() bool {
	if _, err := netip.ParseAddr(p.host); err == nil {
		return true
	}
	return p.host != "" && isASCII(p.host) && (Options{}).nameFault(strings.ToLower(p.host), true) == ""
}

func entryProbes(e entry) []probe {
	var hosts []string
	switch e.kind {
	case everything:
		hosts = []string{"host.example", "203.0.113.1", "2001:db8::cafe"}
	case addresses:
		hosts = addrProbes(e.span)
	case domain:
		hosts = nameProbes(e.name)
	}
	var ps []probe
	for _, host := range hosts {
		for _, port := range portProbes(e.port) {
			ps = append(ps, probe{host, port})
		}
	}
	return ps
}

// portProbes returns the port of an item as it can be written, and another.
func portProbes(port string) []string {
	switch port {
	case "":
		return []string{"https", "8443"}
	case "80":
		return []string{"80", "http", "8443"}
	case "443":
		return []string{"443", "https", "8443"}
	}
	return []string{port, "https", "http"}
}

func nameProbes(name string) []string {
	if name == "" {
		return []string{"host.example.", "host.example"}
	}
	hosts := []string{"www." + name, "a.b." + name, name, "not" + name, "10." + name}
	if rooted, ok := strings.CutSuffix(name, "."); ok {
		hosts = append(hosts, rooted, "www."+rooted)
	}
	return hosts
}

// addrProbes returns addresses in a span and beside it.
func addrProbes(s span) []string {
	first, last := s.first.addr(), s.last.addr()
	hosts := []string{first.String()}
	if first != last {
		hosts = append(hosts, last.String(), first.Next().String(), last.Prev().String())
		if first.Is4() {
			// A name that begins like the addresses.
			hosts = append(hosts, strings.TrimSuffix(s.patterns()[0], "*")+"host.example")
		}
	}
	for _, a := range []netip.Addr{first.Prev(), last.Next()} {
		if a.IsValid() {
			hosts = append(hosts, a.String())
		}
	}
	return hosts
}

// addr is the address of a number; those that are mapped are IPv4.
func (n number) addr() netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	return netip.AddrFrom16(b).Unmap()
}

// deadProbes are for an item that covers nothing for Go. Others see several
// items in it, patterns, or an address.
func deadProbes(item string) []probe {
	lax := Options{FoldTrailingDot: true, BracketsWithoutPort: true, NetworkPort: true}
	var ps []probe
	split := func(r rune) bool { return unicode.IsSpace(r) || r == '|' }
	for _, word := range append(strings.FieldsFunc(item, split), item) {
		e := lax.entry(word)
		ps = append(ps, entryProbes(e)...)
		if e.kind == domain {
			ps = append(ps, patternProbes(e.name)...)
			ps = append(ps, patternProbes(word)...) // its "*." is not in the name
		}
		network, _, _ := strings.Cut(word, "/")
		if addr, ok := parseAton(network); ok {
			ps = append(ps, probe{netip.AddrFrom4(addr).String(), "https"})
		}
		if host, port, err := net.SplitHostPort(word); err == nil {
			ps = append(ps, probe{host, port}, probe{strings.TrimLeft(host, "."), "https"})
		}
		ps = append(ps, scanProbes(word)...)
	}
	return ps
}

// patternProbes fill in the asterisks of a pattern.
func patternProbes(name string) []probe {
	if !strings.Contains(name, "*") {
		return nil
	}
	var ps []probe
	for _, fill := range []string{"a", "", "1", "1.2", "1.2.3", "a."} {
		ps = append(ps, probe{strings.ReplaceAll(name, "*", fill), "https"})
	}
	return ps
}

// scanProbes are for who takes a colon for the end of an item, and the digits
// behind it for a port: what is left over may cover names or IPv4 addresses.
func scanProbes(item string) []probe {
	var ps []probe
	if i := strings.LastIndexByte(item, ':'); isDigits(item[i+1:]) {
		ps = append(ps, probe{strings.Trim(item[:max(i, 0)], "[]"), item[i+1:]})
	}
	parts := strings.Split(item, ":")
	for i, part := range parts {
		ports := []string{"https"}
		if i+1 < len(parts) {
			next := parts[i+1]
			if digits := next[:len(next)-len(strings.TrimLeft(next, "0123456789"))]; digits != "" {
				ports = append(ports, digits)
			}
		}
		for _, text := range []string{part, strings.TrimLeft(part, "0123456789")} {
			for _, port := range ports {
				ps = append(ps, restProbes(strings.TrimLeft(text, "."), port)...)
			}
		}
	}
	return ps
}

// restProbes are the name, one below it, and the IPv4 address that ends in it.
func restProbes(text, port string) []probe {
	ps := []probe{{text, port}, {"www." + text, port}}
	if missing := 3 - strings.Count(text, "."); missing > 0 {
		octets := []string{"203", "0", "113"}[:missing]
		ps = append(ps, probe{strings.Join(append(octets, text), "."), port})
	}
	return ps
}

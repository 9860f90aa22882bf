package noproxy

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// urllibMatcher follows Python's proxy_bypass_environment. urllib.request passes it
// host and port as they are written in the URL, with brackets.
func urllibMatcher(list string) matcher {
	bypass := proxyBypass(list)
	return func(t target) bool {
		host := t.host
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		if t.written != "" {
			host += ":" + t.written
		}
		return bypass(host)
	}
}

// isOrIsBelow reports whether one of the names is, or has below it, host or the
// same host with its port.
func isOrIsBelow(names []string, host, withPort string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return host == name || withPort == name ||
			strings.HasSuffix(host, "."+name) || strings.HasSuffix(withPort, "."+name)
	})
}

// proxyBypass is Python's proxy_bypass_environment.
func proxyBypass(list string) func(host string) bool {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimFunc(name, isPythonSpace); name != "" {
			names = append(names, strings.ToLower(strings.TrimLeft(name, ".")))
		}
	}
	return func(host string) bool {
		if list == "*" {
			return true
		}
		host = strings.ToLower(host)
		return isOrIsBelow(names, cutPort(host), host)
	}
}

// cutPort returns the host of Python's _splitport, which takes the last group of an
// IPv6 address without brackets for a port.
func cutPort(host string) string {
	colon := strings.LastIndexByte(host, ':')
	if colon < 0 || !isDigits(host[colon+1:]) {
		return host
	}
	return host[:colon]
}

// isPythonSpace is Python's str.isspace.
func isPythonSpace(r rune) bool {
	return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f
}

// requestsMatcher follows should_bypass_proxies of Requests, which reads the list in
// its own way and then also asks proxy_bypass_environment. It gets the URL of a
// prepared request, whose host has been converted. The list has not been.
func requestsMatcher(list string) matcher {
	var names, trimmed []string
	for name := range strings.SplitSeq(strings.ReplaceAll(list, " ", ""), ",") {
		if name != "" {
			names, trimmed = append(names, name), append(trimmed, strings.TrimLeft(name, "."))
		}
	}
	bypass := proxyBypass(list)
	return func(t target) bool {
		// Requests keeps the case and the escapes of a zone.
		host, zone, zoned := strings.Cut(t.host, "%")
		host, ok := requestsHost(host)
		if !ok {
			return false
		}
		if zoned {
			host += strings.ReplaceAll("%"+zone, "%", "%25")
		}
		if n, ok := parseAton(host); ok {
			return requestsMatchIPv4(names, host, n) || bypass(host)
		}
		full := host
		if port, err := strconv.Atoi(t.written); err == nil && port > 0 {
			full += ":" + strconv.Itoa(port)
		}
		return isOrIsBelow(trimmed, host, full) || bypass(host)
	}
}

// requestsHost returns the host of a prepared request, and false for a host that
// Requests refuses. Labels that are not ASCII are converted without mapping, for
// example of fullwidth letters.
func requestsHost(host string) (string, bool) {
	labels := strings.Split(strings.ToLower(host), ".")
	for i, label := range labels {
		if isASCII(label) {
			continue
		}
		ascii, err := idna.Registration.ToASCII(label)
		if err != nil {
			return "", false
		}
		labels[i] = ascii
	}
	host = strings.Join(labels, ".")
	return host, !strings.HasPrefix(host, "*") && !strings.HasPrefix(host, ".")
}

func requestsMatchIPv4(names []string, host string, addr [4]byte) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if network, ok := requestsNetwork(name); ok {
			return network.Contains(netip.AddrFrom4(addr))
		}
		return host == name
	})
}

// requestsNetwork returns the network of an item for which is_valid_cidr of Requests
// is true.
func requestsNetwork(name string) (netip.Prefix, bool) {
	network, length, ok := strings.Cut(name, "/")
	if !ok {
		return netip.Prefix{}, false
	}
	// Python's int() takes white space, a sign and leading zeros.
	bits, err := strconv.Atoi(strings.TrimFunc(length, isPythonSpace))
	if err != nil || bits < 1 || bits > 32 {
		return netip.Prefix{}, false
	}
	// inet_aton stops at white space.
	if i := strings.IndexAny(network, " \t\n\v\f\r"); i > 0 {
		network = network[:i]
	}
	addr, ok := parseAton(network)
	return netip.PrefixFrom(netip.AddrFrom4(addr), bits), ok
}

// rubyItem is an item as Ruby's URI::Generic.use_proxy? scans it.
type rubyItem struct {
	host    string
	port    int // -1: any
	network netip.Prefix
}

// rubyMatcher follows Ruby's URI::Generic#find_proxy and use_proxy?. The scan knows
// neither brackets nor IPv6. It reads 2001:db8::1 as three items, and the last of
// them, 1, covers every IPv4 address that ends in .1.
func rubyMatcher(list string) matcher {
	items := rubyItems(list)
	return func(t target) bool {
		if !isASCII(t.host) || hasZone(t.host) { // refused
			return false
		}
		host := strings.ToLower(t.host)
		addr := rubyAddr(host)
		if addr.Is4() && addr.As4()[0] == 127 || host == "localhost" || addr == netip.IPv6Loopback() {
			return true
		}
		port, err := strconv.Atoi(t.port)
		if err != nil {
			port = -2
		}
		return slices.ContainsFunc(items, func(item rubyItem) bool {
			return (item.port < 0 || item.port == port) && item.matchHost(host, addr)
		})
	}
}

func (item rubyItem) matchHost(host string, addr netip.Addr) bool {
	name := item.host
	if !strings.HasPrefix(name, ".") {
		host, name = "."+host, "."+name
	}
	return strings.HasSuffix(host, name) || item.network.Contains(addr)
}

// rubyScan is the regular expression of use_proxy?. Ruby's \s includes \v.
var rubyScan = regexp.MustCompile(`([^:,\s\v]+)(?::([0-9]+))?`)

func rubyItems(list string) []rubyItem {
	var items []rubyItem
	for _, m := range rubyScan.FindAllStringSubmatch(list, -1) {
		item := rubyItem{host: strings.ToLower(m[1]), port: -1, network: rubyNetwork(m[1])}
		if m[2] != "" {
			port, err := strconv.Atoi(m[2])
			if err != nil {
				continue // larger than any port
			}
			item.port = port
		}
		items = append(items, item)
	}
	return items
}

// rubyAddr returns the address that Ruby's IPSocket.getaddress returns for an
// address, and the zero Addr for a name.
func rubyAddr(host string) netip.Addr {
	if addr, ok := parseAton(host); ok {
		return netip.AddrFrom4(addr)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// rubyNetwork returns the network of Ruby's IPAddr.new, which takes a mask for a
// length and no leading zeros. If item is no network, it returns the zero Prefix,
// which contains no address.
func rubyNetwork(item string) netip.Prefix {
	host, mask, slash := strings.Cut(item, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Is4() {
		return netip.Prefix{}
	}
	if !slash {
		return netip.PrefixFrom(addr, 32)
	}
	if m, ok := parseIPv4(mask); ok {
		ones, size := net.IPMask(m.AsSlice()).Size()
		if size == 0 {
			return netip.Prefix{}
		}
		return netip.PrefixFrom(addr, ones)
	}
	length, err := strconv.ParseUint(mask, 10, 8)
	if err != nil || length > 32 || len(mask) > 1 && mask[0] == '0' {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, int(length))
}

// undiciItem is an item as undici's EnvHttpProxyAgent keeps it.
type undiciItem struct {
	name  string
	below bool // covers only the names below
	port  int  // 0: any
}

// undiciMatcher follows undici's EnvHttpProxyAgent. It compares text with the host
// of JavaScript's URL class, which is ASCII and writes an address in one form.
func undiciMatcher(list string) matcher {
	var items []undiciItem
	// Between them is also \s of JavaScript's regular expressions.
	for _, item := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == 0xfeff || unicode.IsSpace(r) && r != 0x85 }) {
		items = append(items, newUndiciItem(item))
	}
	return func(t target) bool {
		host, ok := scriptHost(t.host)
		if !ok {
			return false
		}
		host = foldDot(host)
		port, err := strconv.Atoi(t.port)
		if err == nil && port == 0 {
			port = 80 // http's default; https with port 0 is not covered here
		}
		return slices.ContainsFunc(items, func(item undiciItem) bool {
			return (item.port == 0 || item.port == port) && item.matchHost(host)
		})
	}
}

func (item undiciItem) matchHost(host string) bool {
	return item.name == "*" || host == item.name && !item.below || strings.HasSuffix(host, "."+item.name)
}

func newUndiciItem(item string) undiciItem {
	host, port := item, 0
	if h, p, ok := cutDigits(item); ok && trimBrackets(h) != h {
		host, port = trimBrackets(h), p
	} else {
		host = trimBrackets(item)
		if h, p, ok := cutDigits(host); ok && strings.Count(host, ":") == 1 {
			host, port = h, p
		}
	}
	name, below := strings.CutPrefix(host, "*.")
	if !below {
		name = strings.TrimPrefix(name, ".")
	}
	return undiciItem{strings.ToLower(foldDot(name)), below, port}
}

// cutDigits splits host:port at the last colon.
func cutDigits(s string) (host string, port int, ok bool) {
	colon := strings.LastIndexByte(s, ':')
	if colon <= 0 || !isDigits(s[colon+1:]) {
		return "", 0, false
	}
	port, err := strconv.Atoi(s[colon+1:])
	if err != nil {
		port = -1 // larger than any port
	}
	return s[:colon], port, true
}

func trimBrackets(s string) string {
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		return s[1 : len(s)-1]
	}
	return s
}

// scriptHost is the host parser of the URL standard. It does not refuse the
// characters that the standard forbids.
func scriptHost(host string) (string, bool) {
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.Zone() != "" {
			return "", false
		}
		return scriptIPv6(addr), true
	}
	host = strings.ToLower(host)
	if !isASCII(host) || strings.Contains("."+host, ".xn--") {
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil || strings.Contains("."+host+".", ".xn--.") { // package idna takes an empty xn--
			return "", false
		}
		host = ascii
	}
	last := foldDot(host)
	last = last[strings.LastIndexByte(last, '.')+1:]
	if _, hex := parseAton(last); !isDigits(last) && !hex {
		return host, true
	}
	// A host whose last label is a number must be an IPv4 address.
	addr, ok := parseAton(foldDot(host))
	return netip.AddrFrom4(addr).String(), ok
}

// scriptIPv6 writes an address as JavaScript does: mapped IPv4 in hexadecimal.
func scriptIPv6(addr netip.Addr) string {
	if !addr.Is4In6() {
		return addr.String()
	}
	b := addr.As16()
	return fmt.Sprintf("::ffff:%x:%x", binary.BigEndian.Uint16(b[12:]), binary.BigEndian.Uint16(b[14:]))
}

// jvmDefaults is what sun.net.spi.DefaultProxySelector adds to the value of
// http.nonProxyHosts, and uses if the property is not set.
const jvmDefaults = "localhost|127.*|[::1]|0.0.0.0|[::0]"

// jvmMatcher follows sun.net.spi.DefaultProxySelector. It compares text. A pattern
// is a host with an asterisk at either end. White space is part of the pattern, so
// a pattern with a blank before or after it matches no host.
func jvmMatcher(list string) matcher {
	var patterns []jvmPattern
	list = strings.ReplaceAll(list, ",", "|") + "|" + jvmDefaults
	for item := range strings.SplitSeq(list, "|") {
		if item != "" {
			text, head := strings.CutPrefix(strings.ToLower(item), "*")
			text, end := strings.CutSuffix(text, "*")
			patterns = append(patterns, jvmPattern{text, head, end})
		}
	}
	return func(t target) bool {
		host := strings.ToLower(t.host)
		if host == "" {
			return false
		}
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		return slices.ContainsFunc(patterns, func(p jvmPattern) bool { return p.matchHost(host) })
	}
}

type jvmPattern struct {
	text            string
	anyHead, anyEnd bool
}

func (p jvmPattern) matchHost(host string) bool {
	switch {
	case p.anyHead && p.anyEnd:
		return strings.Contains(host, p.text)
	case p.anyHead:
		return strings.HasSuffix(host, p.text)
	case p.anyEnd:
		return strings.HasPrefix(host, p.text)
	}
	return host == p.text
}

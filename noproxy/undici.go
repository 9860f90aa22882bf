package noproxy

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// undiciItem is an item of a list as EnvHttpProxyAgent keeps it.
type undiciItem struct {
	name  string
	below bool // covers only what is below the name
	port  int  // 0 is any
}

// undiciMatcher follows EnvHttpProxyAgent. It compares text with the host that
// the URL class of JavaScript made: in ASCII, addresses in one spelling.
func undiciMatcher(list string) matcher {
	var items []undiciItem
	for _, item := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || isScriptSpace(r) }) {
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
			port = 80 // the port of the scheme; it is hardly https here
		}
		for _, item := range items {
			if (item.port == 0 || item.port == port) && item.match(host) {
				return true
			}
		}
		return false
	}
}

func (item undiciItem) match(host string) bool {
	return item.name == "*" || host == item.name && !item.below || strings.HasSuffix(host, "."+item.name)
}

func newUndiciItem(item string) undiciItem {
	host, port := item, 0
	if h, p, ok := cutDigits(item); ok && unbracket(h) != h {
		host, port = unbracket(h), p
	} else {
		host = unbracket(item)
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

func unbracket(s string) string {
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		return s[1 : len(s)-1]
	}
	return s
}

// isScriptSpace is \s of a regular expression in JavaScript.
func isScriptSpace(r rune) bool {
	return unicode.IsSpace(r) && r != 0x85 || r == 0xfeff
}

// scriptHost is the host parser of the URL standard, but for the characters
// that it forbids.
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
		if err != nil || strings.Contains("."+host+".", ".xn--.") { // which package idna lets pass
			return "", false
		}
		host = ascii
	}
	last := foldDot(host)
	last = last[strings.LastIndexByte(last, '.')+1:]
	if _, hex := parseAton(last); !isDigits(last) && !hex {
		return host, true
	}
	// What ends in a number is an address or nothing.
	addr, ok := parseAton(foldDot(host))
	return netip.AddrFrom4(addr).String(), ok
}

// scriptIPv6 writes a mapped address in hexadecimal, as JavaScript does.
func scriptIPv6(addr netip.Addr) string {
	if !addr.Is4In6() {
		return addr.String()
	}
	b := addr.As16()
	hex := func(hi, lo byte) string { return strconv.FormatUint(uint64(hi)<<8|uint64(lo), 16) }
	return "::ffff:" + hex(b[12], b[13]) + ":" + hex(b[14], b[15])
}

package noproxy_test

import (
	"strings"
	"testing"

	"golang.org/x/net/idna"

	"github.com/causewayproject/causeway/noproxy"
)

// checkBypass also asks httpproxy, so that a row cannot be wrong about it.
func checkBypass(t *testing.T, list, host, port string, want bool) {
	t.Helper()
	if got := noproxy.Parse(list).Bypass(host, port); got != want {
		t.Errorf("Parse(%q).Bypass(%q, %q): got %v, want %v", list, host, port, got, want)
	}
	u, ok := askable(host, port)
	if !ok {
		t.Fatalf("httpproxy cannot be asked about %q, %q", host, port)
	}
	if p, err := proxyFunc(list)(u); err != nil || (p == nil) != want {
		t.Errorf("httpproxy with %q about %q, %q: got %v, %v, want direct=%v", list, host, port, p, err, want)
	}
}

// TestStrict has a row for each peculiarity of httpproxy's reading of a list.
func TestStrict(t *testing.T) {
	tests := []struct {
		name, list, host, port string
		want                   bool
	}{
		// Separators.
		{"comma separates", "a.com,b.com", "b.com", "443", true},
		{"space does not separate", "a.com b.com", "b.com", "443", false},
		{"newline does not separate", "a.com\nb.com", "b.com", "443", false},
		{"bar does not separate", "a.com|b.com", "b.com", "443", false},
		{"semicolon does not separate", "a.com;b.com", "b.com", "443", false},
		{"white space is trimmed", "a.com, \t\r\nb.com\v\f", "b.com", "443", true},
		{"Unicode space is trimmed", "a.com,\u00a0\u2003b.com\u3000", "b.com", "443", true},
		{"empty items", ",, ,b.com,,", "b.com", "443", true},
		{"empty items match nothing", ",, ,", "b.com", "443", false},

		// The asterisk.
		{"lone asterisk", "*", "example.com", "443", true},
		{"lone asterisk and an address", "*", "10.0.0.1", "443", true},
		{"lone asterisk last", "a.com, * ", "example.com", "443", true},
		{"lone asterisk first", "*,a.com", "2001:db8::1", "443", true},
		{"asterisk with a port", "*:443", "example.com", "443", false},
		{"asterisk in brackets", "[*]", "example.com", "443", false},
		{"asterisk and a word", "*example.com", "www.example.com", "443", false},
		{"asterisk inside", "www.*.com", "www.example.com", "443", false},
		{"two asterisks", "*.*", "www.example.com", "443", false},
		{"asterisk and a dot is every host with a trailing dot", "*.", "example.com.", "443", true},

		// Names.
		{"name", "example.com", "example.com", "443", true},
		{"below a name", "example.com", "a.b.example.com", "443", true},
		{"not at a label", "example.com", "notexample.com", "443", false},
		{"above a name", "www.example.com", "example.com", "443", false},
		{"leading dot, below", ".example.com", "a.example.com", "443", true},
		{"leading dot, apex", ".example.com", "example.com", "443", false},
		{"wildcard, below", "*.example.com", "a.b.example.com", "443", true},
		{"wildcard, apex", "*.example.com", "example.com", "443", false},
		{"wildcard and dot", "*..example.com", "a.example.com", "443", false},
		{"both forms", ".example.com,example.com", "example.com", "443", true},
		{"both forms, other order", "example.com,.example.com", "example.com", "443", true},
		{"host begins with the dot", ".example.com", ".example.com", "443", true},
		{"two leading dots", "..example.com", "a.example.com", "443", false},
		{"two leading dots, empty label", "..example.com", "a..example.com", "443", true},
		{"list in upper case", "EXAMPLE.Com", "www.example.com", "443", true},
		{"host in upper case", "example.com", "WWW.Example.COM", "443", true},
		{"host in upper case, miss", "example.com", "WWW.Example.ORG", "443", false},
		{"space around the host", "example.com", " www.example.com\t", "443", true},
		{"empty host", "example.com,.", "", "443", false},

		// Trailing dots.
		{"no folding of the host's dot", "example.com", "example.com.", "443", false},
		{"no folding of the item's dot", "example.com.", "example.com", "443", false},
		{"dot on both", "example.com.", "www.example.com.", "443", true},
		{"a dot is every host with a trailing dot", ".", "example.com.", "443", true},
		{"a dot is no other host", ".", "example.com", "443", false},

		// Ports.
		{"port", "example.com:8443", "www.example.com", "8443", true},
		{"other port", "example.com:8443", "www.example.com", "443", false},
		{"port and apex", ".example.com:8443", "example.com", "8443", false},
		{"ports are strings", "example.com:080", "example.com", "80", false},
		{"port without a number is any port", "example.com:", "example.com", "8443", true},
		{"port without a host", ":443", "example.com", "443", false},
		{"several ports", "example.com:1,example.com:2", "example.com", "2", true},
		{"several ports, one miss", "example.com:1,example.com:2", "example.com", "3", false},
		{"both forms with a port", "example.com:80,.example.com:80", "example.com", "80", true},
		{"both forms with a port, other order", ".example.com:80,example.com:80", "example.com", "80", true},
		{"below with a port, apex without", "example.com:1,.example.com", "example.com", "2", false},
		{"apex with a port, below without", "example.com:1,.example.com", "example.com", "1", true},
		{"address and port", "10.0.0.1:8443", "10.0.0.1", "8443", true},
		{"address and other port", "10.0.0.1:8443", "10.0.0.1", "443", false},
		{"other address and port", "10.0.0.1:8443", "10.0.0.2", "8443", false},
		{"address with a port that has leading zeros", "10.0.0.1:080", "10.0.0.1", "80", false},

		// IPv6.
		{"bare IPv6", "2001:db8::1", "2001:db8::1", "443", true},
		{"IPv6 by value", "2001:DB8:0::1", "2001:db8:0:0::1", "443", true},
		{"brackets without a port", "[2001:db8::1]", "2001:db8::1", "443", false},
		{"brackets and a colon", "[2001:db8::1]:", "2001:db8::1", "8443", true},
		{"brackets and port", "[2001:db8::1]:443", "2001:db8::1", "443", true},
		{"brackets and other port", "[2001:db8::1]:443", "2001:db8::1", "80", false},
		{"brackets around IPv4", "[10.0.0.1]:443", "10.0.0.1", "443", true},
		{"empty brackets", "[]:443", "example.com", "443", false},
		{"zone of a host is dropped", "fe80::1", "fe80::1%eth0", "443", true},
		{"zone of a host and a network", "fe80::/10", "fe80::1%eth0", "443", true},
		{"zone in the list", "fe80::1%eth0", "fe80::1%eth0", "443", false},
		{"zone in a network of the list", "fe80::1%eth0/64", "fe80::1%eth0", "443", false},
		{"zone that is not ASCII", "fe80::1", "fe80::1%é", "443", true},

		// Networks.
		{"IPv4 network", "10.0.0.0/8", "10.255.255.255", "443", true},
		{"IPv4 network, below", "10.0.0.0/8", "9.255.255.255", "443", false},
		{"IPv4 network, above", "10.0.0.0/8", "11.0.0.0", "443", false},
		{"host bits of a network", "10.1.2.3/8", "10.0.0.1", "443", true},
		{"leading zero of a length", "10.0.0.0/08", "10.1.2.3", "443", true},
		{"sign of a length", "10.0.0.0/+8", "10.1.2.3", "443", false},
		{"length out of range", "10.0.0.0/33", "10.0.0.0", "443", false},
		{"no length", "10.0.0.0/", "10.0.0.0", "443", false},
		{"IPv6 network", "2001:db8::/32", "2001:db8:ffff::1", "443", true},
		{"IPv6 network, above", "2001:db8::/32", "2001:db9::", "443", false},
		{"IPv6 length out of range", "2001:db8::/129", "2001:db8::", "443", false},
		{"IPv6 length over 64", "2001:db8::/96", "2001:db8::ffff:ffff", "443", true},
		{"IPv6 length over 64, above", "2001:db8::/96", "2001:db8::1:0:0", "443", false},
		{"network and port", "10.0.0.0/8:443", "10.0.0.1", "443", false},
		{"IPv6 network in brackets", "[2001:db8::]/32", "2001:db8::1", "443", false},
		{"address as a name's ending", "0.0.1", "10.0.0.1", "443", false},

		// What is an address.
		{"names do not match addresses", "1", "10.0.0.1", "443", false},
		{"leading zeros make a name", "192.168.1.1", "192.168.001.001", "443", false},
		{"a name of digits", "192.168.001.001", "192.168.001.001", "443", true},
		{"a name of digits is not in a network", "192.168.0.0/16", "192.168.001.001", "443", false},
		{"a name of digits has an ending", "001", "192.168.001.001", "443", true},
		{"three octets", "10.0.0.0/8", "10.0.1", "443", false},
		{"five octets", "10.0.0.0/8", "10.0.0.0.1", "443", false},
		{"octet over 255", "10.0.0.0/8", "10.0.0.256", "443", false},
		{"octet over 255 makes a name", "256.0.0.1", "256.0.0.1", "443", true},
		{"address and trailing dot", "10.0.0.1", "10.0.0.1.", "443", false},
		{"space around an address makes a name", "10.0.0.1", " 10.0.0.1", "443", false},

		// IPv4-mapped addresses.
		{"mapped host", "10.0.0.1", "::ffff:10.0.0.1", "443", true},
		{"mapped host in hexadecimal", "10.0.0.0/8", "::ffff:a00:1", "443", true},
		{"mapped host with a zone", "10.0.0.1", "::ffff:10.0.0.1%eth0", "443", true},
		{"mapped item", "::ffff:10.0.0.1", "10.0.0.1", "443", true},
		{"mapped item with a port", "[::ffff:10.0.0.1]:443", "10.0.0.1", "443", true},
		{"mapped network", "::ffff:10.0.0.0/104", "10.1.2.3", "443", true},
		{"mapped network of all", "::ffff:0:0/96", "203.0.113.1", "443", true},
		{"shorter than mapped", "::ffff:0:0/95", "203.0.113.1", "443", false},
		{"all of IPv6 is not IPv4", "::/0", "10.0.0.1", "443", false},
		{"all of IPv6 is not mapped", "::/0", "::ffff:10.0.0.1", "443", false},
		{"all of IPv4 is not IPv6", "0.0.0.0/0", "2001:db8::1", "443", false},
		{"mapped begins with zeros", "10.0.0.1", "2001:db8::ffff:a00:1", "443", false},
		{"compatible is not mapped", "10.0.0.1", "::10.0.0.1", "443", false},

		// Loopback.
		{"localhost", "", "localhost", "443", true},
		{"localhost in upper case", "", "LOCALHOST", "443", false},
		{"localhost in upper case, listed", "localhost", "LOCALHOST", "443", true},
		{"localhost with a dot", "", "localhost.", "443", false},
		{"below localhost", "", "a.localhost", "443", false},
		{"space around localhost", "", " localhost", "443", false},
		{"loopback", "", "127.0.0.1", "443", true},
		{"last loopback", "", "127.255.255.255", "443", true},
		{"after loopback", "", "128.0.0.0", "443", false},
		{"before loopback", "", "126.255.255.255", "443", false},
		{"IPv6 loopback", "", "::1", "443", true},
		{"IPv6 loopback with a zone", "", "::1%lo", "443", true},
		{"not IPv6 loopback", "", "::2", "443", false},
		{"unspecified", "", "::", "443", false},
		{"mapped loopback", "", "::ffff:127.0.0.1", "443", true},
		{"loopback before the list", "127.0.0.1:80", "127.0.0.1", "443", true},

		// Internationalised names.
		{"IDN in both", "bücher.example", "www.bücher.example", "443", true},
		{"IDN in the list", "bücher.example", "xn--bcher-kva.example", "443", true},
		{"IDN in the host", ".xn--bcher-kva.example", "www.BÜCHER.example", "443", true},
		{"IDN, apex", ".bücher.example", "bücher.example", "443", false},
		{"IDN with a port", "bücher.example:80", "bücher.example", "80", true},
		{"invalid IDN as it is", "bü_cher.example", "BÜ_CHER.example", "443", true},
		{"invalid IDN against its ASCII form", "bü_cher.example", "xn--b_cher-3ya.example", "443", false},
		{"ASCII is not validated", "xn--a", "xn--a", "443", true},
		{"full-width localhost", "", "ｌｏｃａｌｈｏｓｔ", "443", true},
		{"full-width address", "10.0.0.0/8", "１０.0.0.1", "443", true},
		{"full-width loopback", "", "１２７。０。０。１", "443", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkBypass(t, tt.list, tt.host, tt.port, tt.want)
		})
	}
}

// TestBrackets is about the one deliberate difference from httpproxy, which
// connects directly to all of these.
func TestBrackets(t *testing.T) {
	for _, host := range []string{"[2001:db8::1]", "a]b.example", "[", "]", "[10.0.0.1]"} {
		for _, list := range []string{"", "10.0.0.0/8,2001:db8::/32,example.com"} {
			if noproxy.Parse(list).Bypass(host, "443") {
				t.Errorf("Parse(%q).Bypass(%q): got true, want false", list, host)
			}
		}
	}
}

// TestEveryByte puts each byte in each place of a name.
func TestEveryByte(t *testing.T) {
	const name = "abcdefgh.abcdefgh"
	for i := range name {
		for c := range 256 {
			host := name[:i] + string([]byte{byte(c)}) + name[i+1:]
			ascii, _ := idna.Lookup.ToASCII(host)
			compareVerdicts(t, ascii, []question{{host, "443"}})
			compareVerdicts(t, host, []question{{host, "443"}})
		}
	}
}

// TestLongNames has names longer than the buffer for folding their case.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("label.", 100) + "example"
	checkBypass(t, "example", long, "443", true)
	checkBypass(t, "example", strings.ToUpper(long), "443", true)
	checkBypass(t, long, strings.ToUpper("www."+long), "443", true)
	checkBypass(t, long, strings.ToUpper("www"+long), "443", false)
	checkBypass(t, "example", strings.Repeat(".", 1<<16), "443", false)
	checkBypass(t, "."+strings.Repeat(".", 1<<15), strings.Repeat(".", 1<<16), "443", true)
}

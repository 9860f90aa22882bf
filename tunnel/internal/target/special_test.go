package target_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel/internal/target"
)

// specialAddrs are what no name may lead to, each with a network that opens it
// and one that is too wide for that. Written against the RFCs and the clouds'
// manuals, not against the table in policy.go.
var specialAddrs = []struct{ addr, opens, wide string }{
	{"127.0.0.1", "127.0.0.0/8", "0.0.0.0/0"},
	{"127.255.255.254", "127.0.0.0/8", "126.0.0.0/7"},
	{"0.0.0.0", "0.0.0.0/32", "0.0.0.0/0"},
	{"0.1.2.3", "0.0.0.0/8", "0.0.0.0/0"},
	{"169.254.1.1", "169.254.0.0/16", "169.0.0.0/8"},
	{"169.254.169.254", "169.254.169.254/32", "169.254.0.0/16"},
	{"169.254.170.2", "169.254.170.2/32", "169.254.0.0/16"},
	{"169.254.170.23", "169.254.170.0/24", "169.254.0.0/16"},
	{"100.100.100.200", "100.100.100.200/32", "100.64.0.0/10"},
	{"192.0.0.192", "192.0.0.192/32", "192.0.0.0/24"},
	{"192.0.0.8", "192.0.0.0/24", "192.0.0.0/8"},
	{"168.63.129.16", "168.63.129.16/32", "168.63.0.0/16"},
	{"224.0.0.1", "224.0.0.0/4", "0.0.0.0/0"},
	{"239.255.255.250", "239.255.255.250/32", "128.0.0.0/1"},
	{"255.255.255.255", "255.255.255.255/32", "0.0.0.0/0"},
	{"240.0.0.1", "240.0.0.0/4", "0.0.0.0/0"},
	{"::", "::/128", "::/104"},
	{"::1", "::1/128", "::/104"},
	{"fe80::1", "fe80::/10", "fe00::/8"},
	{"febf::1", "fe80::/10", "fe00::/8"},
	{"fe80::a9fe:a9fe", "fe80::a9fe:a9fe/128", "fe80::/10"},
	{"fec0::1", "fec0::/10", "fe00::/8"},
	{"ff02::1", "ff02::/16", "fe00::/7"},
	{"fd00:ec2::254", "fd00:ec2::254/128", "fd00::/8"},
	{"fd00:ec2::23", "fd00:ec2::/32", "fd00::/8"},
	{"fd20:ce::254", "fd20:ce::254/128", "fd00::/8"},
	{"fd00:c1::a9fe:a9fe", "fd00:c1::a9fe:a9fe/128", "fd00::/8"},
	{"fd00:42::42", "fd00:42::42/128", "fd00:42::/32"},
	{"::ffff:127.0.0.1", "127.0.0.0/8", "0.0.0.0/0"},
	{"::ffff:169.254.169.254", "169.254.169.254/32", "169.254.0.0/16"},
	{"::127.0.0.1", "::7f00:0/104", "::/96"},
	{"::169.254.169.254", "::a9fe:a9fe/128", "::a9fe:0/112"},
	{"::ffff:0:127.0.0.1", "::ffff:0:7f00:0/104", "::ffff:0:0:0/96"},
	{"64:ff9b::127.0.0.1", "64:ff9b::7f00:0/104", "64:ff9b::/96"},
	{"64:ff9b::169.254.169.254", "64:ff9b::a9fe:a9fe/128", "64:ff9b::/96"},
	{"64:ff9b::100.100.100.200", "64:ff9b::6464:64c8/128", "64:ff9b::/96"},
	{"64:ff9b:1::a00:1", "64:ff9b:1::/96", "64:ff9b::/32"},
	{"2002:7f00:1::1", "2002:7f00::/24", "2002::/16"},
	{"2002:a9fe:a9fe::1", "2002:a9fe:a9fe::/48", "2002:a9fe::/32"},
	{"2001:0:1:2::3", "2001::/32", "2001::/16"},
	{"fe80::1%eth0", "fe80::/10", "fe00::/8"},
}

// ordinary are addresses beside those ranges.
var ordinary = strings.Fields(`10.96.0.1 126.255.255.255 128.0.0.1 1.0.0.0 169.253.255.255 169.255.0.1 100.100.100.201 168.63.129.17
	192.0.1.1 223.255.255.255 192.168.0.1 172.16.0.1 100.64.0.1 8.8.8.8 2001:db8::1 fd00::1 fd00:ec3::1 fc00::1 2600::1
	64:ff9b::10.0.0.1 64:ff9b::8.8.8.8 2002:a00:1::1 2001:1::1 ::10.0.0.1 ::2:7f00:1 fd00:42::43 ::ffff:10.0.0.1`)

func TestSpecialAddresses(t *testing.T) {
	const own = "192.0.2.1:443" // the pattern holds nothing of what is asked for
	try := func(t *testing.T, addr, asked, allow string, want bool) {
		t.Helper()
		n := &targettest.Network{Hosts: map[string]string{"name": addr}}
		conn, err := configThrough(n, target.Config{Allow: []string{own, allow}}).DialTarget(t.Context(), "tcp", asked)
		if err == nil {
			conn.Close()
		}
		if dialed := len(n.Dialed) > 0; dialed != want || !dialed && reasonOf(err) != target.Denied {
			t.Errorf("%s with %s: got %q dialed, %v; want dialed %v", asked, allow, n.Dialed, err, want)
		}
	}
	for _, tt := range specialAddrs {
		t.Run(tt.addr, func(t *testing.T) {
			for _, target := range []string{"name:443", netip.AddrPortFrom(netip.MustParseAddr(tt.addr).WithZone(""), 443).String()} {
				try(t, tt.addr, target, "*:443", false)
				try(t, tt.addr, target, bracket(tt.wide)+":443", false)
				try(t, tt.addr, target, bracket(tt.opens)+":443", true)
				try(t, tt.addr, target, bracket(tt.opens)+":444", false)
			}
		})
	}
	for _, addr := range ordinary {
		t.Run(addr, func(t *testing.T) { try(t, addr, "name:443", "*:443", true) })
	}
}

func bracket(network string) string {
	if strings.Contains(network, ":") {
		return "[" + network + "]"
	}
	return network
}

// Spellings that some resolver takes for an address. Here every name has the
// address that a C library would make of it, and every name is allowed.
func TestOddSpellings(t *testing.T) {
	for _, host := range []string{
		"0x7f.1", "0x7f.0x1", "0X7F.0.0.0x1", "0x7f000001", "0x", "a.0x", "2130706433", "127.1", "127.0.1", "010.0.0.1", "0177.0.0.1",
		"127.0.0.1.", "127.0.0.01", "127.0.0.256", "127.0.0.1.1", "1", "00000", "1e3.7", "a.1",
		"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[::1]", "[::]",
		"[::1%lo]", "[::1%25lo]", "[fe80::1%eth0]", "[::ffff:127.0.0.1%lo]", "::1", "[127.0.0.1]", "[127.1]", "127.0.0.1%lo",
		"\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "\u2460\u2461\u2466.1", "0\uff587f.1", "127.0.0.\u00b9",
		"\u1d38ocalhost", "localhost", "LOCALHOST.", "a.localhost",
		"127.0.0.1:80", "user@127.0.0.1", "127.0.0.1/x", "127.0.0.1#", "127.0.0.1\x00.example", " 127.0.0.1", "127.0.0.1 ", "127。0。0。1", "%31%32%37.0.0.1", "",
	} {
		t.Run(host, func(t *testing.T) {
			n := &targettest.Network{Hosts: map[string]string{"*": "127.0.0.1"}}
			targets := configThrough(n, target.Config{Allow: []string{"*:*", "0.0.0.0/0:*", "[::/0]:*"}})
			_, err := targets.DialTarget(t.Context(), "tcp", host+":443")
			if code := reasonOf(err); code != target.Malformed && code != target.Denied || len(n.Dialed) > 0 {
				t.Errorf("got %v and %q dialed, want an error and nothing dialed", err, n.Dialed)
			}
		})
	}
}

// The same, where what they mean is no special address: a name pattern must
// not allow an address, however that is spelled.
func TestOddSpellingsOfOrdinaryAddresses(t *testing.T) {
	for _, host := range []string{"0xa.1", "0x0a000001", "167772161", "10.1", "012.0.0.1", "10.0.0.1", "[::ffff:10.0.0.1]", "\uff11\uff10.0.0.1", "10。0。0。1", "10.0.0.1."} {
		n := &targettest.Network{Hosts: map[string]string{"*": "10.0.0.1"}}
		_, err := configThrough(n, target.Config{Allow: []string{"*:*"}}).DialTarget(t.Context(), "tcp", host+":443")
		if code := reasonOf(err); code != target.Malformed && code != target.Denied || len(n.Lookups)+len(n.Dialed) > 0 {
			t.Errorf("%s: got %v, %q looked up and %q dialed; want an error and nothing", host, err, n.Lookups, n.Dialed)
		}
	}
}

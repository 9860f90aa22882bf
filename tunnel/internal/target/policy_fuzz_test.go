package target_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel/internal/target"
)

// The seeds of the fuzz target are files: they run with every test.
func TestTargetsFuzzSeeds(t *testing.T) {
	seeds, err := os.ReadDir(filepath.Join("testdata", "fuzz", "FuzzTargets"))
	if err != nil || len(seeds) < 10 {
		t.Errorf("got %d seeds, %v", len(seeds), err)
	}
}

// FuzzTargets: whatever is allowed, asked for and resolved, what is dialed is
// an address that the resolver or the target named, on a port that was asked
// for; it is not a special one unless a network that was written down, or an
// alias, holds it; and a target that was asked for as an address needs one of
// these as well. Lists are separated by spaces.
func FuzzTargets(f *testing.F) {
	f.Fuzz(func(t *testing.T, allow, aliasFrom, aliasTo, asked string, resolved []byte) {
		n := &targettest.Network{}
		targets := configThrough(n, target.Config{Allow: strings.Fields(allow)})
		if aliasFrom+aliasTo != "" {
			targets.Aliases = map[string]string{aliasFrom: aliasTo}
		}
		addrs := addresses(resolved)
		targets.Resolver = targettest.Resolver(func(context.Context, string) ([]netip.Addr, error) { return addrs, nil })
		conn, err := targets.DialTarget(t.Context(), "tcp", asked)
		if err == nil {
			conn.Close()
		} else if reasonOf(err) != 0 && strings.ContainsAny(err.Error(), "\n\x00\x1b") {
			t.Fatalf("got %q, want a printable error", err)
		}
		for _, dialed := range n.Dialed {
			a, err := netip.ParseAddrPort(dialed)
			if err != nil {
				t.Fatalf("got %q dialed, want an address and a port", dialed)
			}
			checkDialed(t, a, strings.Fields(allow), aliasTo, asked, addrs)
		}
	})
}

func checkDialed(t *testing.T, a netip.AddrPort, allow []string, aliasTo, asked string, resolved []netip.Addr) {
	t.Helper()
	aliased, err := netip.ParseAddrPort(aliasTo)
	if err == nil && netip.AddrPortFrom(aliased.Addr().Unmap(), aliased.Port()) == a || strings.HasPrefix(strings.ToLower(aliasTo), "localhost") && a.Addr().IsLoopback() {
		return
	}
	if port := fmt.Sprint(":", a.Port()); !strings.HasSuffix(asked, port) && !strings.HasSuffix(aliasTo, port) {
		t.Errorf("dialed %v, asked for %s", a, asked)
	}
	written := slices.ContainsFunc(allow, func(entry string) bool { return entryHolds(entry, a) })
	literalAddr, err := netip.ParseAddrPort(asked)
	literal := err == nil && literalAddr.Addr().Unmap() == a.Addr()
	if !literal && !slices.ContainsFunc(resolved, func(r netip.Addr) bool { return r.WithZone("").Unmap() == a.Addr() }) {
		t.Errorf("dialed %v, which nobody named", a)
	}
	if literal && !written {
		t.Errorf("dialed %v, an address that %q does not hold", a, allow)
	}
	if isSpecial(a.Addr()) && !written {
		t.Errorf("dialed %v, special and not in %q", a, allow)
	}
}

// entryHolds reports whether a pattern is a network with the address.
func entryHolds(entry string, a netip.AddrPort) bool {
	host, _, err := net.SplitHostPort(entry)
	if err != nil {
		return false
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr == a.Addr()
	}
	network, err := netip.ParsePrefix(host)
	return err == nil && network.Contains(a.Addr())
}

// addresses cuts bytes into addresses: a byte that says which form, then it.
func addresses(b []byte) []netip.Addr {
	var list []netip.Addr
	for len(b) > 0 {
		size := 4
		if b[0]&1 == 1 {
			size = 16
		}
		if len(b) < 1+size {
			break
		}
		a, _ := netip.AddrFromSlice(b[1 : 1+size])
		if b[0]&2 == 2 && size == 16 {
			a = a.WithZone("eth0")
		}
		list, b = append(list, a), b[1+size:]
	}
	return list
}

// isSpecial says what a name must not lead to, by other means than the code
// under test: the standard library's, and the table of TestSpecialAddresses.
func isSpecial(a netip.Addr) bool {
	if a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		return true
	}
	for _, s := range specialAddrs {
		if netip.MustParseAddr(s.addr).WithZone("").Unmap() == a {
			return true
		}
	}
	if a.Is4() {
		b := a.As4()
		return b[0] == 0 || b[0] >= 240
	}
	b := a.As16()
	text := a.StringExpanded()
	switch {
	case strings.HasPrefix(text, "0064:ff9b:0000:0000:0000:0000:"), strings.HasPrefix(text, "0000:0000:0000:0000:0000:0000:"), strings.HasPrefix(text, "0000:0000:0000:0000:ffff:0000:"):
		return isSpecial(netip.AddrFrom4([4]byte(b[12:])))
	case strings.HasPrefix(text, "2002:"):
		return isSpecial(netip.AddrFrom4([4]byte(b[2:6])))
	}
	return false
}

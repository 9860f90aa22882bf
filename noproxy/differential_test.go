package noproxy_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/noproxy"
)

// askable returns the URL with which httpproxy is asked about host and port,
// and false if there is none. Brackets are the one known difference.
func askable(host, port string) (*url.URL, bool) {
	u := &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}
	ok := port != "" && !strings.ContainsAny(host, "[]") && u.Hostname() == host && u.Port() == port
	return u, ok
}

type question struct{ host, port string }

// compareVerdicts asks both implementations and returns how many questions
// they had in common, and how many of them were answered with a bypass.
func compareVerdicts(t *testing.T, list string, questions []question) (asked, bypassed int) {
	t.Helper()
	rules, proxy := noproxy.Parse(list), proxyFunc(list)
	for _, q := range questions {
		u, ok := askable(q.host, q.port)
		if !ok {
			continue
		}
		p, err := proxy(u)
		if err != nil {
			t.Fatalf("httpproxy with %q about %q: %v", list, u.Host, err)
		}
		want := p == nil
		if got := rules.Bypass(q.host, q.port); got != want {
			t.Errorf("Parse(%q).Bypass(%q, %q): got %v, want %v", list, q.host, q.port, got, want)
		}
		asked++
		if want {
			bypassed++
		}
	}
	return asked, bypassed
}

// TestBypassLikeHTTPProxy compares random lists. Its seed is fixed: the fuzz
// target is where new cases are found.
func TestBypassLikeHTTPProxy(t *testing.T) {
	const want = 300_000
	g := generator{rand.New(rand.NewPCG(1, 2))}
	asked, bypassed := 0, 0
	for asked < want && !t.Failed() {
		items := g.items()
		questions := make([]question, 8+2*len(items))
		for i := range questions {
			questions[i] = g.question(items)
		}
		a, b := compareVerdicts(t, strings.Join(items, ","), questions)
		asked, bypassed = asked+a, bypassed+b
	}
	// A generator that never hits, or always does, would compare nothing.
	if share := float64(bypassed) / float64(asked); share < 0.2 || share > 0.8 {
		t.Errorf("got %.2f of %d verdicts a bypass, want 0.2 to 0.8", share, asked)
	}
}

// FuzzBypassLikeHTTPProxy compares the strings as they are, and then a list
// that is grown from them and the seed, with questions that are close to it.
func FuzzBypassLikeHTTPProxy(f *testing.F) {
	for i, v := range loadVectors(f) { // fails if there are none
		f.Add(v.NoProxy, v.Host, v.Port, uint64(i))
	}
	f.Fuzz(func(t *testing.T, list, host, port string, seed uint64) {
		questions := []question{{host, port}}
		compareVerdicts(t, list, questions)

		g := generator{rand.New(rand.NewPCG(seed, uint64(len(list))))}
		items := append(g.items(), strings.Split(list, ",")...)
		items = append(items, host, host+":"+port)
		g.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		for range 16 {
			questions = append(questions, g.question(items))
		}
		compareVerdicts(t, strings.Join(items, ","), questions)
	})
}

// generator makes lists and questions that are likely to meet.
type generator struct{ *rand.Rand }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

// items returns the items of a list: mostly few, sometimes hundreds of
// addresses that lie close together.
func (g generator) items() []string {
	items := make([]string, g.IntN(12))
	if g.IntN(50) == 0 {
		items = make([]string, 100+g.IntN(300))
		for i := range items {
			items[i] = g.network(g.addr())
		}
		return items
	}
	for i := range items {
		items[i] = g.item()
	}
	return items
}

func (g generator) item() string {
	var item string
	switch g.IntN(16) {
	case 0:
		item = pick(g, "", " ", ".", "..", "*.", "[]:80", ":80", "*:80", "/8", "10.0.0", "[::1", "10.0.0.0/33",
			"fe80::1%eth0", "2001:db8::/129", "10.0.0.0/8:80", "[2001:db8::]/32", "[fe80::1%eth0]:80", "a:b:c", "a/b")
	case 1, 2, 3:
		item = g.network(g.addr())
	case 4, 5:
		item = g.addr().String()
	case 6, 7:
		item = net.JoinHostPort(g.addr().String(), g.port())
	case 8:
		item = "[" + g.addr().String() + "]" + pick(g, "", ":", ":80")
	case 9:
		item = g.name() + ":" + g.port()
	default:
		item = pick(g, "", "", ".", "*.", "*", "..") + g.name()
	}
	switch g.IntN(40) {
	case 0:
		return "*"
	case 1:
		return strings.ToUpper(item)
	case 2:
		return pick(g, " ", "\t", "\u00a0", "\u3000") + item + pick(g, "", " ", "\n")
	}
	return item
}

func (g generator) name() string {
	labels := make([]string, 1+g.IntN(4))
	for i := range labels {
		labels[i] = pick(g, "a", "b", "svc", "svc", "com", "com", "example", "cluster", "local", "localhost", "10", "1",
			"bücher", "xn--bcher-kva", "BÜ_CHER", "ß", "K", "Com", "１", "-", "_", "*", "", "\xff", "１２７", "a b")
	}
	return strings.Join(labels, pick(g, ".", ".", ".", ".", ".", "。"))
}

func (g generator) addr() netip.Addr {
	low := byte(g.IntN(8))
	four := pick(g,
		[4]byte{10, 0, low, byte(g.Uint32())},
		[4]byte{10, 0, 0, low},
		[4]byte{0, 0, 0, low},
		[4]byte{255, 255, 255, 255 - low},
		[4]byte{127, 255, 255, 255 - low},
		[4]byte{byte(g.Uint32()), byte(g.Uint32()), byte(g.Uint32()), byte(g.Uint32())})
	if g.IntN(2) == 0 {
		return netip.AddrFrom4(four)
	}
	var six [16]byte
	switch g.IntN(5) {
	case 0: // mapped
		six = netip.AddrFrom4(four).As16()
	case 1: // the highest
		for i := range six {
			six[i] = 0xff
		}
		six[15] -= low
	case 2: // the lowest
		six[15] = low
	case 3: // around the middle, and the mapped ones
		six[7], six[11], six[15] = pick[byte](g, 0, 1, 0xff), pick[byte](g, 0, 0xff), low
	default:
		six = [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: low}
	}
	return netip.AddrFrom16(six)
}

func (g generator) network(a netip.Addr) string {
	size := a.BitLen() - g.IntN(12)
	if g.IntN(4) == 0 {
		size = g.IntN(a.BitLen() + 1)
	}
	return fmt.Sprintf(pick(g, "%s/%d", "%s/%d", "%s/%03d"), a, size)
}

func (g generator) port() string { return pick(g, "80", "443", "080", "8443") }

// question returns one about a random host, or one next to an item.
func (g generator) question(items []string) question {
	q := question{host: g.name(), port: g.port()}
	if g.IntN(4) == 0 {
		q.host = g.addr().String()
	}
	if len(items) == 0 || g.IntN(4) == 0 {
		return q
	}
	item := strings.TrimSpace(items[g.IntN(len(items))])
	if p, err := netip.ParsePrefix(item); err == nil {
		q.host = g.nearAddr(p)
		return q
	}
	if host, port, err := net.SplitHostPort(item); err == nil {
		item, q.port = host, pick(g, port, port, q.port)
	}
	if a, err := netip.ParseAddr(item); err == nil {
		q.host = g.nearAddr(netip.PrefixFrom(a, a.BitLen()))
		return q
	}
	q.host = g.nearName(strings.TrimPrefix(item, "*"))
	return q
}

// nearAddr returns an address at or beside an end of p.
func (g generator) nearAddr(p netip.Prefix) string {
	first := p.Masked().Addr()
	end := first.AsSlice()
	for bit := p.Bits(); bit < first.BitLen(); bit++ {
		end[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(end)
	a := pick(g, first, first.Prev(), last, last.Next(), p.Addr())
	if !a.IsValid() { // past the end of the family
		a = first
	}
	if a.Is4() && g.IntN(4) == 0 {
		a = netip.AddrFrom16(a.As16())
	}
	if a.Is6() && g.IntN(4) == 0 {
		a = a.WithZone("eth0")
	}
	return a.String()
}

func (g generator) nearName(name string) string {
	bare := strings.TrimPrefix(name, ".")
	host := pick(g, name, bare, "www."+bare, "www"+bare, "a.b."+bare, bare+".", "."+name, strings.TrimSuffix(bare, "."))
	switch g.IntN(8) {
	case 0:
		return strings.ToUpper(host)
	case 1:
		return " " + host
	}
	return host
}

package tunnel

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Membership says where the replicas of a Server are. In Kubernetes they are
// the endpoints of its Service.
type Membership interface {
	// Watch calls set with the addresses of all replicas, at once and after
	// each change, until ctx ends. They are what [Server.PeerTransport] takes;
	// this replica's own may be among them: it is found out. Set does not
	// block; what it is given replaces what it was given before. Dials that
	// find no agent wait for the first call, even if it has no addresses and if
	// Watch has failed before, for 5 seconds at most. An error, or a return
	// before ctx has ended, is a reason to call Watch again a little later;
	// meanwhile the addresses stay, and dials that find no agent have the
	// error's text.
	Watch(ctx context.Context, set func(addresses []string)) error
}

// StaticPeers is a Membership that does not change but in what its names stand
// for. Each is host:port, where all addresses of the host are replicas (those
// of a headless Service, say; they are looked up every 10 seconds), or a ws or
// wss URL, or another form that [Server.PeerTransport] takes, such as a name
// without a port. A host that can't be looked up is left as it is. It is safe
// for concurrent use.
type StaticPeers []string

var _ Membership = StaticPeers(nil)

// resolveEvery is less than what a resolver keeps names of pods for.
const resolveEvery = 10 * time.Second

// Watch returns when ctx ends.
func (p StaticPeers) Watch(ctx context.Context, set func(addresses []string)) error {
	return p.watch(ctx, set, net.DefaultResolver.LookupHost)
}

type lookupFunc func(ctx context.Context, host string) ([]string, error)

func (p StaticPeers) watch(ctx context.Context, set func([]string), lookup lookupFunc) error {
	known := map[string][]string{} // by entry
	var last []string
	for first := true; ctx.Err() == nil; first = false {
		var all []string
		for _, entry := range p {
			all = append(all, resolvePeers(ctx, entry, known, lookup)...)
		}
		slices.Sort(all)
		if all = slices.Compact(all); ctx.Err() == nil && (first || !slices.Equal(all, last)) {
			set(all)
			last = all
		}
		sleep(ctx, resolveEvery)
	}
	return ctx.Err()
}

// resolvePeers returns the addresses of one entry. While its name can't be
// looked up they are the former ones, or the name: who dials it says why.
func resolvePeers(ctx context.Context, entry string, known map[string][]string, lookup lookupFunc) []string {
	host, port, err := net.SplitHostPort(entry)
	if _, addrErr := netip.ParseAddr(host); strings.Contains(entry, "://") || err != nil || addrErr == nil {
		return []string{entry}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveEvery)
	defer cancel()
	hosts, err := lookup(ctx, host)
	if err == nil && len(hosts) > 0 {
		known[entry] = nil
		for _, h := range hosts {
			known[entry] = append(known[entry], net.JoinHostPort(h, port))
		}
	}
	if known[entry] == nil {
		return []string{entry}
	}
	return known[entry]
}

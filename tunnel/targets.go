package tunnel

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/target"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Resolver finds the addresses of a name. A [*net.Resolver] is one, and so is
// what dialer.LookupDNS returns. It has to heed its context, and to be safe for
// concurrent use.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

var _ Resolver = (*net.Resolver)(nil)

// Targets say what an agent dials, and how. The zero value allows
// kubernetes.default.svc:443 and nothing else.
//
// A target is checked after its name was resolved, and the address that was
// checked is the one that is dialed: a name that changes its mind between the
// two has no say. An address is dialed if
//
//   - a network pattern holds it, or
//   - a name pattern holds the name that was asked for, and the address is not
//     a special one: loopback, unspecified, link-local, multicast, broadcast
//     and reserved ones, cloud metadata services, and those again in the IPv6
//     forms that embed an IPv4 address (NAT64, 6to4 and their like).
//
// A network pattern allows special addresses if it is no wider than their
// range, so that it was written for them: 127.0.0.0/8 and 127.0.0.1 allow
// loopback, 0.0.0.0/0 does not; 169.254.0.0/16 allows link-local addresses, and
// the metadata service among them takes a pattern of its own.
//
// Targets are not written to; an [Agent] reads them once.
type Targets struct {
	// Allow are patterns of host:port. If empty, "kubernetes.default.svc:443".
	//
	//	kubernetes.default.svc:443  the name; case and a final dot don't count
	//	*.svc:443                   all names below svc, not svc itself
	//	*:443                       all names, and no address that was asked for as one
	//	10.0.0.1:443                the address
	//	10.0.0.0/8:10250            the addresses of the network
	//	[2001:db8::1]:443           the address
	//	[2001:db8::/32]:443         the addresses of the network
	//	10.0.0.1:1-1024             the address, on these ports
	//	10.0.0.1:*                  the address, on all ports
	//
	// An internationalised name is as good as its ASCII form. A name is
	// compared as it is asked for: one that the pod's search list completes
	// is not the completed one. Names without a pattern are looked up where
	// a network pattern has the port, and not at all otherwise.
	Allow []string
	// Aliases are addresses that are dialed instead of a target, such as
	// "10.96.0.1:443" for "kubernetes.default.svc:443". They need no pattern
	// in Allow. An address, or localhost, is dialed as it is written here,
	// for an agent outside of a pod; another name is resolved, and must not
	// lead to a special address. There are no aliases of aliases. May be nil.
	Aliases map[string]string
	// Resolver looks names up. If nil, net.DefaultResolver.
	Resolver Resolver
	// Dial connects to an address, which is never a name. It has to heed its
	// context. If nil, a net.Dialer.
	Dial DialFunc
	// Timeout is for one target, its name's resolution and all its addresses
	// together. If zero, 10 seconds.
	Timeout time.Duration
}

// compile checks t. The *Error has CodeConfig, and names the field and entry.
func (t *Targets) compile() (*target.Policy, error) {
	policy, err := target.Config{
		Allow: t.Allow, Aliases: t.Aliases, Resolver: t.Resolver, Dial: t.Dial, Timeout: t.Timeout,
	}.Compile()
	if err != nil {
		return nil, configError("%w", err)
	}
	return policy, nil
}

var targetCodes = map[target.Reason]Code{
	target.Failed:      CodeInternal,
	target.Malformed:   CodeBadRequest,
	target.Denied:      CodeDenied,
	target.NotFound:    CodeNotFound,
	target.Refused:     CodeRefused,
	target.Reset:       CodeReset,
	target.Unreachable: CodeUnreachable,
	target.TimedOut:    CodeTimeout,
	target.Canceled:    CodeCanceled,
}

// dialTarget dials what a server asks for.
func dialTarget(ctx context.Context, policy *target.Policy, network, address string) (net.Conn, error) {
	conn, err := policy.Dial(ctx, network, address)
	if err != nil {
		return nil, &Error{Op: "dial", Addr: wire.Printable(address), Code: targetCodes[err.Reason], Err: err.Err}
	}
	return conn, nil
}

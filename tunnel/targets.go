package tunnel

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel/internal/target"
)

// Resolver finds the addresses of a name. A [*net.Resolver] is one. It must return when its context ends, and be safe for concurrent use.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

var _ Resolver = (*net.Resolver)(nil)

// Targets say what an agent dials, and how. The zero value allows
// kubernetes.default.svc:443 and nothing else.
//
// The name of a target is resolved first. Then the addresses are checked, and exactly
// those that passed are dialed: it does not help to change what a name resolves to
// after the check. An address is dialed if
//
//   - a network pattern matches it, or
//   - a name pattern matches the name in the request, and the address is not
//     special: loopback, unspecified, link-local, multicast, broadcast, reserved,
//     the metadata service of a cloud, or one of those in an IPv6 form that embeds
//     an IPv4 address (NAT64, 6to4 and others).
//
// A network pattern allows special addresses only if it is not wider than their
// range: 127.0.0.0/8 and 127.0.0.1 allow loopback, 0.0.0.0/0 does not. 169.254.0.0/16
// allows link-local addresses, but the metadata service among them needs a pattern of
// its own.
//
// An [Agent] reads Targets once, and does not change them; see [Agent.SetTargets].
type Targets struct {
	// Allow are patterns of host:port. If empty, "kubernetes.default.svc:443".
	//
	//	kubernetes.default.svc:443  the name; case and a final dot don't count
	//	*.svc:443                   all names below svc, not svc itself
	//	*:443                       all names, but not addresses in the request
	//	10.0.0.1:443                the address
	//	10.0.0.0/8:10250            the addresses of the network
	//	[2001:db8::1]:443           the address
	//	[2001:db8::/32]:443         the addresses of the network
	//	10.0.0.1:1-1024             the address, on these ports
	//	10.0.0.1:*                  the address, on all ports
	//
	// An internationalised name is the same as its ASCII form. A name is compared
	// as it is in the request, and not as the pod's search list completes it. A
	// name that no pattern matches is looked up only if a network pattern has the
	// port.
	Allow []string
	// Aliases map a target to the host:port that is dialed in its place, such as
	// "kubernetes.default.svc:443" to "10.96.0.1:443". They need no pattern in Allow.
	// An address, or localhost, is dialed as it is, even if it is special: an agent
	// may run outside of a pod. Another name is resolved, and its special addresses
	// are not dialed. An alias of an alias is not followed. May be nil.
	Aliases map[string]string
	// Resolver looks names up. If nil, net.DefaultResolver.
	Resolver Resolver
	// Dial connects to an address, never to a name. It must return when its context
	// ends. If nil, a net.Dialer.
	Dial DialFunc
	// Timeout limits the dial of one target: resolution and all addresses together.
	// If zero, 10 seconds.
	Timeout time.Duration
}

// compile checks t. The *Error has CodeConfig, and names the field and the entry.
func (t *Targets) compile() (*target.Policy, error) {
	policy, err := target.Config{
		Allow: t.Allow, Aliases: t.Aliases, Resolver: t.Resolver, Dial: t.Dial, Timeout: t.Timeout,
	}.Compile()
	if err != nil {
		return nil, configError("%w", err)
	}
	return policy, nil
}

// dialTarget dials what a server asks for.
func dialTarget(ctx context.Context, policy *target.Policy, network, address string) (net.Conn, error) {
	conn, err := policy.Dial(ctx, network, address)
	if err != nil {
		return nil, &Error{Op: "dial", Addr: printable.Text(address, printable.Most), Code: Code(err.Reason), Err: err.Err}
	}
	return conn, nil
}

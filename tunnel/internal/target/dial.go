package target

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/race"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

// maxAddrs is how many addresses of a name are tried: more than any honest name
// has, and too few to keep an agent busy.
const maxAddrs = 16

// Reason says why a target was not reached. It is the code of the answer, as in SPEC.md:
// package tunnel has all.
type Reason uint32

const (
	Failed      Reason = 1 // for a reason that is not below
	Denied      Reason = 2 // by the policy
	Refused     Reason = 3 // by the target
	NotFound    Reason = 4 // the name has no address
	TimedOut    Reason = 5
	Unreachable Reason = 6   // there is no route
	Malformed   Reason = 9   // the address, or the network
	Reset       Reason = 10  // by the target
	Canceled    Reason = 134 // by the caller
)

// Error is the error of a dial. Its text holds no address that the caller did
// not name, since it goes to the server; its cause does, for the agent's hooks.
type Error struct {
	Reason Reason
	Err    error // nil if Reason says it all
}

func (e *Error) Error() string {
	if e.Err == nil {
		return "the policy does not allow the target"
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// discreetError is a cause without the addresses in its text.
type discreetError struct {
	text string
	err  error
}

func (e discreetError) Error() string { return e.text }
func (e discreetError) Unwrap() error { return e.err }

// Dial connects to a target that is allowed. It resolves a name once, checks the
// addresses, and dials only those that passed: a name server can't give one answer
// to the check and another one to the dial.
func (p *Policy) Dial(ctx context.Context, network, address string) (net.Conn, *Error) {
	if network != "tcp" {
		return nil, &Error{Malformed, net.UnknownNetworkError(network)}
	}
	e, host, err := parseEndpoint(address)
	if err != nil {
		return nil, &Error{Malformed, err}
	}
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	addrs, err := p.resolve(limited, e, host)
	if err == nil && len(addrs) == 0 {
		return nil, &Error{Reason: Denied}
	}
	var conn net.Conn
	if err == nil {
		conn, err = p.dialFirst(limited, addrs)
	}
	switch {
	case err == nil:
		socket.Tune(conn)
		return conn, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, &Error{Canceled, discreetError{ctx.Err().Error(), ended.Error(ctx, err)}}
	case ctx.Err() != nil:
		return nil, &Error{TimedOut, discreetError{ctx.Err().Error(), ended.Error(ctx, err)}}
	case limited.Err() != nil:
		return nil, &Error{TimedOut, discreetError{"not within " + p.timeout.String(), err}}
	}
	reason, text := explainFailure(err, len(addrs) == 0)
	return nil, &Error{reason, discreetError{text, err}}
}

// resolve returns the addresses of a target that may be dialed, in their
// order. No address and no error: the target is denied.
func (p *Policy) resolve(ctx context.Context, e endpoint, host string) ([]netip.AddrPort, error) {
	byName := slices.ContainsFunc(p.patterns, func(pat pattern) bool { return pat.matchesName(e) })
	if a, ok := p.aliases[e]; ok {
		if len(a.addrs) > 0 {
			return withPort(a.addrs, a.to.port), nil
		}
		e, host, byName = a.to, a.host, true
	}
	addrs := []netip.Addr{e.addr}
	if !e.addr.IsValid() {
		// Don't tell a DNS server of a name that nothing can allow.
		if !byName && !slices.ContainsFunc(p.patterns, func(pat pattern) bool { return pat.network.IsValid() && pat.ports.has(e.port) }) {
			return nil, nil
		}
		var err error
		if addrs, err = p.lookup(ctx, host); err != nil {
			return nil, err
		}
	}
	allowed := slices.DeleteFunc(withPort(addrs, e.port), func(a netip.AddrPort) bool { return !p.allowsAddr(a, byName) })
	return allowed[:min(len(allowed), maxAddrs)], nil
}

// lookup returns the addresses of a name, at least one. They have no zones, no
// IPv4-mapped forms and no duplicates.
func (p *Policy) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	found, err := p.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range found {
		a = a.WithZone("").Unmap()
		if a.IsValid() && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return nil, errors.New("no addresses")
	}
	return addrs, nil
}

func withPort(addrs []netip.Addr, port uint16) []netip.AddrPort {
	list := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		list[i] = netip.AddrPortFrom(a, port)
	}
	return list
}

// unreachable are the kernel's errors if there is no route, or if a firewall
// forbids the connection (a local one: EACCES and EPERM).
var unreachable = []syscall.Errno{
	syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN,
	syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT, syscall.EACCES, syscall.EPERM, syscall.EINVAL,
}

// explainFailure returns why a target was not found, or not reached, and the text
// that the server may see.
func explainFailure(err error, notFound bool) (Reason, string) {
	var (
		dns   *net.DNSError
		errno syscall.Errno
	)
	late := ended.TimedOut(err)
	switch {
	case notFound && late:
		return TimedOut, "the name server did not answer"
	case errors.As(err, &dns) && !dns.IsNotFound:
		return NotFound, "the name server failed"
	case notFound:
		return NotFound, "no such host"
	case late:
		return TimedOut, "no answer"
	case !errors.As(err, &errno):
		return Failed, "the connection failed"
	case errno == syscall.ECONNREFUSED:
		return Refused, errno.Error()
	case errno == syscall.ECONNRESET:
		return Reset, errno.Error()
	case slices.Contains(unreachable, errno):
		return Unreachable, errno.Error()
	}
	return Failed, errno.Error()
}

// attemptDelay is how long one address is tried before the next one is tried
// beside it (RFC 8305, section 5).
const attemptDelay = 250 * time.Millisecond

// dialFirst connects to the first of the addresses that answers. It begins to
// dial them in their order, the next one as soon as one has failed, or after
// attemptDelay: so a dead address costs little, and a live one gets no dials
// that nobody needs. The error is that of the first address. All attempts have
// ended when it returns.
func (p *Policy) dialFirst(ctx context.Context, addrs []netip.AddrPort) (net.Conn, error) {
	errs := make([]error, len(addrs))
	conn := race.Dial(ctx, len(addrs), func(int) time.Duration { return attemptDelay }, func(ctx context.Context, i int) race.Attempt {
		conn, err := p.dialAddr(ctx, "tcp", addrs[i].String())
		return race.Attempt{Conn: conn, Err: err}
	}, func(i int, err error) { errs[i] = err })
	if conn == nil {
		return nil, errs[0]
	}
	return conn, nil
}

package tunnel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxAddrs is how many addresses of a name are tried: more than any honest one
// has, and less than what keeps an agent busy.
const maxAddrs = 16

// dial connects to a target that is allowed. The *Error has Op "dial" and says
// nothing of addresses but the one that was asked for; its cause does, for the
// agent's own hooks.
func (t *targets) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if network != "tcp" {
		return nil, dialError(address, CodeBadRequest, net.UnknownNetworkError(network))
	}
	e, host, err := parseEndpoint(address)
	if err != nil {
		return nil, dialError(address, CodeBadRequest, err)
	}
	limited, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	addrs, err := t.resolve(limited, e, host)
	if err == nil && len(addrs) == 0 {
		return nil, dialError(address, CodeDenied, nil)
	}
	var conn net.Conn
	if err == nil {
		conn, err = t.race(limited, addrs)
	}
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, dialError(address, CodeCanceled, ctx.Err())
	case ctx.Err() != nil:
		return nil, dialError(address, CodeTimeout, ctx.Err())
	case limited.Err() != nil:
		return nil, dialError(address, CodeTimeout, discreet{"not within " + t.timeout.String(), err})
	}
	code, text := dialFailure(err)
	return nil, dialError(address, code, discreet{text, err})
}

// resolve returns the addresses of a target that may be dialed, in their
// order. None and no error: it is denied.
func (t *targets) resolve(ctx context.Context, e endpoint, host string) ([]netip.AddrPort, error) {
	named := t.named(e)
	if a, ok := t.aliases[e]; ok {
		if len(a.addrs) > 0 {
			return withPort(a.addrs, a.to.port), nil
		}
		e, host, named = a.to, a.host, true
	}
	addrs := []netip.Addr{e.addr}
	if !e.addr.IsValid() {
		// A name that nothing can allow is not worth telling a DNS server of.
		if !named && !t.anyNetwork(e.port) {
			return nil, nil
		}
		var err error
		if addrs, err = t.lookup(ctx, host); err != nil {
			return nil, err
		}
	}
	allowed := slices.DeleteFunc(withPort(addrs, e.port), func(a netip.AddrPort) bool { return !t.permits(a, named) })
	return allowed[:min(len(allowed), maxAddrs)], nil
}

// lookup returns the addresses of a name, without zones, doubles and mapped
// forms. There is at least one.
func (t *targets) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	found, err := t.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, &lookupError{err}
	}
	var addrs []netip.Addr
	for _, a := range found {
		a = a.WithZone("").Unmap()
		if a.IsValid() && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return nil, &lookupError{errors.New("no addresses")}
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

type lookupError struct{ err error }

func (e *lookupError) Error() string { return e.err.Error() }
func (e *lookupError) Unwrap() error { return e.err }

// discreet is a cause without the addresses in its text.
type discreet struct {
	text string
	err  error
}

func (e discreet) Error() string { return e.text }
func (e discreet) Unwrap() error { return e.err }

func dialError(address string, code Code, cause error) *Error {
	return &Error{Op: "dial", Addr: wire.Printable(address), Code: code, Err: cause}
}

// unreachable are what the kernel says without a route, or with a firewall in
// the way (EACCES and EPERM are those of a local one).
var unreachable = []syscall.Errno{
	syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN,
	syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT, syscall.EACCES, syscall.EPERM, syscall.EINVAL,
}

// dialFailure returns the code of a failure to find or to reach a target, and
// what the other side may know of it.
func dialFailure(err error) (Code, string) {
	var (
		lookup  *lookupError
		dns     *net.DNSError
		timeout net.Error
		errno   syscall.Errno
	)
	late := errors.As(err, &timeout) && timeout.Timeout()
	switch {
	case errors.As(err, &lookup) && late:
		return CodeTimeout, "the name server did not answer"
	case errors.As(err, &dns) && !dns.IsNotFound:
		return CodeNotFound, "the name server failed"
	case errors.As(err, &lookup):
		return CodeNotFound, "no such host"
	case late:
		return CodeTimeout, "no answer"
	case !errors.As(err, &errno):
		return CodeInternal, "the connection failed"
	case errno == syscall.ECONNREFUSED:
		return CodeRefused, errno.Error()
	case errno == syscall.ECONNRESET:
		return CodeReset, errno.Error()
	case slices.Contains(unreachable, errno):
		return CodeUnreachable, errno.Error()
	}
	return CodeInternal, errno.Error()
}

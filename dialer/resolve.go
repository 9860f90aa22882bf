package dialer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/causewayproject/causeway/internal/printable"
)

// Resolver finds the addresses of a name. A [*net.Resolver] is one, and [LookupDNS]
// returns one that asks another DNS server.
type Resolver interface {
	// LookupNetIP returns the addresses of host. network is "ip", "ip4" or "ip6". For a
	// name that does not exist it returns a [*net.DNSError] with IsNotFound. It must
	// return when ctx ends, and be safe for concurrent use.
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

var _ Resolver = (*net.Resolver)(nil)

// Resolve looks names up in this process, and dials their addresses with Forward. Use
// it in front of a proxy or a tunnel that knows other names, or none. Without Resolve
// the proxy looks names up.
//
// Several addresses are tried as RFC 8305 says, IPv6 and IPv4 in turn and at most 16:
// the next one 300 ms after the one before it, or at once if that has failed, until
// one connects or ctx ends. For a SOCKS5 proxy use SOCKS5.Resolver instead: it stops
// when the proxy itself fails, and does not send a refused password 16 times.
//
// A Resolve is safe for concurrent use once its fields are set. It calls Forward from
// several goroutines at once. The zero Resolve dials directly.
type Resolve struct {
	// Resolver finds the addresses. If nil, it is net.DefaultResolver.
	Resolver Resolver
	// Allow reports whether an address of host may be dialed. It is also called if
	// host is an address. It must be safe for concurrent use. If nil, all may be.
	Allow func(host string, addr netip.Addr) bool
	// Forward dials the addresses. If nil, it is Direct{}.
	Forward Dialer
}

var _ Forwarder = (*Resolve)(nil)

const opResolve = "resolve"

// errNotAllowed wraps EACCES, which callers can test for.
var errNotAllowed = fmt.Errorf("field Allow lets none of the addresses be dialed: %w", syscall.EACCES)

// DialContext looks up the name in address, a host:port, and dials its addresses. An
// address instead of a name is dialed at once; the error is then Forward's.
//
// Otherwise the error is an [*Error]. If no address was found, or Allow lets none be
// dialed (syscall.EACCES), it is one of [PhaseDNS]. If the dials failed, errors.As
// finds [Failures] in it, with a member for each address. If the Resolver dials a name
// by this Resolve, the cause is [ErrLoop].
func (d *Resolve) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	fail := func(phase Phase, err error) error {
		return &Error{Op: opResolve, Phase: phase, Addr: address, Err: contextError(ctx, err)}
	}
	host, port, err := net.SplitHostPort(address)
	if addr, notAddr := netip.ParseAddr(host); err == nil && notAddr == nil {
		if !d.allowsAddr(host, addr) {
			return nil, fail(PhaseDNS, errNotAllowed)
		}
		return forwardOrDirect(d.Forward).DialContext(ctx, network, address)
	}
	t, err := parseTarget(network, address)
	if err == nil && isLooping(ctx, d) {
		err = ErrLoop
	}
	if err != nil {
		return nil, fail(PhaseConfig, err)
	}
	addrs, err := d.resolveName(ctx, network, t.host, address)
	if err != nil {
		return nil, fail(PhaseDNS, err)
	}
	return dialAddrs(ctx, network, address, addrs, alwaysRetry, func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
		return forwardOrDirect(d.Forward).DialContext(ctx, network, net.JoinHostPort(addr.String(), port))
	})
}

func alwaysRetry(error) bool { return true }

// WithForward returns a copy of d with this Forward. It returns an error if d has one
// already, which would be ignored.
func (d *Resolve) WithForward(forward Dialer) (Dialer, error) {
	if d.Forward != nil {
		return nil, errForward
	}
	c := *d
	c.Forward = forward
	return &c, nil
}

func (d *Resolve) allowsAddr(host string, addr netip.Addr) bool {
	return d.Allow == nil || d.Allow(host, addr.Unmap().WithZone(""))
}

// resolveName returns the addresses that may be dialed, at least one.
func (d *Resolve) resolveName(ctx context.Context, network, host, address string) (addrs []netip.Addr, err error) {
	s := contextTrace(ctx).startPhase(PhaseDNS, "", address)
	defer func() { s.endPhase(err) }()
	resolver := d.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	addrs, err = lookupAddrs(withOuterDial(ctx, d), resolver, network, host)
	addrs = slices.DeleteFunc(addrs, func(addr netip.Addr) bool { return !d.allowsAddr(host, addr) })
	if err == nil && len(addrs) == 0 {
		err = errNotAllowed
	}
	return addrs, err
}

// attemptDelay is how long one address of a name is tried before the next one is tried
// too. It is net.Dialer's, and within what RFC 8305, section 5, allows.
const attemptDelay = 300 * time.Millisecond

// maxAddrs is how many addresses of a name are tried. Honest names have fewer. A
// hostile name server must not make this process dial thousands.
const maxAddrs = 16

// lookupAddrs returns the addresses of host that network allows, at least one.
func lookupAddrs(ctx context.Context, resolver Resolver, network, host string) ([]netip.Addr, error) {
	found, err := resolver.LookupNetIP(ctx, "ip"+network[len("tcp"):], host)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, addr := range found {
		if addr = addr.Unmap(); !addr.IsValid() {
			return nil, errors.New("field Resolver returned the zero netip.Addr")
		}
		if network == "tcp4" && !addr.Is4() || network == "tcp6" && addr.Is4() {
			continue
		}
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no address of " + strconv.Quote(network), Name: host, IsNotFound: true}
	}
	return addrs, nil
}

// dialAddrs connects to one of the addresses of a name as RFC 8305 says. The next
// address is dialed attemptDelay after the one before it, or at once if that has
// failed and retry returns true. The first connection wins. The error has Failures,
// whose members are the addresses in the order in which they are tried.
func dialAddrs(ctx context.Context, network, address string, addrs []netip.Addr, retry func(error) bool,
	dial func(context.Context, netip.Addr) (net.Conn, error),
) (net.Conn, error) {
	d := &failoverDial{
		Failover: &Failover{Retry: retry, CoolDown: -1, Hedge: attemptDelay},
		network:  network, address: address,
	}
	addrs = interleaveFamilies(addrs)
	for i, addr := range addrs[:min(len(addrs), maxAddrs)] {
		d.Dialers = append(d.Dialers, Func(func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, addr) }))
		d.order = append(d.order, i)
	}
	if len(addrs) == 1 {
		return d.dialInTurn(ctx) // without a goroutine
	}
	return d.dialHedged(ctx)
}

// interleaveFamilies returns the addresses with IPv6 and IPv4 in turn, beginning with
// the family of the first (RFC 8305, section 4).
func interleaveFamilies(addrs []netip.Addr) []netip.Addr {
	var families [2][]netip.Addr
	for _, addr := range addrs {
		i := 0
		if addr.Is4() != addrs[0].Is4() {
			i = 1
		}
		families[i] = append(families[i], addr)
	}
	mixed := make([]netip.Addr, 0, len(addrs))
	for i := range addrs {
		for _, family := range families {
			if i < len(family) {
				mixed = append(mixed, family[i])
			}
		}
	}
	return mixed
}

// LookupDNS returns a Resolver that asks the DNS server at address, a host:port, over
// TCP (RFC 7766) and through d; a nil d is Direct{}. For example it asks a cluster's
// DNS through the tunnel into that cluster. Each lookup makes a connection and takes
// at most 30 seconds. The Resolver is safe for concurrent use if d is.
//
// IPv4 and IPv6 addresses are asked for together. If one of the two questions fails,
// or is not answered within a second after the other has found addresses, the lookup
// returns those. Without addresses it returns the failure: a [*net.DNSError] if the
// server has answered.
//
// Names are used unchanged: there are no search domains, and neither /etc/hosts nor
// /etc/resolv.conf is read.
func LookupDNS(d Dialer, address string) Resolver {
	return &dnsServer{d, address}
}

type dnsServer struct {
	dialer  Dialer
	address string
}

func (s *dnsServer) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	q := &dnsQuery{host: host, server: s.address, id: uint16(rand.Uint32())}
	addrs, err := q.exchange(ctx, s.dialer, network)
	var dns *net.DNSError
	if err != nil && !errors.As(err, &dns) {
		// A DNSError here would hide the cause.
		err = fmt.Errorf("lookup %s at %s: %w", printable.Text(host, maxText), printable.Text(s.address, maxText), err)
	}
	return addrs, err
}

// dnsQuery is one lookup: up to two questions on one connection.
type dnsQuery struct {
	host, server string
	id           uint16 // of the first
	types        []dnsmessage.Type
	addrs        []netip.Addr
}

func (q *dnsQuery) exchange(ctx context.Context, d Dialer, network string) ([]netip.Addr, error) {
	switch network {
	case "ip":
		q.types = []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA}
	case "ip4":
		q.types = []dnsmessage.Type{dnsmessage.TypeA}
	case "ip6":
		q.types = []dnsmessage.Type{dnsmessage.TypeAAAA}
	default:
		return nil, net.UnknownNetworkError(network)
	}
	questions, err := q.packQuestions()
	if err != nil {
		return nil, q.newError("the name can't be asked for", false)
	}
	ctx, cancel := withTimeout(ctx, 0)
	defer cancel()
	conn, err := forwardOrDirect(d).DialContext(ctx, "tcp", q.server)
	if err != nil {
		return nil, err
	}
	err = handshake(ctx, conn, func() error {
		if _, err := conn.Write(questions); err != nil {
			return err
		}
		return q.readAnswers(conn)
	})
	if err != nil {
		return nil, err
	}
	conn.Close()
	if len(q.addrs) == 0 {
		return nil, q.newError("no such host", true)
	}
	return q.addrs, nil
}

func (q *dnsQuery) newError(text string, notFound bool) error {
	return &net.DNSError{Err: text, Name: q.host, Server: q.server, IsNotFound: notFound, IsTemporary: !notFound}
}

func (q *dnsQuery) packQuestions() ([]byte, error) {
	name, err := dnsmessage.NewName(absoluteName(q.host))
	if err != nil {
		return nil, err
	}
	var all []byte
	for i, kind := range q.types {
		m := dnsmessage.Message{
			Header:    dnsmessage.Header{ID: q.id + uint16(i), RecursionDesired: true},
			Questions: []dnsmessage.Question{{Name: name, Type: kind, Class: dnsmessage.ClassINET}},
		}
		text, err := m.Pack()
		if err != nil {
			return nil, err
		}
		all = append(binary.BigEndian.AppendUint16(all, uint16(len(text))), text...)
	}
	return all, nil
}

func absoluteName(host string) string {
	if host != "" && host[len(host)-1] == '.' {
		return host
	}
	return host + "."
}

// secondAnswer is how long a lookup waits for one answer once the other one has
// addresses. RFC 8305, section 3, says 50 ms, but there later addresses are still
// used. Here they would be lost.
const secondAnswer = time.Second

// readAnswers reads an answer to each question, in any order. It returns the error of
// one only if the other has no address.
func (q *dnsQuery) readAnswers(conn net.Conn) (err error) {
	for range q.types {
		failure := q.readAnswer(conn)
		if err == nil {
			err = failure
		}
		if _, answered := failure.(*net.DNSError); failure != nil && !answered {
			break // the connection has failed
		}
		if len(q.addrs) > 0 {
			defer time.AfterFunc(secondAnswer, func() { conn.Close() }).Stop()
		}
	}
	if len(q.addrs) > 0 {
		return nil
	}
	return err
}

// readAnswer reads one answer and keeps its addresses. It does not compare their
// names: behind aliases they differ from the name that was asked for.
func (q *dnsQuery) readAnswer(r io.Reader) error {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	text := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(text); err != nil {
		return q.newError("the server's answer can't be read", false)
	}
	if !m.Response || m.ID-q.id >= uint16(len(q.types)) {
		return q.newError("the server answered another question", false)
	}
	switch m.RCode {
	case dnsmessage.RCodeSuccess:
	case dnsmessage.RCodeNameError:
		return nil // the other question is answered too
	default:
		return q.newError(fmt.Sprintf("the server answered %v", m.RCode), false)
	}
	for _, answer := range m.Answers {
		switch body := answer.Body.(type) {
		case *dnsmessage.AResource:
			q.addrs = append(q.addrs, netip.AddrFrom4(body.A))
		case *dnsmessage.AAAAResource:
			q.addrs = append(q.addrs, netip.AddrFrom16(body.AAAA))
		}
	}
	return nil
}

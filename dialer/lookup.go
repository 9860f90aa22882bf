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
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// LookupDNS returns a Resolver that asks the DNS server at address, a
// host:port, over TCP (RFC 7766) through d: the DNS of a cluster through the
// tunnel into it, say. Each lookup makes a connection of its own and takes 30
// seconds at the most.
//
// IPv4 and IPv6 addresses are asked for together. If one of the two questions
// fails, or has no answer a second after the other one found addresses, the
// lookup returns those. It returns the failure if there are none.
//
// What this machine knows has no part in it: a name is taken as it is, without
// search domains, and neither /etc/hosts nor /etc/resolv.conf are read.
func LookupDNS(d Dialer, address string) Resolver {
	return &dnsServer{d, address}
}

type dnsServer struct {
	dialer  Dialer
	address string
}

func (s *dnsServer) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	q := &dnsQuery{host: host, server: s.address, id: uint16(rand.Uint32())}
	addrs, err := q.ask(ctx, s.dialer, network)
	var dns *net.DNSError
	if err != nil && !errors.As(err, &dns) {
		// Not a DNSError of its own: that would hide the cause.
		err = fmt.Errorf("lookup %s at %s: %w", printable(host), printable(s.address), err)
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

func (q *dnsQuery) ask(ctx context.Context, d Dialer, network string) ([]netip.Addr, error) {
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
	questions, err := q.pack()
	if err != nil {
		return nil, q.fail("the name can't be asked for", false)
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
		return q.answers(conn)
	})
	if err != nil {
		return nil, err
	}
	conn.Close()
	if len(q.addrs) == 0 {
		return nil, q.fail("no such host", true)
	}
	return q.addrs, nil
}

func (q *dnsQuery) fail(text string, notFound bool) error {
	return &net.DNSError{Err: text, Name: q.host, Server: q.server, IsNotFound: notFound, IsTemporary: !notFound}
}

func (q *dnsQuery) pack() ([]byte, error) {
	name, err := dnsmessage.NewName(absolute(q.host))
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

func absolute(host string) string {
	if host != "" && host[len(host)-1] == '.' {
		return host
	}
	return host + "."
}

// secondAnswer is how long the answer to one question is waited for once the
// other one has addresses. RFC 8305, section 3, says 50 ms for a list that may
// still grow; this one is final.
const secondAnswer = time.Second

// answers reads an answer to each question, which a server may give in another
// order. What is wrong with one matters only if the other has no address.
func (q *dnsQuery) answers(conn net.Conn) (err error) {
	for range q.types {
		failure := q.read(conn)
		if err == nil {
			err = failure
		}
		if _, answered := failure.(*net.DNSError); failure != nil && !answered {
			break // there is nothing more to read
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

// read reads one answer and keeps its addresses. Those of the end of a chain
// of aliases have another name than was asked for.
func (q *dnsQuery) read(r io.Reader) error {
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
		return q.fail("the server's answer can't be read", false)
	}
	if !m.Response || m.ID-q.id >= uint16(len(q.types)) {
		return q.fail("the server answered another question", false)
	}
	switch m.RCode {
	case dnsmessage.RCodeSuccess:
	case dnsmessage.RCodeNameError:
		return nil // the other question is answered too
	default:
		return q.fail(fmt.Sprintf("the server answered %v", m.RCode), false)
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

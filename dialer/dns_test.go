package dialer_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/causewayproject/causeway/dialer"
)

// fakeDNS returns a Resolver that knows hosts, as absolute names, and answers
// for no others.
func fakeDNS(t testing.TB, hosts map[string][]string) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			answerDNS(&m, hosts)
			if b, err := m.Pack(); err == nil {
				pc.WriteTo(b, from)
			}
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// dnsThrough is Go's resolver, which asks the server at address through d.
func dnsThrough(d dialer.Dialer, address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", address)
	}}
}

// tcpDNS is a DNS server by TCP. change, if not nil, is the last to touch an
// answer.
func tcpDNS(hosts map[string][]string, change func(*dnsmessage.Message)) func(context.Context, net.Conn) {
	return func(_ context.Context, conn net.Conn) {
		br := bufio.NewReader(conn)
		for {
			var size [2]byte
			if _, err := io.ReadFull(br, size[:]); err != nil {
				return
			}
			text := make([]byte, binary.BigEndian.Uint16(size[:]))
			var m dnsmessage.Message
			if _, err := io.ReadFull(br, text); err != nil || m.Unpack(text) != nil {
				return
			}
			answerDNS(&m, hosts)
			if change != nil {
				change(&m)
			}
			answer, err := m.Pack()
			if err != nil {
				return
			}
			conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
		}
	}
}

func answerDNS(m *dnsmessage.Message, hosts map[string][]string) {
	q := m.Questions[0]
	m.Response, m.Additionals = true, nil
	addresses, ok := hosts[q.Name.String()]
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
		return
	}
	for _, a := range addresses {
		addr := netip.MustParseAddr(a)
		var body dnsmessage.ResourceBody
		switch {
		case q.Type == dnsmessage.TypeA && addr.Is4():
			body = &dnsmessage.AResource{A: addr.As4()}
		case q.Type == dnsmessage.TypeAAAA && addr.Is6():
			body = &dnsmessage.AAAAResource{AAAA: addr.As16()}
		default:
			continue
		}
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
			Body:   body,
		})
	}
}

// Package dnstest is a name server for tests.
package dnstest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// Hosts are the addresses of absolute names, such as "api.example.com.".
type Hosts map[string][]string

// Resolver returns one that knows h, and no other names.
func (h Hosts) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		go h.Serve(ctx, far)
		return near, nil
	}}
}

// Serve answers a client by TCP until that ends the connection.
func (h Hosts) Serve(_ context.Context, conn net.Conn) {
	defer conn.Close()
	for {
		size := make([]byte, 2)
		if _, err := io.ReadFull(conn, size); err != nil {
			return
		}
		text := make([]byte, binary.BigEndian.Uint16(size))
		var m dnsmessage.Message
		if _, err := io.ReadFull(conn, text); err != nil || m.Unpack(text) != nil {
			return
		}
		h.answer(&m)
		text, err := m.Pack()
		if err != nil {
			return
		}
		conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	}
}

func (h Hosts) answer(m *dnsmessage.Message) {
	q := m.Questions[0]
	m.Response, m.Additionals = true, nil
	addresses, ok := h[q.Name.String()]
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
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

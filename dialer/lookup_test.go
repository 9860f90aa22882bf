package dialer_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/causewayproject/causeway/dialer"
)

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

var guestHosts = map[string][]string{
	"api.guest.example.":  {"10.1.0.1", "2001:db8::1"},
	"four.guest.example.": {"10.1.0.4"},
	"localhost.":          {"10.1.0.9"},
}

func TestLookupDNS(t *testing.T) {
	lookup := dialer.LookupDNS(checked(t), serve(t, listen(t), tcpDNS(guestHosts, nil)))
	for _, tt := range []struct {
		network, host string
		want          []string
	}{
		{"ip", "api.guest.example", []string{"10.1.0.1", "2001:db8::1"}},
		{"ip4", "api.guest.example.", []string{"10.1.0.1"}},
		{"ip6", "api.guest.example", []string{"2001:db8::1"}},
		{"ip", "four.guest.example", []string{"10.1.0.4"}},
		{"ip", "localhost", []string{"10.1.0.9"}}, // /etc/hosts has no say
	} {
		addrs, err := lookup.LookupNetIP(testContext(t), tt.network, tt.host)
		var got []string
		for _, addr := range addrs {
			got = append(got, addr.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s %s: %v (-want +got)\n%s", tt.network, tt.host, err, diff)
		}
	}
}

// Aliases are followed by the server, whose answer holds them.
func TestLookupDNSAlias(t *testing.T) {
	lookup := dialer.LookupDNS(checked(t), serve(t, listen(t), tcpDNS(guestHosts, func(m *dnsmessage.Message) {
		m.Answers = slices.Insert(m.Answers, 0, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("other.example.")},
		})
	})))
	got, err := lookup.LookupNetIP(testContext(t), "ip4", "api.guest.example")
	if want := []netip.Addr{netip.MustParseAddr("10.1.0.1")}; !slices.Equal(got, want) || err != nil {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestLookupDNSErrors(t *testing.T) {
	for _, tt := range []struct {
		name, network, host string
		change              func(*dnsmessage.Message)
		notFound, temporary bool
	}{
		{"no such name", "ip", "none.example", nil, true, false},
		{"no such address", "ip6", "four.guest.example", nil, true, false},
		{"refused", "ip", "api.guest.example", func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeRefused }, false, true},
		{"another's answer", "ip", "api.guest.example", func(m *dnsmessage.Message) { m.ID += 7 }, false, true},
		{"no answer", "ip", "api.guest.example", func(m *dnsmessage.Message) { m.Response = false }, false, true},
		{"no name", "ip", "a..b", nil, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addrs, err := dialer.LookupDNS(checked(t), serve(t, listen(t), tcpDNS(guestHosts, tt.change))).LookupNetIP(testContext(t), tt.network, tt.host)
			var dns *net.DNSError
			if !errors.As(err, &dns) || dns.IsNotFound != tt.notFound || dns.IsTemporary != tt.temporary || dns.Name != tt.host {
				t.Errorf("got %v, %#v; want a DNSError of %s", addrs, err, tt.host)
			}
		})
	}
	addr := serve(t, listen(t), hold)
	if _, err := dialer.LookupDNS(checked(t), addr).LookupNetIP(t.Context(), "tcp", "a"); !errors.Is(err, net.UnknownNetworkError("tcp")) {
		t.Errorf("got %v, want an unknown network", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := dialer.LookupDNS(checked(t), addr).LookupNetIP(ctx, "ip", "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that never answers: got %v, want that the time is over", err)
	}
	hangUp := serve(t, listen(t), func(context.Context, net.Conn) {})
	if _, err := dialer.LookupDNS(checked(t), hangUp).LookupNetIP(testContext(t), "ip", "a"); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a server that hangs up: got %v, want its end", err)
	}
}

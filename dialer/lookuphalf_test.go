package dialer_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/causewayproject/causeway/dialer"
)

// halfDNS answers the questions of one lookup with these, in their order, and
// says no more: "A" is an address, "!" closes the connection, "" is silence.
// What is asked is read to the end first.
func halfDNS(conn net.Conn, answers []string) {
	defer conn.Close()
	questions := make(map[dnsmessage.Type]dnsmessage.Message)
	for range 2 {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		text := make([]byte, binary.BigEndian.Uint16(size[:]))
		var m dnsmessage.Message
		if _, err := io.ReadFull(conn, text); err != nil || m.Unpack(text) != nil {
			return
		}
		questions[m.Questions[0].Type] = m
	}
	for _, answer := range answers {
		kind, what, _ := strings.Cut(answer, " ")
		m := questions[map[string]dnsmessage.Type{"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA}[kind]]
		m.Response = true
		var text []byte
		switch what {
		case "address":
			answerDNS(&m, map[string][]string{"api.": {"192.0.2.1", "2001:db8::1"}})
		case "none":
		case "no such name":
			m.RCode = dnsmessage.RCodeNameError
		case "fails":
			m.RCode = dnsmessage.RCodeServerFailure
		case "refused":
			m.RCode = dnsmessage.RCodeRefused
		case "another's":
			m.ID += 100
		case "nonsense":
			text = []byte("nonsense")
		case "closed":
			return
		}
		if text == nil {
			text, _ = m.Pack()
		}
		conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	}
	io.Copy(io.Discard, conn)
}

// What is wrong with one of the two questions does not keep the other's answer
// back, and is told if there is no address.
func TestLookupDNSHalf(t *testing.T) {
	const v4, v6 = "192.0.2.1", "2001:db8::1"
	for _, tt := range []struct {
		name     string
		answers  []string
		want     []string
		fails    string // otherwise
		notFound bool
		within   time.Duration
	}{
		{"both", []string{"A address", "AAAA address"}, []string{v4, v6}, "", false, 0},
		{"AAAA fails", []string{"A address", "AAAA fails"}, []string{v4}, "", false, 0},
		{"AAAA fails first", []string{"AAAA fails", "A address"}, []string{v4}, "", false, 0},
		{"AAAA is refused first", []string{"AAAA refused", "A address"}, []string{v4}, "", false, 0},
		{"AAAA is nonsense", []string{"AAAA nonsense", "A address"}, []string{v4}, "", false, 0},
		{"AAAA is another's", []string{"AAAA another's", "A address"}, []string{v4}, "", false, 0},
		{"A fails", []string{"A fails", "AAAA address"}, []string{v6}, "", false, 0},
		{"closed after A", []string{"A address", "AAAA closed"}, []string{v4}, "", false, 0},
		{"AAAA is never answered", []string{"A address"}, []string{v4}, "", false, time.Second},
		{"AAAA fails, no A", []string{"A none", "AAAA fails"}, nil, "ServerFailure", false, 0},
		{"AAAA fails, no such name", []string{"AAAA fails", "A no such name"}, nil, "ServerFailure", false, 0},
		{"both fail", []string{"A refused", "AAAA fails"}, nil, "Refused", false, 0},
		{"closed, no A", []string{"A none", "AAAA closed"}, nil, "EOF", false, 0},
		{"neither", []string{"A none", "AAAA none"}, nil, "no such host", true, 0},
		{"never answered, no A", []string{"A none"}, nil, "deadline", false, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := dialer.Func(func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					go halfDNS(far, tt.answers)
					return near, nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				began := time.Now()
				addrs, err := dialer.LookupDNS(server, "192.0.2.53:53").LookupNetIP(ctx, "ip", "api")
				var got []string
				for _, a := range addrs {
					got = append(got, a.String())
				}
				if !slices.Equal(got, tt.want) || (err == nil) != (tt.fails == "") {
					t.Fatalf("got %v, %v; want %v, %s", got, err, tt.want, tt.fails)
				}
				if took := time.Since(began); took != tt.within {
					t.Errorf("took %v, want %v", took, tt.within)
				}
				var dns *net.DNSError
				if err != nil && (!strings.Contains(err.Error(), tt.fails) || errors.As(err, &dns) && dns.IsNotFound != tt.notFound) {
					t.Errorf("got %v, want %q", err, tt.fails)
				}
			})
		})
	}
}

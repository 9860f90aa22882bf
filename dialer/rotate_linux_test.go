package dialer_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/rotate"
	"github.com/causewayproject/causeway/internal/test/dnstest"
)

// TestDirectRotates: who dials a name again and again goes through its addresses.
func TestDirectRotates(t *testing.T) {
	hosts := []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}
	for _, tt := range []struct {
		name   string
		closed string   // the last numbers of the addresses that refuse
		want   []string // those of the addresses that are reached, in turn
		worked string   // the last number of the address that has worked before
	}{
		{"all listen", "", []string{"2", "3", "4", "2", "3", "4"}, ""},
		{"the second refuses", "3", []string{"2", "4", "2", "4"}, ""},
		{"the first refuses", "2", []string{"3", "4", "3", "4"}, ""},
		{"one is left", "24", []string{"3", "3", "3"}, ""},
		{"none", "234", []string{"", ""}, ""},
		{"the last has worked", "", []string{"4", "2", "3", "4", "2", "3", "4"}, "4"},
		{"the last has worked, and refuses", "4", []string{"2", "3", "2", "3"}, "4"},
		{"the rest of its round refuses", "24", []string{"3", "3", "3"}, "3"},
		{"the end of its round refuses", "4", []string{"3", "2", "3", "2", "3"}, "3"},
		{"no other is left", "23", []string{"4", "4", "4"}, "4"},
		{"one of another name has worked", "", []string{"2", "3", "4", "2"}, "9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port := "0"
			for _, host := range hosts {
				l, err := net.Listen("tcp", net.JoinHostPort(host, port))
				if err != nil {
					t.Fatal(err)
				}
				_, port, _ = net.SplitHostPort(l.Addr().String())
				if strings.Contains(tt.closed, host[len(host)-1:]) {
					l.Close()
				}
				defer l.Close()
			}
			d := dialer.Direct{Dialer: &net.Dialer{Resolver: dnstest.Hosts{"three.test.": hosts}.Resolver()}}
			var addrs rotate.Addrs
			if tt.worked != "" {
				addrs.Prefer(net.JoinHostPort("127.0.0."+tt.worked, port), true)
			}
			var got []string
			for range tt.want {
				last, ctx := "", rotate.WithAddrs(t.Context(), &addrs)
				conn, err := d.DialContext(ctx, "tcp", "three.test:"+port)
				if err == nil {
					host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
					last = host[len(host)-1:]
					conn.Close()
				} else if !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("got error %v, want a refused connection", err)
				}
				got = append(got, last)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

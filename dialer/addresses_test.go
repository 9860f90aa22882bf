package dialer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/dnstest"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// slowProxy notes what it is asked for and when, and leaves unanswered what
// answers does not hold. It speaks SOCKS5 or HTTP, by what comes first.
type slowProxy struct {
	answers map[string]string
	began   time.Time
	wg      sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	asked []string
	open  int
}

func (p *slowProxy) DialContext(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.wg.Go(func() { p.serve(far) })
	return near, nil
}

func (p *slowProxy) serve(conn net.Conn) {
	defer conn.Close()
	p.count(1)
	defer p.count(-1)
	br := bufio.NewReader(conn)
	address, ok := readSOCKS(br, conn)
	if !ok {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		address = req.Host
	}
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprintf("%s %s", time.Since(p.began), address))
	p.mu.Unlock()
	io.WriteString(conn, p.answers[address])
	io.Copy(io.Discard, br) // until the other side closes
}

func (p *slowProxy) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += n
}

// readSOCKS reads a greeting, takes no authentication, and reads a request for
// an address.
func readSOCKS(br *bufio.Reader, w io.Writer) (address string, ok bool) {
	if b, err := br.Peek(1); err != nil || b[0] != 5 {
		return "", false
	}
	head := make([]byte, 4)
	io.ReadFull(br, head[:3])
	io.WriteString(w, takeNone)
	if _, err := io.ReadFull(br, head); err != nil {
		return "", false
	}
	rest := make([]byte, map[byte]int{1: 4, 4: 16}[head[3]]+2)
	if _, err := io.ReadFull(br, rest); err != nil {
		return "", false
	}
	n := len(rest) - 2
	addr, _ := netip.AddrFromSlice(rest[:n])
	return netip.AddrPortFrom(addr, uint16(rest[n])<<8|uint16(rest[n+1])).String(), true
}

const (
	connected      = "HTTP/1.1 200 OK\r\n\r\n"
	socksConnected = "\x05\x00\x00" + bound4
	noIPv6         = "\x05\x08\x00" + bound4
)

// ways are the dialers that look a name up, through p.
func ways(p dialer.Dialer, resolver dialer.Resolver) map[string]dialer.Dialer {
	return map[string]dialer.Dialer{
		"socks5":                &dialer.SOCKS5{Addr: "proxy:1080", Resolver: resolver, Forward: p},
		"resolve, socks5":       &dialer.Resolve{Resolver: resolver, Forward: &dialer.SOCKS5{Addr: "proxy:1080", Forward: p}},
		"resolve, http connect": &dialer.Resolve{Resolver: resolver, Forward: &dialer.HTTPConnect{Addr: "proxy:3128", Forward: p}},
	}
}

// The addresses of a name are tried as RFC 8305 has it: families in turn, the
// next one 300 ms after the one before it, or at once where that failed.
func TestAddresses(t *testing.T) {
	resolver := names{"api": {"2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.2"}}
	const first, second, third, fourth = "[2001:db8::1]:443", "192.0.2.1:443", "[2001:db8::2]:443", "192.0.2.2:443"
	for _, tt := range []struct {
		name  string
		socks map[string]string // its answers
		http  map[string]string
		want  []string
	}{
		{"the first", map[string]string{first: socksConnected}, map[string]string{first: connected}, []string{"0s " + first}},
		{
			"the first is silent",
			map[string]string{second: socksConnected}, map[string]string{second: connected},
			[]string{"0s " + first, "300ms " + second},
		},
		{
			"only the last answers",
			map[string]string{fourth: socksConnected}, map[string]string{fourth: connected},
			[]string{"0s " + first, "300ms " + second, "600ms " + third, "900ms " + fourth},
		},
		{
			"no IPv6",
			map[string]string{first: noIPv6, third: noIPv6, fourth: socksConnected},
			map[string]string{first: "HTTP/1.1 503 No\r\n\r\n", third: "HTTP/1.1 503 No\r\n\r\n", fourth: connected},
			[]string{"0s " + first, "0s " + second, "300ms " + third, "300ms " + fourth},
		},
	} {
		for name := range ways(nil, nil) {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &slowProxy{answers: tt.socks, began: time.Now()}
					if strings.HasSuffix(name, "connect") {
						p.answers = tt.http
					}
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					conn, err := ways(p, resolver)[name].DialContext(ctx, "tcp", "api:443")
					if err != nil {
						t.Error(err)
					}
					synctest.Wait()
					if diff := cmp.Diff(tt.want, p.asked); diff != "" {
						t.Errorf("asked for (-want +got)\n%s", diff)
					}
					if p.open > 1 {
						t.Errorf("%d connections are open, want that of the winner", p.open)
					}
					if conn != nil {
						conn.Close()
					}
					p.wg.Wait()
				})
			})
		}
	}
}

// A name server does not decide how much is dialed.
func TestAddressesMany(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("192.0.2.%d", i%256))
	}
	for name := range ways(nil, nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &slowProxy{began: time.Now()}
				if _, err := ways(p, names{"api": many})[name].DialContext(t.Context(), "tcp", "api:443"); err == nil {
					t.Error("got no error")
				}
				p.wg.Wait()
				if len(p.asked) != 16 {
					t.Errorf("asked for %d addresses, want 16", len(p.asked))
				}
			})
		})
	}
}

// A cancel ends what is under way, all of it.
func TestAddressesCancel(t *testing.T) {
	for name := range ways(nil, nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &slowProxy{began: time.Now()}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				_, err := ways(p, names{"api": {"192.0.2.1", "192.0.2.2", "192.0.2.3"}})[name].DialContext(ctx, "tcp", "api:443")
				if took := time.Since(p.began); !errors.Is(err, context.Canceled) || took != time.Second {
					t.Errorf("got %v after %v, want that it was cancelled after 1s", err, took)
				}
				p.wg.Wait()
				if len(p.asked) != 3 {
					t.Errorf("asked for %q, want three", p.asked)
				}
			})
		})
	}
}

// What a SOCKS5 proxy says about one address, or a cut in place of an answer
// (as ssh -D has it), is no word about the next one.
func TestSOCKS5NextAddress(t *testing.T) {
	cut := func(n int) string { return strings.Repeat("\x05", n) }
	for name, answer := range map[string]string{
		"general failure": "\x05\x01\x00" + bound4, "not allowed": "\x05\x02\x00" + bound4, "no network": "\x05\x03\x00" + bound4,
		"no route": "\x05\x04\x00" + bound4, "refused": "\x05\x05\x00" + bound4, "TTL": "\x05\x06\x00" + bound4,
		"command": "\x05\x07\x00" + bound4, "no IPv6": noIPv6, "unassigned": "\x05\x63\x00" + bound4, "cut": cut(0), "cut later": cut(1),
	} {
		t.Run(name, func(t *testing.T) {
			addr := serve(t, listen(t), func(_ context.Context, conn net.Conn) {
				switch address, _ := readSOCKS(bufio.NewReader(conn), conn); address {
				case "[2001:db8::1]:443":
					io.WriteString(conn, answer)
				default:
					io.WriteString(conn, socksConnected)
					io.Copy(conn, conn)
				}
			})
			d := &dialer.SOCKS5{Addr: addr, Resolver: names{"api": {"2001:db8::1", "192.0.2.1"}}, Forward: checked(t)}
			conn, err := d.DialContext(testContext(t), "tcp", "api:443")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			exchange(t, conn, "")
		})
	}
}

// The error names the proxy, and what it said of each address. What is wrong
// with the proxy itself, another address does not mend: a wrong password is
// sent once.
func TestSOCKS5AddressErrors(t *testing.T) {
	down := &dialer.Error{Op: "socks5", Phase: dialer.PhaseConnect, Proxy: "socks5://first:1080", Addr: "proxy:1080", Status: 5, Err: dialer.SOCKSReply(5)}
	for _, tt := range []struct {
		name   string
		steps  []string // what the proxy answers, if there is one
		phase  dialer.Phase
		status int
		is     error
		dials  int
		text   string
	}{
		{"refused", []string{takeNone, "\x05\x05\x00" + bound4}, dialer.PhaseConnect, 5, syscall.ECONNREFUSED, 2, "192.0.2.1:443"},
		{"wrong password", []string{takeLogin, "\x01\x01"}, dialer.PhaseAuth, 0, dialer.ErrLogin, 1, "password"},
		{"a ticket that ended", []string{takeLogin, "\x01\x02"}, dialer.PhaseAuth, 0, dialer.LoginStatus(2), 1, "password (status 2)"},
		{"no method", []string{"\x05\xff"}, dialer.PhaseAuth, 0, dialer.ErrNoAuthMethod, 1, "methods"},
		{"no way to the proxy", nil, dialer.PhaseTCP, 0, down, 1, "first:1080"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := 0 // one after the other: none takes 300 ms
				d := &dialer.SOCKS5{
					Addr: "proxy:1080", Resolver: names{"api": {"2001:db8::1", "192.0.2.1"}}, Credentials: dialer.Password("u", "canary"),
					Forward: dialer.Func(func(context.Context, string, string) (net.Conn, error) {
						dials++
						if tt.steps == nil {
							return nil, down
						}
						near, far := net.Pipe()
						go answerSteps(far, tt.steps)
						return near, nil
					}),
				}
				_, err := d.DialContext(t.Context(), "tcp", "api:443")
				var e *dialer.Error
				if !errors.As(err, &e) || e.Op != "socks5" || e.Phase != tt.phase || e.Status != tt.status || !errors.Is(err, tt.is) {
					t.Fatalf("got %#v, want phase %s, status %d and %v", err, tt.phase, tt.status, tt.is)
				}
				if e.Proxy != "socks5://proxy:1080" || e.Addr != "api:443" || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "canary") {
					t.Errorf("got %v", err)
				}
				if dials != tt.dials {
					t.Errorf("the proxy was dialed %d times, want %d", dials, tt.dials)
				}
			})
		})
	}
}

// answerSteps answers what comes by conn with each of steps.
func answerSteps(conn net.Conn, steps []string) {
	defer conn.Close()
	b := make([]byte, 512)
	for _, s := range steps {
		if _, err := conn.Read(b); err != nil {
			return
		}
		io.WriteString(conn, s)
	}
}

// A Resolver of a SOCKS5 that dials through it is no loop if the server is an
// address, and ErrLoop if that has to be looked up itself.
func TestSOCKS5ResolverLoop(t *testing.T) {
	dns := serve(t, listen(t), dnstest.Hosts{"api.": {"192.0.2.1"}}.Serve)
	echo := toEcho(t)
	p := &proxytest.SOCKS5{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "192.0.2.53:53" {
			return new(net.Dialer).DialContext(ctx, network, dns)
		}
		return echo(ctx, network, address)
	}}
	d := &dialer.SOCKS5{Addr: serve(t, listen(t), p.Handle), Forward: checked(t)}
	d.Resolver = dnsThrough(d, "192.0.2.53:53")
	conn, err := d.DialContext(testContext(t), "tcp", "api.:443")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	d.Resolver = dnsThrough(d, "dns:53")
	if _, err := d.DialContext(testContext(t), "tcp", "api.:443"); err == nil || !strings.Contains(err.Error(), "through itself") {
		t.Errorf("got %v, want ErrLoop", err)
	}
}

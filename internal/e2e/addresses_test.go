package e2e

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// twoFamilies is a Resolver by which every name has an IPv6 address, which the
// proxies of the bed can't reach, and then these.
type twoFamilies []string

func (t twoFamilies) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	addrs := []netip.Addr{netip.MustParseAddr("2001:db8::1")}
	for _, text := range t {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	return addrs, nil
}

// A name with an IPv6 address is reached through SOCKS5 proxies without IPv6,
// each of which has words of its own for that.
func TestSOCKS5WithoutIPv6(t *testing.T) {
	b := sharedBed(t)
	answers := map[string]int{
		"dante":      8, // address type not supported
		"microsocks": 3,
		"ssh":        0, // it closes the connection
	}
	for _, r := range routes(b) {
		if r.proxy.Scheme != "socks5" {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			dial := func(resolver dialer.Resolver) (net.Conn, error) {
				d, err := dialer.FromURL(r.proxy, &dialer.Options{Forward: b.Network.Client, Resolver: resolver})
				if err != nil {
					t.Fatal(err)
				}
				return d.DialContext(t.Context(), "tcp", net.JoinHostPort("api.causeway.test", strconv.Itoa(int(b.Kube.Port()))))
			}
			conn, err := dial(twoFamilies{b.Kube.Host()})
			if err != nil {
				t.Error(err)
			} else {
				conn.Close()
			}
			_, err = dial(twoFamilies{})
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != dialer.PhaseConnect || e.Status != answers[r.name] {
				t.Errorf("IPv6 only: got %v, want that the proxy answers %d", err, answers[r.name])
			}
			t.Log(err)
		})
	}
}

// HTTPS_PROXY=socks5:// means to a Dialer what it means to kubectl: the proxy
// looks the name up.
func TestSOCKS5NameAsKubectl(t *testing.T) {
	asked := make(chan string, 100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := proxytest.Serve(l, func(_ context.Context, conn net.Conn) {
		br := bufio.NewReader(conn)
		greeting := make([]byte, 3) // no authentication
		if _, err := io.ReadFull(br, greeting); err != nil {
			return
		}
		io.WriteString(conn, "\x05\x00")
		request := make([]byte, 512)
		n, _ := br.Read(request)
		asked <- string(greeting) + string(request[:n])
		io.WriteString(conn, "\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00")
	})
	t.Cleanup(s.Close)
	kubectl := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(bed.BinEnv), "kubectl"),
		"--server=https://api.causeway.test:6443", "--token=x", "get", "--raw", "/version")
	kubectl.Env = []string{"HTTPS_PROXY=socks5://" + s.Addr(), "HOME=" + t.TempDir()}
	text, err := kubectl.CombinedOutput()
	byKubectl := len(asked)
	if err == nil || byKubectl == 0 {
		t.Fatalf("kubectl did not fail at the proxy: %v\n%s", err, text)
	}
	t.Setenv("HTTPS_PROXY", "socks5://"+s.Addr())
	t.Setenv("https_proxy", "")
	d, err := dialer.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.DialContext(t.Context(), "tcp", "api.causeway.test:6443"); err == nil || len(asked) != byKubectl+1 {
		t.Errorf("the dialer did not fail at the proxy: %v", err)
	}
	close(asked)
	want := "\x05\x01\x00\x05\x01\x00\x03\x11api.causeway.test\x19\x2b"
	for got := range asked {
		if got != want {
			t.Errorf("the proxy was asked %q, want %q", got, want)
		}
	}
}

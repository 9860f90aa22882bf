package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

const (
	floodDoor     = "127.0.0.1:3129"
	floodAudience = "flood.example.com"
	floodCluster  = clientsNamespace + "/flood"
)

// testTokenFlood: one address throws 900 made-up tokens, over as many connections and
// more over those where it may, at tunnel-server, which asks a real API server about
// them: they are those of a ServiceAccount but for the signature. Clients of another
// address, with tokens that nobody has seen before, are let in meanwhile.
func (r *replicas) testTokenFlood(t *testing.T) {
	const strangers, clients = 900, 20
	r.account(t, clientsNamespace, "carol")
	r.allow(t, "carol", "flood")
	p := &programs{t: t, bed: r.bed, dir: t.TempDir()}
	goBuild(t, programsModule, p.dir, "./causeway")
	server := p.start(r.bed.Network.API, bed.Command{Argv: []string{p.path("causeway"), "server", "--state", p.path("server"),
		"--listen", "127.0.0.1:0", "--status", "", "--connect", floodDoor, "--door-token-audience", floodAudience, "--kubeconfig", r.kubeconfig(t, p)}})
	eventually(t, "the program to listen", func(context.Context) error {
		if log := server.Stderr(); !strings.Contains(log, "for=connect ") {
			return fmt.Errorf("it wrote %q", log)
		}
		return nil
	})
	right := make([]string, 2*clients)
	for n := range right {
		right[n] = token(t, r.admin, clientsNamespace, "carol", floodAudience)
	}
	calm := r.slowestOf(t, right[:clients])
	before, err := server.PeakMemory()
	if err != nil {
		t.Fatal(err)
	}

	conns := r.crowd(t, "127.0.0.2", strangers)
	stop := sync.OnceFunc(func() {
		for _, conn := range conns {
			conn.Close()
		}
	})
	defer stop()
	refused := make(chan struct{}, 1)
	var flood sync.WaitGroup
	var thrown, unavailable atomic.Int64
	for _, conn := range conns {
		flood.Go(func() {
			for reader := bufio.NewReader(conn); ; thrown.Add(1) {
				answer, err := showToken(conn, reader, forged(right[0]))
				if err != nil {
					return
				}
				if answer.StatusCode == http.StatusServiceUnavailable {
					unavailable.Add(1)
				} else if answer.StatusCode != http.StatusProxyAuthRequired {
					t.Errorf("a made-up token: got %s", answer.Status)
				}
				select {
				case refused <- struct{}{}:
				default:
				}
			}
		})
	}
	next(t, refused, slack, "the first refusal of a made-up token")
	slowest := r.slowestOf(t, right[clients:])
	stop()
	flood.Wait()
	after, err := server.PeakMemory()
	if err != nil {
		t.Fatal(err)
	}
	log := server.Stderr()
	t.Logf("the slowest of %d clients: %v, %v before the flood; %d made-up tokens were refused, %d of them because too many waited; peak memory %+d KiB, from %d KiB; %d log lines",
		clients, slowest, calm, thrown.Load(), unavailable.Load(), (after-before)>>10, before>>10, strings.Count(log, "\n"))
	if slowest > 2*time.Second+10*calm { // less than 1 s, but on a busy machine
		t.Errorf("a client was let in after %v", slowest)
	}
	if grew := after - before; grew > 64<<20 {
		t.Errorf("the program's memory grew by %d KiB", grew>>10)
	}
	if claims := strings.Split(right[0], ".")[1]; strings.Contains(log, claims[:32]) {
		t.Error("a token is in the log")
	}
	p.ends(server)
}

// kubeconfig writes one for the servers' ServiceAccount.
func (r *replicas) kubeconfig(t *testing.T, p *programs) (path string) {
	t.Helper()
	admin := r.bed.Kube.Config()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + r.bed.Kube.Address(), CertificateAuthorityData: admin.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token(t, r.admin, r.namespace, serverAccount)}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	path = p.path("server.conf")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// crowd connects to the program from an address.
func (r *replicas) crowd(t *testing.T, from string, n int) (conns []net.Conn) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: slack}
	err := r.bed.Network.API.Do(func() error {
		for range n {
			conn, err := d.DialContext(context.Background(), "tcp", floodDoor)
			if err != nil {
				return err
			}
			conns = append(conns, conn)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return conns
}

// slowestOf shows the tokens one after the other, over a connection each, and returns
// how long the slowest answer took. Each is let in, and there is no agent.
func (r *replicas) slowestOf(t *testing.T, tokens []string) (slowest time.Duration) {
	t.Helper()
	for _, token := range tokens {
		conn := r.crowd(t, "127.0.0.1", 1)[0]
		began := time.Now()
		answer, err := showToken(conn, bufio.NewReader(conn), token)
		slowest = max(slowest, time.Since(began))
		conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.Header.Get("Proxy-Status"); !strings.Contains(got, "error=destination_unavailable") {
			t.Errorf("a right token: got %s after %v, %s, want that there is no agent", answer.Status, slowest, got)
		}
	}
	return slowest
}

// forged is the token with another signature.
func forged(token string) string {
	signed := token[:strings.LastIndex(token, ".")+1]
	signature := make([]byte, base64.RawURLEncoding.DecodedLen(len(token)-len(signed)))
	rand.Read(signature)
	return signed + base64.RawURLEncoding.EncodeToString(signature)
}

func showToken(conn net.Conn, reader *bufio.Reader, token string) (*http.Response, error) {
	basic := base64.StdEncoding.EncodeToString([]byte(floodCluster + ":" + token))
	if _, err := fmt.Fprintf(conn, "CONNECT api:443 HTTP/1.1\r\nHost: api:443\r\nProxy-Authorization: Basic %s\r\n\r\n", basic); err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
	}
	return answer, err
}

package kubernetes_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/enroltest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// refusalCounts counts the refusals of a Server by their codes.
type refusalCounts struct {
	mu sync.Mutex // guards the field below
	by map[tunnel.Code]int
}

func (c *refusalCounts) refused(_ net.Addr, err error) {
	var e *tunnel.Error
	errors.As(err, &e)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[e.Code]++
}

func (c *refusalCounts) of(code tunnel.Code) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[code]
}

// Fifty strangers a second show tokens that look right, to a server whose Store
// has client-go's own limit of 5 requests a second. None of them costs a request,
// and an agent that was invited enrols meanwhile.
func TestMadeUpTokens(t *testing.T) {
	t.Parallel()
	const strangers, before = 200, 100
	api := apitest.New(t)
	config := api.Config()
	config.QPS = 0 // client-go's default
	limited := newClients(t, config)
	refusals := &refusalCounts{by: map[tunnel.Code]int{}}
	server := &tunnel.Server{Authority: authority(t), Hooks: tunnel.Hooks{Refused: refusals.refused},
		Store: &kubernetes.SecretStore{Client: limited, Namespace: namespace}}
	inviter := &tunnel.Server{Authority: server.Authority, Store: store(t, api)}
	address := serve(t, server)
	inv, err := inviter.Invite(t.Context(), "default/prod", 0)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	reads := new(atomic.Int64)
	api.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "-token-") {
			reads.Add(1)
		}
		return 0
	})

	heapBefore := heap()
	var flood sync.WaitGroup
	var took time.Duration
	every := time.NewTicker(time.Second / 50)
	defer every.Stop()
	for n := range strangers {
		<-every.C
		flood.Go(func() {
			answer, err := enrol(t, address, madeUp(inv.Token, n), key)
			if err != nil || answer.Code != uint64(tunnel.CodeTokenUnknown) {
				t.Errorf("a made-up token: got %+v, %v, want the code %d", answer, err, tunnel.CodeTokenUnknown)
			}
		})
		if n == before {
			flood.Go(func() {
				began := time.Now()
				if answer, err := enrol(t, address, inv.Token, key); err != nil || answer.Code != 0 {
					t.Errorf("the agent that was invited: got %+v, %v", answer, err)
				}
				took = time.Since(began)
			})
		}
	}
	flood.Wait()
	grew := heap() - heapBefore
	t.Logf("%d strangers: the invited agent took %v, %d reads of tokens, %d refusals, heap %+d KiB",
		strangers, took, reads.Load(), refusals.of(tunnel.CodeTokenUnknown), grew>>10)
	if took > 5*time.Second { // on a machine that does nothing else, some 10 ms
		t.Errorf("the invited agent enrolled after %v", took)
	}
	if got := reads.Load(); got > 1 {
		t.Errorf("got %d reads of tokens, want that of the invited agent only", got)
	}
	if got := refusals.of(tunnel.CodeTokenUnknown); got != strangers {
		t.Errorf("got %d refusals with the code %v, want %d", got, tunnel.CodeTokenUnknown, strangers)
	}
	if grew > 4<<20 {
		t.Errorf("the heap grew by %d KiB", grew>>10)
	}
}

func enrol(t *testing.T, address, token string, key *ecdsa.PrivateKey) (enroltest.Answer, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return enroltest.Answer{}, err
	}
	return enroltest.Enrol(ctx, conn, token, key)
}

// madeUp has the form of the token, and is none that anybody issued.
func madeUp(token string, n int) string {
	const letters = "abcdefghijklmnop"
	return token[:4] + letters[n/16%16:][:1] + letters[n%16:][:1] + token[6:]
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// serve serves on 127.0.0.1 until the test ends.
func serve(t *testing.T, server *tunnel.Server) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

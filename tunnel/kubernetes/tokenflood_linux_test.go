package kubernetes_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/tunnel/gateway"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// slowReviewer is an API server that answers one question at a time, in the order in
// which they come.
type slowReviewer struct {
	took          time.Duration // an answer
	turn          sync.Mutex
	tokens        atomic.Int64 // questions about tokens that are wrong
	atOnce, crowd atomic.Int64 // of those: now, and the most
}

// rightToken returns one that the slowReviewer takes, and another each time.
func rightToken() string { return wellShaped("right") }

// wrongToken returns one that looks like it.
func wrongToken() string { return wellShaped("wrong") }

// wellShaped returns a token of a ServiceAccount for the audience "tunnel", with a
// random signature.
func wellShaped(name string) string {
	signature := make([]byte, 256)
	rand.Read(signature)
	claims := fmt.Sprintf(`{"aud":["tunnel"],"exp":%d,"iss":"https://kubernetes.default.svc","sub":"system:serviceaccount:apps:%s"}`,
		time.Now().Add(time.Hour).Unix(), name)
	return "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." +
		base64.RawURLEncoding.EncodeToString(signature)
}

func isRight(token string) bool {
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	return err == nil && strings.Contains(string(claims), ":right")
}

func (s *slowReviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch review := object.(type) {
	case *authenticationv1.TokenReview:
		if isRight(review.Spec.Token) {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"tunnel"}, User: annie}
			break
		}
		s.tokens.Add(1)
		s.crowd.Store(max(s.crowd.Load(), s.atOnce.Add(1)))
		defer s.atOnce.Add(-1)
	case *authorizationv1.SubjectAccessReview:
		review.Status.Allowed = true
	}
	s.turn.Lock()
	select {
	case <-time.After(s.took):
	case <-r.Context().Done():
	}
	s.turn.Unlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(object)
}

// dialFrom connects from an address until ctx ends.
func dialFrom(ctx context.Context, from, gateway string) (net.Conn, error) {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(ctx, "tcp", gateway)
	if err == nil {
		context.AfterFunc(ctx, func() { conn.Close() })
	}
	return conn, err
}

// showToken asks for a connection and returns the status.
func showToken(conn net.Conn, r *bufio.Reader, token string) (int, error) {
	basic := base64.StdEncoding.EncodeToString([]byte("default/prod:" + token))
	if _, err := io.WriteString(conn, "CONNECT api:443 HTTP/1.1\r\nHost: api:443\r\nProxy-Authorization: Basic "+basic+"\r\n\r\n"); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil || answer.StatusCode == http.StatusOK {
		return 200, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// rightClient returns the status that a client gets, and how long it took.
func rightClient(t *testing.T, from, gateway, token string) (status int, took time.Duration) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := dialFrom(ctx, from, gateway)
	if err == nil {
		defer conn.Close()
		status, err = showToken(conn, bufio.NewReader(conn), token)
	}
	if err != nil {
		t.Errorf("a client from %s: %v", from, err)
	}
	return status, time.Since(began)
}

// serveTokens serves a gateway whose clients reach a pipe with a closed end.
func serveTokens(t *testing.T, g *gateway.Gateway) (address string) {
	t.Helper()
	g.Dial = func(context.Context, gateway.Request) (net.Conn, error) {
		near, far := net.Pipe()
		far.Close()
		return near, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	start(t, func(ctx context.Context) error { return g.ServeConnect(ctx, l) })
	return l.Addr().String()
}

// One source throws 900 tokens that look right, over as many connections, and more
// over those where it may. Clients of another address are let in meanwhile, and so is
// one of the same address whose token was good before.
func TestTokenReviewFlood(t *testing.T) {
	t.Parallel()
	const strangers, rounds = 900, 10
	api := &slowReviewer{took: 5 * time.Millisecond}
	s := httptest.NewServer(api)
	defer s.Close()
	client := newClients(t, &rest.Config{Host: s.URL, QPS: 50, Burst: 50})
	var refusals atomic.Int64
	review := &kubernetes.TokenReview{Client: client, Audiences: []string{"tunnel"}, Remember: -1}
	address := serveTokens(t, &gateway.Gateway{Authenticate: review.Authenticate, Grace: -1,
		Hooks: gateway.Hooks{Failed: func(error) { refusals.Add(1) }}})
	known := rightToken()
	if got, _ := rightClient(t, "127.0.0.2", address, known); got != 200 {
		t.Fatalf("before the flood: got %d", got)
	}

	before := memoryInUse()
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	answers := make(chan int, strangers)
	for range strangers {
		flood.Go(func() { throwTokens(ctx, address, answers) })
	}
	receive(t, answers, "the first answer to a stranger")
	var slowest [2]time.Duration
	for range rounds {
		for i, right := range []struct{ from, token string }{{"127.0.0.1", rightToken()}, {"127.0.0.2", known}} {
			got, took := rightClient(t, right.from, address, right.token)
			if got != 200 {
				t.Errorf("a right token from %s: got %d after %v", right.from, got, took)
			}
			slowest[i] = max(slowest[i], took)
		}
	}
	grew := memoryInUse() - before
	stop()
	flood.Wait()
	t.Logf("the slowest of %d right clients: %v with a new token, %v with one that was good before; %d questions about wrong ones, %d at once; %d refusals; memory %+d KiB",
		rounds, slowest[0], slowest[1], api.tokens.Load(), api.crowd.Load(), refusals.Load(), grew>>10)
	if slowest[0] > 5*time.Second || slowest[1] > 5*time.Second { // on a machine that does nothing else, less than 0.5 s
		t.Errorf("right clients waited for %v", slowest)
	}
	if got := api.crowd.Load(); got > 4 {
		t.Errorf("got %d questions about wrong tokens at once, want 4 at most", got)
	}
	if grew > 64<<20 { // both ends of the connections included
		t.Errorf("memory grew by %d KiB", grew>>10)
	}
}

// throwTokens shows wrong tokens for as long as the connection lasts, or ctx.
func throwTokens(ctx context.Context, address string, answers chan<- int) {
	conn, err := dialFrom(ctx, "127.0.0.2", address)
	if err != nil {
		return
	}
	defer conn.Close()
	for r := bufio.NewReader(conn); err == nil; {
		var status int
		if status, err = showToken(conn, r, wrongToken()); err == nil {
			select {
			case answers <- status:
			default:
			}
		}
	}
}

func memoryInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

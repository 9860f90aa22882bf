package gateway_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// TestConformance is what every door does.
func TestConformance(t *testing.T) {
	cases := []struct {
		name string
		test func(*testing.T, door)
	}{
		{"connect", testConnect},
		{"half-close by the client", testHalfCloseClient},
		{"half-close by the target", testHalfCloseTarget},
		{"abort by the client", testAbortClient},
		{"abort by the target", testAbortTarget},
		{"slow client", testSlowClient},
		{"slow target", testSlowTarget},
		{"refusals", testRefusals},
		{"credentials", testCredentials},
		{"hang up", testHangUp},
		{"limits", testLimits},
		{"drain", testDrain},
		{"grace", testGrace},
		{"close", testClose},
	}
	for _, d := range doors() {
		t.Run(d.name, func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) { c.test(t, d) })
			}
		})
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func closeWrite(t testing.TB, conn net.Conn) {
	t.Helper()
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func expect(t testing.TB, r io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, %v; want %d equal ones", n, err, len(want))
	}
}

func expectEnd(t testing.TB, r io.Reader) {
	t.Helper()
	if b, err := io.ReadAll(r); err != nil || len(b) > 0 {
		t.Fatalf("got %d more bytes, %v; want the end", len(b), err)
	}
}

func write(t testing.TB, w io.Writer, b []byte) {
	t.Helper()
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
}

func testConnect(t *testing.T, d door) {
	b := newBed(t, d, nil)
	client, target := b.pair()
	r := <-b.dialed
	if r.Cluster != "a" || r.Address != "kubernetes.default.svc:443" || r.Credentials.Password != "" || r.Credentials.Remote == nil || !d.open && r.Client.Name != "ann" {
		t.Errorf("got request %+v", r)
	}
	up, down := random(3<<20), random(3<<20)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { client.Write(up) })
	wg.Go(func() { target.Write(down) })
	wg.Go(func() { expect(t, client, down) })
	expect(t, target, up)
}

func testHalfCloseClient(t *testing.T, d door) {
	client, target := newBed(t, d, nil).pair()
	write(t, client, []byte("question"))
	closeWrite(t, client)
	expect(t, target, []byte("question"))
	expectEnd(t, target)
	answer := random(1 << 20)
	go func() {
		target.Write(answer)
		target.Close()
	}()
	expect(t, client, answer)
	expectEnd(t, client)
}

func testHalfCloseTarget(t *testing.T, d door) {
	client, target := newBed(t, d, nil).pair()
	write(t, target, []byte("banner"))
	closeWrite(t, target)
	expect(t, client, []byte("banner"))
	expectEnd(t, client)
	rest := random(1 << 20)
	go func() {
		client.Write(rest)
		client.(interface{ CloseWrite() error }).CloseWrite()
	}()
	expect(t, target, rest)
	expectEnd(t, target)
}

func testAbortClient(t *testing.T, d door) {
	client, target := newBed(t, d, nil).pair()
	write(t, client, []byte("part"))
	expect(t, target, []byte("part"))
	abort.Reset(client, 1)
	if n, err := target.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) && !d.unix {
		t.Errorf("got %d, %v, want a reset", n, err)
	}
}

func testAbortTarget(t *testing.T, d door) {
	client, target := newBed(t, d, nil).pair()
	write(t, target, []byte("part"))
	expect(t, client, []byte("part"))
	abort.Reset(target, 1)
	expectCut(t, d, client)
}

// A client that doesn't read is in nobody's way, those of the same connection
// included.
func testSlowClient(t *testing.T, d door) {
	b := newBed(t, d, nil)
	client := d.client(t, b.addr, "ann", secret)
	slow, source := b.pairBy(client)
	sent := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(source, io.LimitReader(zeros{}, 20<<20))
		closeWrite(t, source)
		sent <- n
	}()
	other, target := b.pairBy(client)
	for range 10 {
		write(t, other, []byte("ping"))
		expect(t, target, []byte("ping"))
		write(t, target, []byte("pong"))
		expect(t, other, []byte("pong"))
	}
	if n, err := io.Copy(io.Discard, slow); n != 20<<20 || err != nil || <-sent != n {
		t.Errorf("got %d, %v", n, err)
	}
}

// Neither is a target that doesn't read.
func testSlowTarget(t *testing.T, d door) {
	b := newBed(t, d, nil)
	client := d.client(t, b.addr, "ann", secret)
	source, slow := b.pairBy(client)
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(source, io.LimitReader(zeros{}, 20<<20))
		sent <- errors.Join(err, source.(interface{ CloseWrite() error }).CloseWrite())
	}()
	other, target := b.pairBy(client)
	block := random(3 << 20) // more than a connection's window
	go other.Write(block)
	expect(t, target, block)
	if n, err := io.Copy(io.Discard, slow); n != 20<<20 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// unavailable is an error of Dial.
type unavailable struct{ error }

func (unavailable) Unavailable() bool { return true }

// limited is another one.
type limited struct{ error }

func (limited) RetryAfter() time.Duration { return 1200 * time.Millisecond }

func testRefusals(t *testing.T, d door) {
	for _, tt := range []struct {
		err         error
		http, socks int
	}{
		{errors.New("strange"), 502, 1},
		{syscall.EACCES, 403, 2},
		{syscall.ENETUNREACH, 502, 3},
		{syscall.ECONNREFUSED, 502, 5},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, 502, 4},
		{context.DeadlineExceeded, 504, 6},
		{unavailable{errors.New("no agent")}, 503, 3},
		{limited{syscall.EACCES}, 429, 1},
		{unavailable{limited{errors.New("nobody")}}, 503, 3},
	} {
		b := newBed(t, d, func(g *gateway.Gateway) {
			g.Dial = func(context.Context, gateway.Request) (net.Conn, error) { return nil, tt.err }
		})
		_, err := b.dial("ann", secret)
		checkStatus(t, d, err, tt.http, tt.socks)
	}
}

// checkStatus checks what a client sees of a refusal.
func checkStatus(t *testing.T, d door, err error, http, socks int) {
	t.Helper()
	if err == nil {
		t.Errorf("got a connection, want %d or %d", http, socks)
		return
	}
	want := http
	switch d.codes {
	case codesNone:
		return
	case codesSOCKS5:
		want = socks
	}
	var e *dialer.Error
	if !errors.As(err, &e) || e.Status != want {
		t.Errorf("got %v, want status %d", err, want)
	}
}

// Whoever is not who may come in reaches nothing.
func testCredentials(t *testing.T, d door) {
	if d.open {
		return
	}
	b := newBed(t, d, nil)
	for _, tt := range []struct {
		name, user, password string
		http, socks          int
	}{
		{"none", "", "", 407, 0},
		{"wrong password", "ann", "wrong", 407, 0},
		{"nobody", "eve", secret, 407, 0},
		{"another cluster's", "bob", secret, 403, 2},
	} {
		_, err := b.dial(tt.user, tt.password)
		if tt.http == 407 && d.codes == codesSOCKS5 {
			if err == nil {
				t.Errorf("%s: got a connection", tt.name)
			}
			continue
		}
		checkStatus(t, d, err, tt.http, tt.socks)
	}
	if n := len(b.dialed); n > 0 {
		t.Errorf("got %d dials, want none", n)
	}
	b = newBed(t, d, func(g *gateway.Gateway) { g.Authenticate = nil })
	if _, err := b.dial("ann", secret); err == nil || len(b.dialed) > 0 {
		t.Error("a Gateway without Authenticate has let a client in")
	}
}

// A client that hangs up ends Dial.
func testHangUp(t *testing.T, d door) {
	dialing, ended := make(chan struct{}), make(chan struct{})
	b := newBed(t, d, func(g *gateway.Gateway) {
		g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
			close(dialing)
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	client := d.client(t, b.addr, "ann", secret)
	failed := make(chan error)
	go func() {
		_, err := client.DialContext(ctx, "tcp", targetA)
		failed <- err
	}()
	<-dialing
	cancel()
	if err := <-failed; err == nil {
		t.Error("got a connection")
	}
	<-ended
}

func testLimits(t *testing.T, d door) {
	b := newBed(t, d, func(g *gateway.Gateway) { g.MaxPerClient = 1 })
	if !d.open {
		client, target := b.pair()
		_, err := b.dial("ann", secret)
		checkStatus(t, d, err, 429, 1)
		if got := b.g.Status(); got.Clients["ann"] != 1 || got.Failed != 1 {
			t.Errorf("got status %+v", got)
		}
		closeWrite(t, client)
		target.Close()
		expectEnd(t, client)
	}
	const most = 16 // an HTTP/2 connection counts as well
	var others atomic.Int32
	b = newBed(t, d, func(g *gateway.Gateway) {
		known := g.Authenticate
		g.MaxConns, g.Authenticate = most, func(ctx context.Context, c gateway.Credentials) (gateway.Identity, error) {
			id, err := known(ctx, c)
			if n := others.Load(); n > 0 && !d.open {
				id.Name += strconv.Itoa(int(others.Add(1)))
			}
			return id, err
		}
	})
	open := func() (n int, err error) {
		for ; err == nil && n <= most; n++ {
			_, err = b.dial("ann", secret)
		}
		return n - 1, err
	}
	n, err := open()
	if !d.open { // a client has three times as many as are free
		checkStatus(t, d, err, 429, 1)
		if n < 7 || n > 12 {
			t.Errorf("one client has %d of %d", n, most)
		}
		others.Store(1)
		_, err = open()
	}
	checkStatus(t, d, err, 503, 1)
	if got := b.g.Status(); got.Open > most+2 || got.Failed == 0 { // one may still hear why, on a connection that has just come
		t.Errorf("got status %+v", got)
	}
}

// The end of the context lets nobody in, and those that are there finish.
func testDrain(t *testing.T, d door) {
	b := newBed(t, d, nil)
	client, target := b.pair()
	b.cancel()
	for { // until the listener is closed
		conn, err := net.Dial(b.addr.Network(), b.addr.String())
		if err != nil {
			break
		}
		conn.Close()
	}
	write(t, client, []byte("still here"))
	expect(t, target, []byte("still here"))
	write(t, target, []byte("so am I"))
	target.Close()
	expect(t, client, []byte("so am I"))
	expectEnd(t, client)
	client.Close()
	b.wait()
}

// What is left after Grace is cut, and looks so.
func testGrace(t *testing.T, d door) {
	b := newBed(t, d, func(g *gateway.Gateway) { g.Grace = -1 })
	client, target := b.pair()
	b.cancel()
	expectCut(t, d, client)
	expectCut(t, door{}, target)
	b.wait()
}

// expectCut wants anything but an end. A unix socket knows no other one.
func expectCut(t *testing.T, d door, client net.Conn) {
	t.Helper()
	n, err := client.Read(make([]byte, 1))
	if err == nil || errors.Is(err, io.EOF) && !d.unix {
		t.Errorf("got %d, %v, want an error", n, err)
	}
}

func testClose(t *testing.T, d door) {
	b := newBed(t, d, nil)
	client, target := b.pair()
	if err := b.g.Close(); err != nil {
		t.Errorf("got %v from Close", err)
	}
	expectCut(t, d, client)
	expectCut(t, door{}, target)
	b.wait()
	if s := b.g.Status(); s.Ready || s.Open != 0 {
		t.Errorf("got status %+v, want it empty", s)
	}
}

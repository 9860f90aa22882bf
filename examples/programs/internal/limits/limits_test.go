package limits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	got, err := Parse([]byte(`
# what the line carries
total: {bytesPerSecond: 100Mi}
client: {connections: 100, dialsPerSecond: 0.5}
clients:
  ann: {connections: 1000}
clusters:
  default/prod: {bytesPerSecond: 10M}
sources:
  10.0.0.0/8: {connections: 5}
  10.1.2.3: {connections: 6}
  "2001:db8::/48": {connections: 7}
`))
	if err != nil {
		t.Fatal(err)
	}
	const no = float64(rate.Inf)
	for k, want := range map[holderKey]limit{
		{"total", "all"}:                {no, no, 100 << 20},
		{"client", "ann"}:               {1000, no, no},
		{"client", "bob"}:               {100, 0.5, no},
		{"cluster", "default/prod"}:     {no, no, 10e6},
		{"source", "10.1.2.4"}:          {5, no, no},
		{"source", "10.1.2.3"}:          {6, no, no},
		{"source", "2001:db8:0:1::/64"}: {7, no, no},
		{"source", "2001:db9::/64"}:     {no, no, no},
	} {
		if got := got.limitFor(k); got != want {
			t.Errorf("%v: got %v, want %v", k, got, want)
		}
	}
	if got := got.Clusters(); len(got) != 1 || got[0] != "default/prod" {
		t.Errorf("got %q", got)
	}
	if got, err := Parse([]byte("{}")); err != nil || got.limitFor(holderKey{kindTotal, "all"}) != (limit{no, no, no}) {
		t.Errorf("got %+v and %v for no limits", got, err)
	}
}

func TestParseNamesTheField(t *testing.T) {
	const (
		connections = "want a whole number, 1 to 1000000000; leave it out"
		dials       = "want a number, 0.001 to 1000000; leave it out"
		perSecond   = "want a number of bytes, 16Ki to 1Pi, such as 10Mi; leave it out"
	)
	for text, want := range map[string]string{
		"clients: {ann: {connections: 0}}":                `clients["ann"].connections: got "0", ` + connections,
		"client: {connections: 1.5}":                      `client.connections: got "1.5", ` + connections,
		"client: {connections: 99999999999999999999}":     ", " + connections,
		"client: {connections: [5]}":                      `client.connections: got "[5]", ` + connections,
		"client: {connections: }":                         `client.connections: got "<nil>", ` + connections,
		"total: {dialsPerSecond: -1}":                     `total.dialsPerSecond: got "-1", ` + dials,
		"total: {dialsPerSecond: .nan}":                   "unsupported value: NaN",
		"total: {dialsPerSecond: fast}":                   `total.dialsPerSecond: got "fast", ` + dials,
		"client: {bytesPerSecond: 1e99}":                  `client.bytesPerSecond: got "1e+99", ` + perSecond,
		"client: {bytesPerSecond: 9999999999999999999Gi}": `client.bytesPerSecond: got "9999999999999999999Gi", ` + perSecond,
		"client: {bytesPerSecond: 1}":                     `client.bytesPerSecond: got "1", ` + perSecond,
		"client: {bytesPerSecond: 1MB}":                   `client.bytesPerSecond: got "1MB", ` + perSecond,
		"client: {bytesPerSecond: true}":                  `client.bytesPerSecond: got "true", ` + perSecond,
		"client: {bytesPerDay: 10Gi}":                     `client: unknown field "bytesPerDay": want connections, dialsPerSecond or bytesPerSecond`,
		"clients: {ann: {bytesPerDay: 10Gi}}":             `clients["ann"]: unknown field "bytesPerDay"`,
		"user: {connections: 1}":                          `the file: unknown field "user": want total, client`,
		"client: {conections: 1}":                         `client: unknown field "conections": want connections, dialsPerSecond`,
		"client: 5":                                       "client: want fields and their values, or {}",
		"clients: [ann]":                                  "clients: want fields and their values",
		"5":                                               "the file: want fields and their values",
		"sources: {10.0.0.1/8: {}}":                       `sources["10.0.0.1/8"] has bits behind its prefix: want 10.0.0.0/8`,
		"sources: {example.com: {}}":                      `sources["example.com"] is not a network`,
		"sources: {'2001:db8::1': {}}":                    "is too small: a source of IPv6 is a /64",
		"Client: {connections: 1}":                        `unknown field "Client"`,
		"clients: {ann: {Connections: 1}}":                `clients["ann"]: unknown field "Connections"`,
		" \n":                                             "the file: want fields and their values, or {}",
		"# only comments\n":                               "the file: want fields",
		"client:\n":                                       "client: want fields and their values, or {}",
		"clients: {ann: }":                                `clients["ann"]: want fields`,

		"total: {}\n---\ntotal: {}":              "one YAML document",
		"client: {connections: 1}\nclient: {}\n": "already set",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// admit connects a client to a target that sends nothing.
func admit(t *testing.T, l *Limiter, name, cluster, remote string) (net.Conn, error) {
	t.Helper()
	var near, far net.Conn
	conn, err := l.Admit(t.Context(), request(name, cluster, remote), func(context.Context, bool) (net.Conn, error) {
		near, far = net.Pipe()
		t.Cleanup(func() { far.Close() })
		return near, nil
	})
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

func request(name, cluster, remote string) gateway.Request {
	return gateway.Request{Client: gateway.Identity{Name: name}, Cluster: cluster, Credentials: gateway.Credentials{Remote: addr(remote)}}
}

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }

func newLimiter(t *testing.T, text string) *Limiter {
	t.Helper()
	l := New()
	l.Set(newConfig(t, text))
	return l
}

func newConfig(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each limit counts for those it is for, and for nobody else.
func TestConnections(t *testing.T) {
	const a, b = "192.0.2.1:40000", "192.0.2.2:40000"
	for _, tt := range []struct {
		limit   string
		same    [3]string // client, cluster and remote of the second one that is refused
		another [3]string // and of one that is not
		want    string
	}{
		{"client: {connections: 1}", [3]string{"ann", "other", b}, [3]string{"bob", "prod", a}, `limit: client "ann": connections: at most 1`},
		{"cluster: {connections: 1}", [3]string{"bob", "prod", b}, [3]string{"ann", "other", a}, `limit: cluster "prod": connections: at most 1`},
		{"source: {connections: 1}", [3]string{"bob", "other", "192.0.2.1:5"}, [3]string{"ann", "prod", b}, "limit: source \"192.0.2.1\": connections: at most 1"},
		{"total: {connections: 2}", [3]string{"bob", "other", b}, [3]string{}, "limit: all clients together: connections: at most 2"},
		{"client: {connections: 9}\nclients: {ann: {connections: 1}}", [3]string{"ann", "prod", a}, [3]string{"bob", "prod", a}, `client "ann"`},
		{"source: {connections: 9}\nsources: {192.0.2.0/24: {connections: 9}, 192.0.2.0/31: {connections: 1}}", [3]string{"bob", "prod", a}, [3]string{"bob", "prod", b}, "source \"192.0.2.1\""},
	} {
		t.Run(tt.limit, func(t *testing.T) {
			l := newLimiter(t, tt.limit)
			first, err := admit(t, l, "ann", "prod", a)
			if err != nil {
				t.Fatal(err)
			}
			if tt.another[1] == "" {
				tt.another = [3]string{"eve", "third", b}
			}
			if _, err := admit(t, l, tt.another[0], tt.another[1], tt.another[2]); err != nil {
				t.Errorf("another one: %v", err)
			}
			_, err = admit(t, l, tt.same[0], tt.same[1], tt.same[2])
			if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), tt.want) || e.Wait != 0 {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			first.Close()
			first.Close()
			if _, err := admit(t, l, tt.same[0], tt.same[1], tt.same[2]); err != nil {
				t.Errorf("after the first has ended: %v", err)
			}
		})
	}
}

// A dial that fails leaves nothing.
func TestDialFails(t *testing.T) {
	l := newLimiter(t, "total: {connections: 1}")
	want := errors.New("no agent")
	for range 3 {
		if _, err := l.Admit(t.Context(), request("", "prod", ""), func(context.Context, bool) (net.Conn, error) { return nil, want }); err != want {
			t.Errorf("got %v", err)
		}
	}
}

func TestDialsPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, "client: {dialsPerSecond: 2}")
		dials := func(want int) {
			t.Helper()
			for n := 0; ; n++ {
				conn, err := admit(t, l, "ann", "prod", "192.0.2.1:1")
				if err == nil {
					conn.Close()
					continue
				}
				if n != want {
					t.Errorf("got %d dials, want %d", n, want)
				}
				if e, _ := errors.AsType[*Error](err); e == nil || e.RetryAfter() != 500*time.Millisecond || !strings.Contains(err.Error(), "dialsPerSecond: at most 2") {
					t.Errorf("got %v", err)
				}
				return
			}
		}
		dials(20)
		time.Sleep(time.Second)
		dials(2)
		l.Set(newConfig(t, "clients: {ann: {dialsPerSecond: 2}}"))
		dials(0) // the same tokens
		if got := testutil.ToFloat64(l.Refused.WithLabelValues("client", "dialsPerSecond")); got != 3 {
			t.Errorf("got %v refused dials, want 3", got)
		}
	})
}

// stream sends without end through a connection of the client, and returns how much the
// target got within the time.
func stream(t *testing.T, l *Limiter, name string, connections int, d time.Duration) int64 {
	t.Helper()
	var (
		wg  sync.WaitGroup
		sum sync.Mutex
		got int64
	)
	for range connections {
		near, far := net.Pipe()
		conn, err := l.Admit(t.Context(), request(name, "prod", ""), func(context.Context, bool) (net.Conn, error) { return near, nil })
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			n, _ := io.Copy(io.Discard, far)
			sum.Lock()
			defer sum.Unlock()
			got += n
		})
		wg.Go(func() {
			for p := make([]byte, 50_000); ; {
				if _, err := conn.Write(p); err != nil {
					return
				}
			}
		})
		time.AfterFunc(d, func() { conn.Close() })
	}
	wg.Wait()
	return got
}

func TestBytesPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, "client: {bytesPerSecond: 1Mi}")
		if got := stream(t, l, "ann", 3, 10*time.Second); got < 10<<20*99/100 || got > 10<<20*105/100 {
			t.Errorf("got %d bytes in 10 s, want 10 MiB", got)
		}
		if got := testutil.ToFloat64(l.Waited.WithLabelValues("client")); got < 25 {
			t.Errorf("three connections have waited %v s", got)
		}
		l.Set(newConfig(t, "client: {bytesPerSecond: 2Mi}"))
		if got := stream(t, l, "ann", 1, 10*time.Second); got < 20<<20*99/100 || got > 20<<20*105/100 {
			t.Errorf("got %d bytes in 10 s, want 20 MiB", got)
		}
	})
}

// Connections that wait have taken nothing: when they are closed, nobody waits for their
// bytes. A new rate counts for those that go on waiting.
func TestWaitingTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, "client: {bytesPerSecond: 16Ki}")
		stream(t, l, "ann", 100, 10*time.Second)
		if got := stream(t, l, "ann", 1, 10*time.Second); got < 144<<10 {
			t.Errorf("got %d bytes in 10 s after clients that are gone, want 160 KiB", got)
		}
		time.AfterFunc(time.Second, func() { l.Set(newConfig(t, "client: {bytesPerSecond: 1Mi}")) })
		if got := stream(t, l, "ann", 100, 10*time.Second); got < 8<<20*95/100 {
			t.Errorf("got %d bytes, want 8 MiB after the limit was raised", got)
		}
	})
}

// direct copies by itself, as a stream of the tunnel.
type direct struct {
	net.Conn
	copier
}

// A connection copies by itself only if no limit of bytes is for it.
func TestMetered(t *testing.T) {
	for limit, want := range map[string]bool{"client: {connections: 1}": false, "clusters: {prod: {bytesPerSecond: 1Mi}}": true} {
		l := newLimiter(t, limit)
		conn, err := l.Admit(t.Context(), request("ann", "prod", ""), func(_ context.Context, metered bool) (net.Conn, error) {
			if metered != want {
				t.Errorf("%s: got metered %v, want %v", limit, metered, want)
			}
			near, far := net.Pipe()
			far.Close()
			return direct{Conn: near}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, got := conn.(copier); got == want {
			t.Errorf("%s: the connection copies by itself: %v, want %v", limit, got, !want)
		}
		conn.Close()
		if h := l.holders[holderKey{"client", "ann"}]; h.open != 0 {
			t.Errorf("%s: %d connections are open", limit, h.open)
		}
	}
}

// What a target sends counts, too.
func TestReadsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, "cluster: {bytesPerSecond: 1Mi}")
		near, far := net.Pipe()
		conn, err := l.Admit(t.Context(), request("", "prod", ""), func(context.Context, bool) (net.Conn, error) { return near, nil })
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			far.Write(make([]byte, 5<<20))
			far.Close()
		}()
		began := time.Now()
		n, err := io.Copy(io.Discard, conn)
		if took := time.Since(began); n != 5<<20 || err != nil || took < 4500*time.Millisecond || took > 5100*time.Millisecond {
			t.Errorf("got %d bytes and %v in %v", n, err, took)
		}
	})
}

// A connection that waits for bytes ends at once when it is closed.
func TestCloseWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, "total: {bytesPerSecond: 16Ki}")
		began := time.Now()
		stream(t, l, "ann", 100, time.Second)
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// Sources are many, and those that are gone are forgotten.
func TestHoldersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, "source: {dialsPerSecond: 1}")
		for i := range 6_000 {
			conn, err := admit(t, l, "", "prod", fmt.Sprintf("10.0.%d.%d:1", i/250, i%250))
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(l.holders); n > 3000 {
			t.Errorf("%d holders are kept", n)
		}
	})
}

func TestNoLimits(t *testing.T) {
	l := New()
	near, far := net.Pipe()
	defer far.Close()
	conn, err := l.Admit(t.Context(), request("", "", ""), func(context.Context, bool) (net.Conn, error) { return near, nil })
	if conn != near || err != nil {
		t.Errorf("got %v and %v", conn, err)
	}
	near.Close()
}

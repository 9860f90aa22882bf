package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
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
  default/prod: {bytesPerDay: 10Gi}
sources:
  10.0.0.0/8: {connections: 5}
  10.1.2.3: {connections: 6}
  "2001:db8::/48": {}
`))
	want := &Config{
		Total: Limit{BytesPerSecond: 100 << 20}, Client: Limit{Connections: 100, DialsPerSecond: 0.5},
		Clients: map[string]Limit{"ann": {Connections: 1000}}, Clusters: map[string]Limit{"default/prod": {BytesPerDay: 10 << 30}},
		Sources: map[netip.Prefix]Limit{
			netip.MustParsePrefix("10.0.0.0/8"): {Connections: 5}, netip.MustParsePrefix("10.1.2.3/32"): {Connections: 6}, netip.MustParsePrefix("2001:db8::/48"): {},
		},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || err != nil {
		t.Errorf("got %v: %s", err, diff)
	}
	if got, err := Parse([]byte("{}")); err != nil || got.Total != (Limit{}) {
		t.Errorf("got %+v and %v for no limits", got, err)
	}
}

func TestParseNamesTheField(t *testing.T) {
	const (
		connections = "want a whole number, 1 or more; leave it out"
		dials       = "want a number, 0.001 to 1000000; leave it out"
		perSecond   = "want a number of bytes, 16Ki to 1Pi, such as 10Mi; leave it out"
		perDay      = "want a number of bytes, 1Mi to 1Pi, such as 10Mi; leave it out"
	)
	for text, want := range map[string]string{
		"clients: {ann: {connections: 0}}":                `clients["ann"].connections: got 0, ` + connections,
		"client: {connections: '5'}":                      `client.connections: got "5", ` + connections,
		"client: {connections: 1.5}":                      "client.connections: got 1.5, " + connections,
		"client: {connections: 99999999999999999999}":     ", " + connections,
		"client: {connections: [5]}":                      "client.connections: got what is no number, " + connections,
		"client: {connections: }":                         "client.connections: there is no value, " + connections,
		"total: {dialsPerSecond: -1}":                     "total.dialsPerSecond: got -1, " + dials,
		"total: {dialsPerSecond: .nan}":                   "unsupported value: NaN",
		"total: {dialsPerSecond: fast}":                   `total.dialsPerSecond: got "fast", ` + dials,
		"client: {bytesPerSecond: 1e99}":                  "client.bytesPerSecond: got 1e+99, " + perSecond,
		"client: {bytesPerSecond: 9999999999999999999Gi}": `client.bytesPerSecond: got "9999999999999999999Gi", ` + perSecond,
		"client: {bytesPerSecond: 1}":                     "client.bytesPerSecond: got 1, " + perSecond,
		"client: {bytesPerSecond: 1MB}":                   `client.bytesPerSecond: got "1MB", ` + perSecond,
		"client: {bytesPerSecond: true}":                  "client.bytesPerSecond: got what is no number, " + perSecond,
		"client: {bytesPerDay: 16Ki}":                     `client.bytesPerDay: got "16Ki", ` + perDay,
		"user: {connections: 1}":                          `the file: unknown field "user": want total, client`,
		"client: {conections: 1}":                         `client: unknown field "conections": want connections, dialsPerSecond`,
		"client: 5":                                       "client: want fields and their values, or {}",
		"clients: [ann]":                                  "clients: want fields and their values",
		"5":                                               "the file: want fields and their values",
		"sources: {10.0.0.1/8: {}}":                       `sources["10.0.0.1/8"]: bits behind its prefix: want 10.0.0.0/8`,
		"sources: {example.com: {}}":                      `sources["example.com"]: want a network`,
		"sources: {'2001:db8::1/128': {}}":                "want no smaller network",
		"clusters: {'': {}}":                              `clusters: the name "" is empty`,
		"clusters: {' default/prod': {}}":                 `clusters: the name " default/prod" is empty, or has spaces`,
		"Client: {connections: 1}":                        `unknown field "Client"`,
		"clients: {ann: {Connections: 1}}":                `clients["ann"]: unknown field "Connections"`,
		" \n":                                             "the file: there is no value: write {} for no limits",
		"# only comments\n":                               "the file: there is no value",
		"client:\n":                                       "client: there is no value: write {}",
		"clients: {ann: }":                                `clients["ann"]: there is no value`,

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
	conn, err := l.Admit(t.Context(), Client{name, cluster, addr(remote)}, func(context.Context, bool) (net.Conn, error) {
		near, far = net.Pipe()
		t.Cleanup(func() { far.Close() })
		return near, nil
	})
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }

func newLimiter(t *testing.T, text string) *Limiter {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l := new(Limiter)
	l.Set(c)
	return l
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
		{"source: {connections: 1}", [3]string{"bob", "other", "192.0.2.1:5"}, [3]string{"ann", "prod", b}, "limit: source 192.0.2.1: connections: at most 1"},
		{"total: {connections: 2}", [3]string{"bob", "other", b}, [3]string{}, "limit: all clients together: connections: at most 2"},
		{"client: {connections: 9}\nclients: {ann: {connections: 1}}", [3]string{"ann", "prod", a}, [3]string{"bob", "prod", a}, `client "ann"`},
		{"source: {connections: 9}\nsources: {192.0.2.0/24: {connections: 9}, 192.0.2.0/31: {connections: 1}}", [3]string{"bob", "prod", a}, [3]string{"bob", "prod", b}, "source 192.0.2.1"},
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
		if _, err := l.Admit(t.Context(), Client{Cluster: "prod"}, func(context.Context, bool) (net.Conn, error) { return nil, want }); err != want {
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
		l.Set(&Config{Client: Limit{DialsPerSecond: 2}, Clients: map[string]Limit{"ann": {DialsPerSecond: 2}}})
		dials(0) // the same tokens
		if got := l.Counts()["client"].Refused["dialsPerSecond"]; got != 3 {
			t.Errorf("got %d refused dials, want 3", got)
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
		conn, err := l.Admit(t.Context(), Client{Name: name, Cluster: "prod"}, func(context.Context, bool) (net.Conn, error) { return near, nil })
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
		if got := l.Counts()["client"].Waited; got < 25*time.Second {
			t.Errorf("three connections have waited %v", got)
		}
		l.Set(&Config{Client: Limit{BytesPerSecond: 2 << 20}})
		if got := stream(t, l, "ann", 1, 10*time.Second); got < 20<<20*99/100 || got > 20<<20*105/100 {
			t.Errorf("got %d bytes in 10 s, want 20 MiB", got)
		}
	})
}

// One client with a hundred connections gets no more than another with one.
func TestFairShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, "total: {bytesPerSecond: 10Mi}")
		shares := map[string]int64{}
		var (
			wg sync.WaitGroup
			mu sync.Mutex
		)
		for name, connections := range map[string]int{"greedy": 100, "modest": 1, "third": 10} {
			wg.Go(func() {
				got := stream(t, l, name, connections, 10*time.Second)
				mu.Lock()
				defer mu.Unlock()
				shares[name] = got
			})
		}
		wg.Wait()
		for name, got := range shares {
			if fair := int64(100<<20) / 3; got < fair*95/100 || got > fair*107/100 {
				t.Errorf("%s got %d bytes, want %d", name, got, fair)
			}
		}
	})
}

type discard struct{ net.Conn }

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// gone is the connection of a client that has closed it: some writes meet nobody, and the
// next one a reset.
type gone struct {
	net.Conn
	writes int
}

func (g *gone) Write(p []byte) (int, error) {
	if g.writes--; g.writes < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// Clients that have closed their connections take little from one that has not: nothing if
// they are gone before they wait.
func TestClientsThatAreGone(t *testing.T) {
	t.Run("before", func(t *testing.T) { clientsGo(t, false, 8*64<<10) })
	t.Run("while they wait", func(t *testing.T) { clientsGo(t, true, 2*64<<10) })
}

func clientsGo(t *testing.T, wait bool, least int64) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, "client: {bytesPerSecond: 64Ki}")
		var wg sync.WaitGroup
		var conns []net.Conn
		far := &gone{writes: 1}
		if wait {
			far.writes = 2
		}
		for range 100 {
			to := *far
			near, far := net.Pipe()
			conn, err := l.Admit(t.Context(), Client{Name: "ann", Cluster: "prod"}, func(context.Context, bool) (net.Conn, error) { return near, nil })
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { far.Write(make([]byte, 1<<20)) })
			conns = append(conns, conn)
			wg.Go(func() {
				conn.(io.WriterTo).WriteTo(&to)
				conn.Close()
			})
		}
		synctest.Wait()
		for _, conn := range conns {
			if wait {
				conn.(interface{ CloseWrite() error }).CloseWrite()
			}
		}
		if got := stream(t, l, "ann", 1, 10*time.Second); got < least {
			t.Errorf("got %d bytes in 10 s beside clients that are gone, want %d of 640 KiB", got, least)
		}
		wg.Wait()
	})
}

// What a target sends counts, too, however it is read.
func TestReadsCount(t *testing.T) {
	for _, how := range []string{"Read", "DeliverTo"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, "cluster: {bytesPerSecond: 1Mi}")
				near, far := net.Pipe()
				conn, err := l.Admit(t.Context(), Client{Cluster: "prod"}, func(context.Context, bool) (net.Conn, error) { return near, nil })
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				go func() {
					far.Write(make([]byte, 5<<20))
					far.Close()
				}()
				began := time.Now()
				var n int64
				if how == "Read" {
					n, err = io.Copy(io.Discard, struct{ io.Reader }{conn})
				} else {
					n, err = conn.(interface {
						DeliverTo(net.Conn) (int64, error)
					}).DeliverTo(discard{})
				}
				if took := time.Since(began); n != 5<<20 || err != nil || took < 4500*time.Millisecond || took > 5100*time.Millisecond {
					t.Errorf("got %d bytes and %v in %v", n, err, took)
				}
			})
		})
	}
}

// What a client sends counts, too, when it is read from its connection.
func TestReadFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, "cluster: {bytesPerSecond: 1Mi}")
		near, far := net.Pipe()
		conn, err := l.Admit(t.Context(), Client{Cluster: "prod"}, func(context.Context, bool) (net.Conn, error) { return near, nil })
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn.(io.ReaderFrom).ReadFrom(bytes.NewReader(make([]byte, 5<<20)))
			conn.Close()
		}()
		began := time.Now()
		n, err := io.Copy(io.Discard, far)
		if took := time.Since(began); n != 5<<20 || err != nil || took < 4500*time.Millisecond || took > 5100*time.Millisecond {
			t.Errorf("got %d bytes and %v in %v", n, err, took)
		}
	})
}

func TestBytesPerDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, "client: {bytesPerDay: 48Mi}")
		near, far := net.Pipe()
		go io.Copy(io.Discard, far)
		conn, err := l.Admit(t.Context(), Client{Name: "ann", Cluster: "prod"}, func(context.Context, bool) (net.Conn, error) { return near, nil })
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		n, err := conn.Write(make([]byte, 96<<20))
		if e, _ := errors.AsType[*Error](err); e == nil || e.Limit != "bytesPerDay" || n != 48<<20 {
			t.Errorf("got %d and %v", n, err)
		}
		if _, err := admit(t, l, "ann", "prod", ""); err == nil || !strings.Contains(err.Error(), "bytesPerDay: at most 50331648") {
			t.Errorf("got %v", err)
		}
		time.Sleep(30 * time.Second) // some 16 KiB have come back
		if _, err := admit(t, l, "ann", "prod", ""); err == nil || !strings.Contains(err.Error(), "bytesPerDay") {
			t.Errorf("half a minute later: %v", err)
		}
		time.Sleep(time.Hour)
		if n, err := conn.Write(make([]byte, 2<<20-1<<17)); err != nil {
			t.Errorf("an hour later: %d bytes and %v", n, err)
		}
		// What was used counts when the limit changes.
		l.Set(&Config{Client: Limit{BytesPerDay: 96 << 20}})
		if n, err := conn.Write(make([]byte, 96<<20)); err == nil || n < 48<<20-1<<17 || n > 48<<20+1<<17 {
			t.Errorf("with twice as much for a day: %d bytes and %v", n, err)
		}
		l.Set(&Config{Client: Limit{BytesPerDay: 10 << 20}})
		if n, err := conn.Write(make([]byte, 1<<20)); err == nil || n > 1<<17 {
			t.Errorf("with less for a day than was used: %d bytes and %v", n, err)
		}
	})
}

// What was used of a day counts whatever the limits are in between, until it has come back.
func TestBytesPerDayCountOn(t *testing.T) {
	const mi = 1 << 20
	client := func(perDay int64) *Config { return &Config{Client: Limit{BytesPerDay: perDay * mi}} }
	own := func(perDay int64) *Config {
		return &Config{Clients: map[string]Limit{"ann": {BytesPerDay: perDay * mi}}}
	}
	for _, tt := range []struct {
		name  string
		then  []*Config // 8 Mi of 10 Mi were used before
		sleep time.Duration
		last  *Config
		want  int64 // Mi that are left
	}{
		{"higher", nil, 0, client(20), 12},
		{"a limit of her own", nil, 0, own(10), 2},
		{"none in between", []*Config{{}}, 0, client(10), 2},
		{"none in between, then a limit of her own", []*Config{{}}, 0, own(10), 2},
		{"none for twelve hours", []*Config{{}}, 12 * time.Hour, client(10), 7},
		{"none for a day", []*Config{{}}, 24 * time.Hour, client(10), 10},
		{"lower", nil, 0, client(5), 0},
		{"lower in between", []*Config{client(5)}, 0, client(20), 12},
		{"lower for twelve hours", []*Config{client(5)}, 12 * time.Hour, client(5), 1}, // the 3 Mi too many take 7.2 hours
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, "client: {bytesPerDay: 10Mi}")
				send := func(most int64) int64 {
					near, far := net.Pipe()
					go io.Copy(io.Discard, far)
					conn, err := l.Admit(t.Context(), Client{Name: "ann", Cluster: "prod"}, func(context.Context, bool) (net.Conn, error) { return near, nil })
					if err != nil {
						near.Close()
						return 0
					}
					defer conn.Close()
					n, _ := conn.Write(make([]byte, most))
					return int64(n)
				}
				if got := send(8 * mi); got != 8*mi {
					t.Fatalf("used %d bytes", got)
				}
				for _, c := range tt.then {
					l.Set(c)
				}
				time.Sleep(tt.sleep)
				l.Set(tt.last)
				if got := send(30 * mi); got > tt.want*mi || got < tt.want*mi-maxPiece {
					t.Errorf("%d bytes are left, want %d", got, tt.want*mi)
				}
			})
		})
	}
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
	l := new(Limiter)
	near, far := net.Pipe()
	defer far.Close()
	conn, err := l.Admit(t.Context(), Client{}, func(context.Context, bool) (net.Conn, error) { return near, nil })
	if conn != near || err != nil {
		t.Errorf("got %v and %v", conn, err)
	}
	near.Close()
}

package mux_test

import (
	"cmp"
	"crypto/tls"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/test/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// carriers make the two ends of a carrier.
var carriers = []struct {
	name string
	pair func(testing.TB) (client, server net.Conn)
}{
	{"pipe", pipePair},
	{"tcp", tcpPair},
	{"tls", tlsPair},
	{"gathered", gatheredPair},
	{"waiting", waitingPair},
}

func pipePair(testing.TB) (client, server net.Conn) { return net.Pipe() }

func tcpPair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func tlsPair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	return tlsPairOver(t, tcpPair)
}

func tlsPairOver(t testing.TB, pair func(testing.TB) (client, server net.Conn)) (client, server net.Conn) {
	t.Helper()
	ca := pki.NewCA("mux test")
	cert := ca.Server("localhost")
	client, server = pair(t)
	c := tls.Client(client, &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS13})
	s := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})
	shaken := make(chan error, 1)
	go func() { shaken <- s.Handshake() }()
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	return c, s
}

// sessions starts one on each end, and ends them with the test.
func sessions(t testing.TB, pair func(testing.TB) (client, server net.Conn), c *mux.Config) (client, server *mux.Session) {
	t.Helper()
	a, b := pair(t)
	var own mux.Config
	if c != nil {
		own = *c
	}
	own.Budget = cmp.Or(own.Budget, &budget.Budget{}) // what a test leaves unread is not the next one's
	client, server = mux.Client(a, &own), mux.Server(b, &own)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

// connect opens a stream and accepts it.
func connect(t testing.TB, from, to *mux.Session, first string) (opened, accepted *mux.Stream) {
	t.Helper()
	opened, err := from.Open(t.Context(), []byte(first))
	if err != nil {
		t.Fatal(err)
	}
	return opened, accept(t, to)
}

func accept(t testing.TB, s *mux.Session) *mux.Stream {
	t.Helper()
	st, err := s.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

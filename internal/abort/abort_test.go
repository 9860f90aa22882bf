package abort_test

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/test/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noted writes down what is done to it.
type noted struct {
	net.Conn
	name string
	log  *[]string
}

func (n noted) Close() error { *n.log = append(*n.log, "close "+n.name); return nil }

// wrapper has one below, and reset is one that can be reset.
type (
	wrapper struct {
		noted
		inner net.Conn
	}
	reset struct{ wrapper }
)

func (w wrapper) NetConn() net.Conn { return w.inner }

func (r reset) Reset(code uint32) error {
	if code == 7 {
		*r.log = append(*r.log, "reset "+r.name)
	}
	return nil
}

func TestOrder(t *testing.T) {
	var log []string
	plain := noted{name: "plain", log: &log}
	wrapped := wrapper{noted{name: "wrapper", log: &log}, plain}
	stream := reset{wrapper{noted{name: "stream", log: &log}, plain}}
	tests := []struct {
		name  string
		conn  net.Conn
		close []string
		reset []string
	}{
		{"plain", plain, []string{"close plain"}, []string{"close plain"}},
		{"wrapper", wrapped, []string{"close plain", "close wrapper"}, []string{"close plain", "close wrapper"}},
		{"nothing below", wrapper{noted{name: "wrapper", log: &log}, nil}, []string{"close wrapper"}, []string{"close wrapper"}},
		{"stream", stream, []string{"close stream"}, []string{"reset stream", "close stream"}},
		{"wrapped stream", wrapper{noted{name: "wrapper", log: &log}, stream},
			[]string{"close stream", "close wrapper"}, []string{"reset stream", "close stream", "close wrapper"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log = nil
			abort.Close(tt.conn)
			if !slices.Equal(log, tt.close) {
				t.Errorf("Close: got %q, want %q", log, tt.close)
			}
			log = nil
			abort.Reset(tt.conn, 7)
			if !slices.Equal(log, tt.reset) {
				t.Errorf("Reset: got %q, want %q", log, tt.reset)
			}
		})
	}
}

// handshaken is TLS over the two ends.
func handshaken(t *testing.T, client, server net.Conn) (*tls.Conn, *tls.Conn) {
	t.Helper()
	ca := pki.NewCA("abort") // valid by the clock of the test
	cert := ca.Server("abort.test")
	c := tls.Client(client, &tls.Config{RootCAs: ca.Pool(), ServerName: "abort.test"})
	// The handshake of 1.2 works over net.Pipe, where a write waits for its
	// reader, and without tickets it leaves nothing to be read.
	s := tls.Server(server, &tls.Config{
		Certificates:           []tls.Certificate{cert},
		MaxVersion:             tls.VersionTLS12,
		SessionTicketsDisabled: true,
	})
	done := make(chan error, 1)
	go func() { done <- s.Handshake() }()
	if err := errors.Join(c.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// TestNoGoodbye: a peer that reads nothing keeps a tls.Conn's own Close for
// five seconds.
func TestNoGoodbye(t *testing.T) {
	tests := []struct {
		name  string
		close func(net.Conn)
		took  time.Duration
	}{
		{"Close", abort.Close, 0},
		{"Reset", func(conn net.Conn) { abort.Reset(conn, 0) }, 0},
		{"the conn's own", func(conn net.Conn) { conn.Close() }, 5 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer server.Close()
				conn, _ := handshaken(t, client, server)
				began := time.Now()
				tt.close(conn)
				if took := time.Since(began); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if _, err := client.Write(nil); err == nil {
					t.Error("what is below was left open")
				}
			})
		})
	}
}

func TestResetIsSeen(t *testing.T) {
	for _, secure := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		far, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		near, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if secure {
			_, near = handshaken(t, far, near)
		}
		abort.Reset(near, 0)
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("TLS %v: got %v, want a reset", secure, err)
		}
	}
}

// uncomparable is a connection of a caller, by value.
type uncomparable struct {
	noted
	_ []byte
}

func TestUncomparable(t *testing.T) {
	var log []string
	abort.Close(uncomparable{noted: noted{name: "a", log: &log}})
	abort.Reset(uncomparable{noted: noted{name: "b", log: &log}}, 0)
	if !slices.Equal(log, []string{"close a", "close b"}) {
		t.Errorf("got %q", log)
	}
}

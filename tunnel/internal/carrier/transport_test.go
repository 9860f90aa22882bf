package carrier_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// A transport dials a listener that it has made at an address.
type transport struct {
	name   string
	listen func(t testing.TB) net.Listener
	dial   func(ctx context.Context, address string) (net.Conn, error)
}

// transports are the ones to test.
var transports = []transport{
	tcp(),
	webSocket("ws", nil),
	webSocket("wss", func() *tls.Config {
		config := pki.ClientTLS()
		config.ServerName = ""
		config.Certificates = pki.ServerTLS().Certificates
		return config
	}),
}

// tcp is TCP with options.
func tcp() transport {
	return transport{
		name:   "tcp",
		listen: func(t testing.TB) net.Listener { return socket.TuneListener(listen(t)) },
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				socket.Tune(conn)
			}
			return conn, err
		},
	}
}

// webSocket is WebSocket with outer TLS, unless config is nil.
func webSocket(scheme string, config func() *tls.Config) transport {
	outer := func() *tls.Config {
		if config == nil {
			return nil
		}
		return config()
	}
	return transport{
		name:   scheme,
		listen: func(t testing.TB) net.Listener { return carrier.ListenWebSocket(listen(t), outer()) },
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			return dialWebSocket(ctx, nil, scheme+"://"+address+"/tunnel", outer())
		},
	}
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func dialWebSocket(ctx context.Context, dial dialFunc, address string, config *tls.Config) (net.Conn, error) {
	u, err := websocket.ParseURL(address)
	if err != nil {
		return nil, err
	}
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", websocket.HostPort(u))
	if err != nil {
		return nil, err
	}
	socket.Tune(conn)
	return carrier.ClientWebSocket(ctx, conn, u, config)
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ends returns the two ends of a connection of the transport.
func ends(t testing.TB, tt transport) (agent, server net.Conn) {
	t.Helper()
	l := tt.listen(t)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
	})
	agent, err := tt.dial(testContext(t), l.Addr().String())
	if err != nil {
		l.Close()
		t.Fatal(err)
	}
	wg.Wait()
	server = <-accepted
	t.Cleanup(func() { agent.Close(); server.Close() })
	return agent, server
}

// handshake is Client or Server with the configuration hardened, which is not
// changed.
func handshake(ctx context.Context, raw net.Conn, config *tls.Config, server bool) (*carrier.Conn, error) {
	config = carrier.Harden(config.Clone())
	if server {
		return carrier.Server(ctx, raw, config)
	}
	return carrier.Client(ctx, raw, config)
}

// carriers secures both ends.
func carriers(t testing.TB, a, b net.Conn) (agent, server *carrier.Conn) {
	t.Helper()
	ctx := testContext(t)
	var wg sync.WaitGroup
	var err1, err2 error
	wg.Go(func() { agent, err1 = handshake(ctx, a, pki.ClientTLS(), false) })
	wg.Go(func() { server, err2 = handshake(ctx, b, pki.ServerTLS(), true) })
	wg.Wait()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Close(); server.Close() })
	return agent, server
}

func TestCarriersPassBytesBothWays(t *testing.T) {
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			a, b := ends(t, tt)
			agent, server := carriers(t, a, b)
			var wg sync.WaitGroup
			for _, pair := range [][2]*carrier.Conn{{agent, server}, {server, agent}} {
				from, to := pair[0], pair[1]
				data := make([]byte, 3<<20)
				rand.NewChaCha8([32]byte{1}).Read(data)
				wg.Go(func() {
					for rest := data; len(rest) > 0; {
						n := min(len(rest), 1+rand.IntN(100_000))
						if _, err := from.Write(rest[:n]); err != nil {
							t.Error(err)
							return
						}
						if rest = rest[n:]; rand.IntN(2) == 0 {
							continue
						}
						if err := from.Flush(); err != nil {
							t.Error(err)
						}
					}
					if err := from.Flush(); err != nil {
						t.Error(err)
					}
				})
				wg.Go(func() {
					got := make([]byte, len(data))
					if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, data) {
						t.Errorf("got other bytes, error %v", err)
					}
				})
			}
			wg.Wait()
			if err := agent.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if n, err := server.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("after the peer's Close: got %d, %v; want io.EOF", n, err)
			}
		})
	}
}

func TestHandshakeIsBoundByItsContext(t *testing.T) {
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			_, server := ends(t, tt)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := handshake(ctx, server, pki.ServerTLS(), true)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want DeadlineExceeded", err)
			}
			if _, err := server.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v, want the connection closed", err)
			}
		})
	}
}

func readAll(t *testing.T, conn net.Conn, size int) int {
	t.Helper()
	n, err := io.ReadFull(conn, make([]byte, size))
	if err != nil {
		t.Error(err)
	}
	return n
}

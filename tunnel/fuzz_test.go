package tunnel_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// Whatever comes after TLS, the server neither hangs nor panics, and serves the
// next one.
func FuzzServer(f *testing.F) {
	f.Add(false, []byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(false, rawMessage(32, uint16(3), uint64(1), uint16(8), []byte("x.y")))
	f.Add(true, append([]byte{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, byte(len(rawHello()))}, rawHello()...))
	f.Add(true, []byte{0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7})
	b := newBed(f, &tunnel.Server{HandshakeTimeout: time.Second})
	credentials := b.enrolled()
	f.Fuzz(func(t *testing.T, agent bool, p []byte) {
		var c *tunnel.Credentials
		if agent {
			c = credentials
		}
		wire, err := b.w.Dial(t.Context(), "tcp", wireAddress)
		if err != nil {
			t.Fatal(err)
		}
		defer wire.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		carrier, err := tunnel.RawCarrier(ctx, wire, c)
		if err != nil {
			t.Fatal(err)
		}
		carrier.SetDeadline(time.Now().Add(20 * time.Second))
		go func() {
			carrier.Write(p)
			carrier.(interface{ Flush() error }).Flush()
			time.AfterFunc(10*time.Millisecond, func() { carrier.Close() })
		}()
		io.Copy(io.Discard, carrier)
		carrier.Close()
	})
}

package gateway_test

import (
	"context"
	"net"
	"testing"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// What a client has sent for a stream before it knows that the door refused that
// one harms no tunnel of the connection.
func TestHTTP2RefusedStream(t *testing.T) {
	const slow = "slow:1" // Dial does not return
	for _, tt := range []struct {
		name   string
		refuse func(*bed, *h2wire) (id uint32) // of the stream that will be refused
	}{
		{"drain", func(b *bed, w *h2wire) uint32 {
			b.cancel()
			next[*http2.GoAwayFrame](w)
			return 3
		}},
		{"full house", func(b *bed, w *h2wire) uint32 {
			const most = 1000 // SETTINGS_MAX_CONCURRENT_STREAMS
			for i := range uint32(most - 1) {
				w.headers(2*i+3, ":method", "CONNECT", ":authority", slow)
			}
			return 2*most + 1
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newH2Bed(t, func(g *gateway.Gateway) {
				dial := g.Dial
				g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
					if r.Address == slow {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return dial(ctx, r)
				}
			})
			w := newH2Wire(b)
			w.headers(1, ":method", "CONNECT", ":authority", "a:1")
			next[*http2.MetaHeadersFrame](w)
			target := <-b.targets
			defer target.Close()
			id := tt.refuse(b, w)
			w.headers(id, ":method", "CONNECT", ":authority", "a:1")
			w.WriteData(id, false, []byte("early"))
			w.WriteWindowUpdate(id, 1<<10)
			w.headers(id, "a", "trailer")
			w.WriteRSTStream(id, http2.ErrCodeCancel)
			if f := next[*http2.RSTStreamFrame](w); f.StreamID != id || f.ErrCode != http2.ErrCodeRefusedStream {
				t.Fatalf("got %v, want stream %d refused", f, id)
			}
			write(t, target, []byte("still here"))
			if f := next[*http2.DataFrame](w); f.StreamID != 1 || string(f.Data()) != "still here" {
				t.Errorf("got %v", f)
			}
			w.WriteData(1, false, []byte("so am I"))
			expect(t, target, []byte("so am I"))
		})
	}
}

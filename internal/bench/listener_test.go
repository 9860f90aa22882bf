package bench

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// A listener runs a function per connection, on a port of 127.0.0.1 that the
// kernel chose. Close closes the connections and waits for the functions.
type listener struct{ *proxytest.Server }

func listenTCP() (net.Listener, error) {
	return net.Listen("tcp", cmp.Or(os.Getenv(hostEnv), "127.0.0.1")+":0")
}

// listen starts one. The connection is closed when handle returns.
func listen(handle func(net.Conn)) (*listener, error) {
	l, err := listenTCP()
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return &listener{proxytest.Serve(l, func(_ context.Context, conn net.Conn) { handle(conn) })}, nil
}

func (l *listener) addr() string { return l.Addr() }

func (l *listener) Close() error {
	l.Server.Close()
	return nil
}

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// relay copies both ways until one way ends, and closes both: the comparison's
// peers have no half-close, and its protocol wants none. At most chunk bytes are
// copied at a time.
func relay(a, b net.Conn, chunk int) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			copyChunks(way[0], way[1], chunk)
			a.Close()
			b.Close()
		})
	}
	wg.Wait()
}

// copyChunks is io.Copy without ReadFrom and WriteTo: the same loop for each row.
func copyChunks(dst, src net.Conn, chunk int) {
	buf := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(buf)
	for {
		n, err := src.Read(buf[:chunk])
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

package main

import (
	"net"
	"sync"
)

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// relay copies both ways until one way ends, and closes both: the comparison's
// peers have no half-close, and its protocol wants none. At most chunk bytes are
// copied at a time.
func relay(a, b net.Conn, chunk int) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			pump(way[0], way[1], chunk)
			a.Close()
			b.Close()
		})
	}
	wg.Wait()
}

// pump is io.Copy without ReadFrom and WriteTo: the same loop for each row.
func pump(dst, src net.Conn, chunk int) {
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

//go:build unix

package socket

import "net"

// Idles returns how often a reader of conn, which has nothing to read, says so
// while it finds nothing twice.
func Idles(conn net.Conn) (n int) {
	r := newTryReader(conn)
	r.idle = func() { n++ }
	r.raw.Control(func(fd uintptr) {
		r.step(fd)
		r.step(fd)
	})
	return n
}

// Package linktest is a TCP link with a delay, a rate and faults, for tests.
//
// A [Link] stands between a client and a target, in user space: it needs no
// privileges and no network of its own. Its [Config] may be changed at any
// time; the zero value is a plain relay.
//
//	link := linktest.New(linktest.Config{
//		Down: linktest.Direction{Delay: 50 * time.Millisecond, Rate: 1_250_000},
//	})
//	defer link.Close()
//	addr, err := link.Listen("192.0.2.1:6443") // for the client to dial
//
// Under testing/synctest, where there are no sockets, [Link.Join] takes two
// net.Pipes.
//
// # What it is not
//
// The link ends TCP on both sides. So connecting takes no time, whatever the
// delay, and the client's bytes are acknowledged when the link has them: with
// Drop its writes succeed for as long as it makes any, where on a real link
// they would fill its socket's buffer and then time out. The link's own socket
// buffers are small, but those of the client and of the target are not its own:
// with a low rate they may hold megabytes unless the test limits them
// (SetReadBuffer, SetWriteBuffer). There is no loss of single packets; what a
// sender notices of it is a stall.
package linktest

package linktest_test

import (
	"io"
	"net"
	"testing"

	"github.com/causewayproject/causeway/internal/linktest"
)

// BenchmarkPlain is what a link without a limit lets through.
func BenchmarkPlain(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	link := linktest.New(linktest.Config{})
	defer link.Close()
	addr, err := link.Listen(l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	target, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	read := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, target)
		target.Close()
		read <- n
	}()
	buf := make([]byte, 1<<20)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := conn.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	conn.Close()
	<-read
}

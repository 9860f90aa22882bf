package linktest_test

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
)

// A server is reached over a link that is slow, and then dies without a word.
func Example() {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer server.Close()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		io.Copy(conn, conn) // an echo
	}()

	slow := linktest.Direction{Delay: 50 * time.Millisecond, Rate: 1_250_000} // 10 Mbit/s
	link := linktest.New(linktest.Config{Up: slow, Down: slow})
	defer link.Close()
	addr, err := link.Listen(server.Addr().String())
	if err != nil {
		panic(err)
	}

	conn, err := net.Dial("tcp", addr)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	began := time.Now()
	answer := make([]byte, 5)
	fmt.Fprint(conn, "hello")
	io.ReadFull(conn, answer)
	fmt.Printf("%s after 100 ms: %v\n", answer, time.Since(began) >= 100*time.Millisecond)

	link.HalfOpen(linktest.Target)
	fmt.Fprint(conn, "anybody?")
	conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	_, err = io.ReadFull(conn, answer)
	timeout, ok := err.(net.Error)
	fmt.Println("then silence:", ok && timeout.Timeout())
	// Output:
	// hello after 100 ms: true
	// then silence: true
}

package group_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/group"
)

// One connection holds up no other. At the end only what was accepted lives on.
func TestListener(t *testing.T) {
	below, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// A client says by one byte what becomes of it.
	l := group.NewListener(below, func(ctx context.Context, conn net.Conn) net.Conn {
		said := make([]byte, 1)
		if conn.Read(said); said[0] == 'a' {
			return conn
		}
		if said[0] == 'h' {
			<-ctx.Done()
		}
		conn.Close()
		return nil
	})
	dial := func(say string) net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.Write([]byte(say))
		return conn
	}
	held, refused, client := dial("h"), dial("r"), dial("a")
	conn, err := l.Accept()
	if err != nil || conn.RemoteAddr().String() != client.LocalAddr().String() {
		t.Fatalf("Accept: got %v, %v, want the connection of %v", conn, err, client.LocalAddr())
	}
	defer conn.Close()
	left := dial("a")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: got %v, want net.ErrClosed", err)
	}
	for what, end := range map[string]net.Conn{"held": held, "refused": refused, "left": left} {
		end.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := end.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got %d bytes, %v, want the end", what, n, err)
		}
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Errorf("accepted before: %v", err)
	}
	if n, err := client.Read(make([]byte, 1)); n != 1 {
		t.Errorf("accepted before: got %d bytes, %v", n, err)
	}
}

package mux_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/causewayproject/causeway/internal/mux"
)

// Clients read why they get no session, and the end.
func TestRefuse(t *testing.T) {
	for name, client := range map[string]func(t *testing.T, conn net.Conn) io.ReadWriter{
		"ours": func(t *testing.T, conn net.Conn) io.ReadWriter {
			s := mux.Client(conn, nil)
			t.Cleanup(func() { s.Close() })
			st, err := s.Open(t.Context(), []byte("hello"))
			if err != nil {
				t.Fatal(err)
			}
			return st
		},
		"yamux": func(t *testing.T, conn net.Conn) io.ReadWriter {
			s, err := yamux.Client(conn, yamuxConfig())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			st, err := s.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			return st
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tcpPair(t)
			refused := make(chan error, 1)
			go func() {
				err := mux.Refuse(a, []byte("no"))
				io.Copy(io.Discard, a)
				refused <- err
			}()
			st := client(t, b)
			if got, err := io.ReadAll(st); string(got) != "no" || err != nil {
				t.Errorf("got %q, %v, want the answer and the end", got, err)
			}
			b.Close()
			if err := <-refused; err != nil {
				t.Error(err)
			}
		})
	}
}

// What is no client of a session gets no answer.
func TestRefuseNoClient(t *testing.T) {
	for name, first := range map[string][]byte{
		"HTTP":               []byte("GET / HTTP/1.1\r\n"),
		"no stream":          header(window, 0, 1, 0),
		"data of no stream":  dataFrame(0, 1, "x"),
		"a server's stream":  header(window, syn, 2, 0),
		"it goes away":       header(goAway, 0, 0, 0),
		"pings, and the end": append(header(ping, syn, 0, 1), header(ping, syn, 0, 2)...),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			go func() {
				b.Write(first)
				b.Close()
			}()
			err := mux.Refuse(a, []byte("no"))
			a.Close()
			var protocol *mux.ProtocolError
			if !errors.As(err, &protocol) && !errors.Is(err, io.EOF) {
				t.Errorf("got %v, want an error of the protocol, or the end", err)
			}
		})
	}
}

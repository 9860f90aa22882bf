package mux_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/causewayproject/causeway/internal/mux"
)

func yamuxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput = io.Discard
	return c
}

// withYamux starts one of ours against a session of hashicorp/yamux.
func withYamux(t *testing.T, client bool) (*mux.Session, *yamux.Session) {
	t.Helper()
	a, b := tcpPair(t)
	ours, start := mux.Server, yamux.Client
	if client {
		ours, start = mux.Client, yamux.Server
	}
	s := ours(a, nil)
	theirs, err := start(b, yamuxConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		theirs.Close()
	})
	return s, theirs
}

func TestInterop(t *testing.T) {
	roles := []struct {
		name   string
		client bool
	}{{"client", true}, {"server", false}}
	for _, role := range roles {
		t.Run(role.name+" opens", func(t *testing.T) {
			ours, theirs := withYamux(t, role.client)
			st, err := ours.Open(t.Context(), []byte("first"))
			if err != nil {
				t.Fatal(err)
			}
			peer, err := theirs.AcceptStream()
			if err != nil {
				t.Fatal(err)
			}
			read(t, peer, "first")
			exchange(t, st, peer, st.CloseWrite, peer.Close)
		})
		t.Run(role.name+" accepts", func(t *testing.T) {
			ours, theirs := withYamux(t, role.client)
			peer, err := theirs.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			st := accept(t, ours)
			exchange(t, peer, st, peer.Close, st.CloseWrite)
			if n := theirs.NumStreams(); n != 0 {
				t.Errorf("yamux has %d streams, want 0", n)
			}
		})
	}
}

// exchange sends megabytes each way and ends both.
func exchange(t *testing.T, a, b net.Conn, endA, endB func() error) {
	t.Helper()
	data := bytes.Repeat([]byte("0123456789abcde\n"), 256<<10)
	sent := make(chan error, 1)
	send := func(c net.Conn, end func() error) {
		_, err := c.Write(data)
		if err == nil {
			err = end()
		}
		sent <- err
	}
	for _, way := range []struct {
		from, to net.Conn
		end      func() error
	}{{a, b, endA}, {b, a, endB}} {
		go send(way.from, way.end)
		got, err := io.ReadAll(way.to)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("got %d bytes and error %v, want %d bytes", len(got), err, len(data))
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
}

func read(t testing.TB, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("got %q and error %v, want %q", got, err, want)
	}
}

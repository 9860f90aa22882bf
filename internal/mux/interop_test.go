package mux_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

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

// What is beside data: pings, resets and going away, each said by one side and
// understood by the other.
func TestInteropControl(t *testing.T) {
	for _, client := range []bool{true, false} {
		ours, theirs := withYamux(t, client)
		if rtt, err := ours.Ping(t.Context()); err != nil || rtt <= 0 {
			t.Errorf("our ping: got %v, %v", rtt, err)
		}
		if rtt, err := theirs.Ping(); err != nil || rtt <= 0 {
			t.Errorf("their ping: got %v, %v", rtt, err)
		}
		st, err := ours.Open(t.Context(), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		peer, err := theirs.AcceptStream()
		if err != nil {
			t.Fatal(err)
		}
		read(t, peer, "x")
		st.Reset(77)
		if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, yamux.ErrConnectionReset) {
			t.Errorf("our reset: got %v, want yamux.ErrConnectionReset", err)
		}
		// They reset what comes after they said to go away.
		if err := theirs.GoAway(); err != nil {
			t.Fatal(err)
		}
		if _, err := ours.Ping(t.Context()); err != nil { // its answer comes behind it
			t.Fatal(err)
		}
		if _, err := ours.Open(t.Context(), nil); !errors.Is(err, mux.ErrGoAway) {
			t.Errorf("their going away: got %v, want ErrGoAway", err)
		}
	}
}

// They reset a stream that they can't take: ours reads a reset, and no end.
func TestInteropTheirReset(t *testing.T) {
	a, b := tcpPair(t)
	ours := mux.Client(a, nil)
	defer ours.Close()
	config := yamuxConfig()
	config.AcceptBacklog = 1
	theirs, err := yamux.Server(b, config)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	for range 2 {
		st, err := ours.Open(t.Context(), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if _, err := ours.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		st.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err = st.Read(make([]byte, 1))
		if errors.Is(err, syscall.ECONNRESET) {
			return
		}
	}
	t.Error("got no reset of the second stream")
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

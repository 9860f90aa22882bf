package session_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/session"
)

// Each stream's end, its code included, comes out of a bridge as it went in.
func TestBridgeCodes(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*mux.Stream)
		code uint32 // of the reset; or an end of file
		eof  bool
	}{
		{"reset", func(s *mux.Stream) { s.Reset(6) }, 6, false},
		{"the reader went away", func(s *mux.Stream) { s.Reset(0) }, 0, false},
		{"close", func(s *mux.Stream) { s.Close() }, 0, true},
		{"half-close", func(s *mux.Stream) { s.CloseWrite() }, 0, true},
	} {
		for _, fromAgent := range []bool{false, true} {
			name := tt.name + " by the caller"
			if fromAgent {
				name = tt.name + " by the agent"
			}
			t.Run(name, func(t *testing.T) {
				client, agent := bridged(t, context.Background())
				if fromAgent {
					client, agent = agent, client
				}
				client.Write([]byte("abc"))
				buf := make([]byte, 3)
				if _, err := io.ReadFull(agent, buf); err != nil {
					t.Fatal(err)
				}
				tt.end(client)
				_, err := agent.Read(buf)
				var reset *mux.ResetError
				switch isReset := errors.As(err, &reset); {
				case tt.eof && err != io.EOF:
					t.Errorf("got %v, want the end", err)
				case !tt.eof && (!isReset || !reset.Remote || reset.Code != tt.code):
					t.Errorf("got %v, want a reset of code %d", err, tt.code)
				}
				agent.Close()
			})
		}
	}
}

// Who has sent all and reads no more has sent all: that the other side cannot
// write to it costs nothing of it.
func TestBridgeKeepsWhatWasSent(t *testing.T) {
	client, agent := bridged(t, context.Background())
	const size = 400 << 10 // more than a window, less than two
	agent.Write(make([]byte, size))
	agent.Close()
	for range 10 {
		client.Write(make([]byte, 1<<10))
	}
	if n, err := io.Copy(io.Discard, struct{ io.Reader }{client}); n != size || err != nil {
		t.Errorf("got %d bytes, %v, want %d and the end", n, err, size)
	}
}

// When its context ends, both ends of a bridge see a reset, and nothing is left.
func TestBridgeContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client, agent := bridged(t, ctx)
	cancel()
	for _, s := range []*mux.Stream{client, agent} {
		var reset *mux.ResetError
		if _, err := s.Read(make([]byte, 1)); !errors.As(err, &reset) || reset.Code != 10 {
			t.Errorf("got %v, want a reset of code 10", err)
		}
	}
}

// bridged are the far ends of two streams that a bridge relays between.
func bridged(t *testing.T, ctx context.Context) (client, agent *mux.Stream) {
	t.Helper()
	client, near := streamPair(t)
	agent, far := streamPair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		session.Bridge(ctx, near, far)
	}()
	t.Cleanup(func() {
		client.Reset(0)
		agent.Reset(0)
		<-done
	})
	return client, agent
}

// streamPair returns both ends of one stream.
func streamPair(t *testing.T) (a, b *mux.Stream) {
	t.Helper()
	x, y := net.Pipe()
	client, server := mux.Client(x, nil), mux.Server(y, nil)
	a, err := client.Open(t.Context(), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = server.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return a, b
}

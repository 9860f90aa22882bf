package session_test

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// An answer that comes while somebody else is looked for counts: its stream is
// not given up any more.
func TestAnswerComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		go io.Copy(io.Discard, far) // and no ping is answered
		m := mux.Client(near, nil)
		defer m.Close()
		stream, err := m.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		asked := false
		err = session.AwaitAnswer(t.Context(), m, stream, func(ctx context.Context) bool {
			asked = true
			answer := wire.New(wire.MsgDialed).Encode()
			far.Write(append([]byte{0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, byte(len(answer))}, answer...))
			<-ctx.Done() // it was read
			return true
		})
		if err != nil || !asked {
			t.Errorf("got %v, want the answer; somebody else was looked for: %t", err, asked)
		}
		if _, err := io.WriteString(stream, "hello"); err != nil {
			t.Errorf("after the answer: %v", err)
		}
	})
}

package mux_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/causewayproject/causeway/internal/mux"
)

// causeError has a type of its own, and is what Err is.
type causeError struct{ error }

func (e causeError) Unwrap() error { return e.error }

// A session that is closed with a cause is lost to who has its streams, whatever
// the cause is.
func TestCloseWithError(t *testing.T) {
	for _, cause := range []error{
		io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, context.Canceled, syscall.EPIPE,
		&mux.ResetError{Code: 6, Remote: true}, mux.ErrSessionClosed,
	} {
		t.Run(cause.Error(), func(t *testing.T) {
			client, server := sessions(t, pipePair, nil)
			opened, accepted := connect(t, client, server, "x")
			closed, _ := connect(t, client, server, "x")
			closed.Close()
			client.CloseWithError(causeError{cause})
			client.Close() // has no say any more
			_, err := opened.Read(make([]byte, 1))
			wantLost(t, err)
			if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, new(*mux.ResetError)) {
				t.Errorf("got %v, which is closed, a deadline or a reset of the stream", err)
			}
			switch cause {
			case context.Canceled, syscall.EPIPE:
				if !errors.Is(err, cause) || !errors.As(err, new(causeError)) {
					t.Errorf("got %v, want the cause in it", err)
				}
			}
			wantLost(t, client.Err())
			if _, err := closed.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v of a stream that was closed, want net.ErrClosed", err)
			}
			_, err = io.ReadAll(accepted)
			wantLost(t, err)
		})
	}
}

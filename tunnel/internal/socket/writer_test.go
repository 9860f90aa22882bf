package socket_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

// TestProgress: a write waits while TCP delivers what was written before, and nothing else counts.
func TestProgress(t *testing.T) {
	const patience, moves = 30 * time.Second, 100 * time.Second
	for _, tt := range []struct {
		name             string
		waits            bool
		delivered, early uint32 // a second
		ends             time.Duration
	}{
		{"retransmissions are delivered", true, 1, 0, moves + patience},
		{"nothing is delivered", true, 0, 0, patience},
		{"what needed no delivery", false, 1, 0, patience},
		{"only the other end sends", true, 0, 1, patience},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer near.Close()
				defer far.Close()
				w, began := socket.NewWriter(near), time.Now()
				w.SetFlow(func() socket.Flow {
					seconds := uint32(min(time.Since(began), moves) / time.Second)
					return socket.Flow{Waits: tt.waits, Delivered: tt.delivered * seconds, Early: tt.early * seconds}
				})
				w.SetWriteDeadline(began.Add(patience))
				_, err := w.Write([]byte("x"))
				if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < tt.ends || took > tt.ends+2*time.Second {
					t.Errorf("got %v after %v, want a timeout after %v", err, took, tt.ends)
				}
				taken, came := w.Progress()
				if has := !taken.IsZero(); has != (tt.ends > patience) {
					t.Errorf("something was taken: %t", has)
				}
				if has := !came.IsZero(); has != (tt.early > 0) {
					t.Errorf("something came: %t", has)
				}
			})
		})
	}
}

package carrier_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

// The peer takes no bytes in these.
func TestCloseUnblocks(t *testing.T) {
	pki.ServerTLS() // outside of the bubbles
	tests := []struct {
		name  string
		wrap  func(a, b net.Conn) (net.Conn, net.Conn)
		write bool // a write is under way
		want  time.Duration
	}{
		{"read", nil, false, socket.CloseTimeout},
		{"read and write", nil, true, 0},
		{"websocket, read", overWebSocket, false, socket.CloseTimeout},
		{"websocket, read and write", overWebSocket, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				agent, _ := pipes(t, tt.wrap)
				began := time.Now()
				var wg sync.WaitGroup
				check := func(op string, err error) {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("%s: got %v, want net.ErrClosed", op, err)
					}
					if got := time.Since(began); got != 0 {
						t.Errorf("%s returned %v after Close began", op, got)
					}
				}
				wg.Go(func() {
					_, err := agent.Read(make([]byte, 1))
					check("Read", err)
				})
				if tt.write {
					wg.Go(func() {
						_, err := flushing{agent}.Write([]byte{1})
						check("Write", err)
					})
				}
				synctest.Wait()
				if err := agent.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				if got := time.Since(began); got != tt.want {
					t.Errorf("Close took %v, want %v", got, tt.want)
				}
				wg.Wait()
				if _, err := agent.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
					t.Errorf("Write after Close: %v", err)
				}
				if err := agent.Close(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("second Close: %v", err)
				}
			})
		})
	}
}

// Who sends while a Close says goodbye waits no longer than that, and in no lock,
// which would stop the clock of a test like this one.
func TestSendDuringClose(t *testing.T) {
	pki.ServerTLS() // outside of the bubbles
	for _, tt := range []struct {
		name string
		wrap func(a, b net.Conn) (net.Conn, net.Conn)
	}{{"tcp", nil}, {"websocket", overWebSocket}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				agent, _ := pipes(t, tt.wrap)
				began := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() { agent.Close() })
				synctest.Wait()
				if err := agent.Flush(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("Flush: got %v, want net.ErrClosed", err)
				}
				if took := time.Since(began); took > socket.CloseTimeout {
					t.Errorf("it took %v, want %v at most", took, socket.CloseTimeout)
				}
				wg.Wait()
			})
		})
	}
}

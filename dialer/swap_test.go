package dialer_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/dialer"
)

func TestSwapEmpty(t *testing.T) {
	local := serve(t, listen(t), echo)
	emptied := &dialer.Swap{}
	emptied.Store(dialer.Direct{})
	emptied.Store(nil)
	typed := &dialer.Swap{}
	typed.Store((*dialer.HTTPConnect)(nil))
	for name, s := range map[string]*dialer.Swap{"zero": {}, "emptied": emptied, "nil pointer": typed} {
		t.Run(name, func(t *testing.T) {
			if got := s.Load(); got != nil {
				t.Errorf("Load: got %v, want nil", got)
			}
			conn, err := s.DialContext(testContext(t), "tcp", local)
			var e *dialer.Error
			if conn != nil || !errors.As(err, &e) || e.Phase != dialer.PhaseConfig || e.Addr != local {
				t.Fatalf("got %v, %v; want an *Error of the config phase", conn, err)
			}
			if !strings.Contains(err.Error(), "no Dialer is stored") {
				t.Errorf("got %q", err)
			}
		})
	}
}

// A dial uses what was stored when it began, and its conn stays.
func TestSwap(t *testing.T) {
	begun, stored := make(chan struct{}), make(chan struct{})
	old := toEcho(t)
	s := &dialer.Swap{}
	s.Store(dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
		close(begun)
		<-stored
		return old(ctx, network, address)
	}))
	conns := make(chan net.Conn)
	go func() {
		conn, err := s.DialContext(testContext(t), "tcp", target)
		if err != nil {
			t.Error(err)
		}
		conns <- conn
	}()
	<-begun
	refusal := errors.New("the new one was used")
	s.Store(dialer.Func(func(context.Context, string, string) (net.Conn, error) { return nil, refusal }))
	close(stored)
	conn := <-conns
	if conn == nil {
		return
	}
	defer conn.Close()
	if _, err := s.DialContext(testContext(t), "tcp", target); !errors.Is(err, refusal) {
		t.Errorf("got %v, want %v", err, refusal)
	}
	exchange(t, conn, "")
}

// Under -race: dials and replacements at once, of Dialers of different types.
func TestSwapConcurrently(t *testing.T) {
	failure := errors.New("another")
	dialers := []dialer.Dialer{
		dialer.Func(func(context.Context, string, string) (net.Conn, error) { return nil, failure }),
		&dialer.HTTPConnect{},
		dialer.Direct{},
	}
	s := &dialer.Swap{}
	s.Store(dialers[0])
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 200 {
				s.Store(dialers[(i+j)%len(dialers)])
			}
		})
		wg.Go(func() {
			for range 200 {
				if s.Load() == nil {
					t.Error("Load: got nil")
				}
				// The address is one that none of them can dial.
				if _, err := s.DialContext(t.Context(), "tcp", "nonsense"); err == nil || strings.Contains(err.Error(), "stored") {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	wg.Wait()
}

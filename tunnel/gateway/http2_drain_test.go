package gateway_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// drains is how often a door is drained while a client holds one tunnel and opens
// others all the time.
const drains = 200

// drainBed is a door that is drained, with a target that repeats what it is told.
func drainBed(t *testing.T) *bed {
	return newBed(t, door{serve: (*gateway.Gateway).ServeConnect, tls: true}, func(g *gateway.Gateway) {
		g.Authenticate, g.Route, g.Dial = gateway.Anyone, nil, dialEcho
	})
}

// No drain cuts a tunnel that package dialer holds.
func TestHTTP2DrainDialer(t *testing.T) {
	cut := 0
	for i := range drains {
		b := drainBed(t)
		if err := drainDialer(b); err != nil {
			cut++
			t.Logf("drain %d: %v", i, err)
		}
		b.g.Close()
		b.wait()
	}
	if cut > 0 {
		t.Errorf("%d of %d drains have cut the tunnel", cut, drains)
	}
}

// drainDialer drains the door while its clients dial, and then asks the tunnel
// that was there before for an echo.
func drainDialer(b *bed) error {
	client := connectClient(clientTLS(), true)(b.t, b.addr, "", "")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	held, err := client.DialContext(ctx, "tcp", targetA)
	if err != nil {
		return err
	}
	defer held.Close()
	held.SetDeadline(time.Now().Add(20 * time.Second))
	var dials sync.WaitGroup
	defer dials.Wait()
	busy := make(chan struct{}, 4)
	for range cap(busy) {
		dials.Go(func() {
			for {
				conn, err := client.DialContext(ctx, "tcp", targetA)
				if err != nil {
					return
				}
				conn.Write([]byte("x"))
				conn.Close()
				select {
				case busy <- struct{}{}:
				default:
				}
			}
		})
	}
	for range cap(busy) {
		<-busy
	}
	b.cancel()
	dials.Wait() // until dials are refused
	return echoed(held)
}

func echoed(conn net.Conn) error {
	if _, err := conn.Write([]byte("echo")); err != nil {
		return err
	}
	got := make([]byte, 4)
	if n, err := conn.Read(got); err != nil || string(got[:n]) != "echo" {
		return fmt.Errorf("got %q, %w, want the echo", got[:n], err)
	}
	return nil
}

package tunnel_test

import (
	"crypto/tls"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// Handshakes wait for their turn; sessions do not.
func TestHandshakesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{})
		release := b.s.HoldHandshakes()
		b.start(&tunnel.Agent{})
		time.Sleep(5 * time.Second)
		if n := len(b.sessions()); n != 1 {
			t.Errorf("got %d sessions while no handshake has its turn, want the one that was there", n)
		}
		b.echo().Close()
		if st := b.s.Status(); st.Pending == 0 || st.Waiting != 0 || st.AuthorityExpires.IsZero() {
			t.Errorf("got %d pending, %d waiting, authority until %v; want the handshake", st.Pending, st.Waiting, st.AuthorityExpires)
		}
		release()
		b.await()
	})
}

// A handshake that waits for the other side keeps nobody from theirs.
func TestSlowHandshakes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		begin func(net.Conn)
	}{
		{"they say nothing", func(net.Conn) {}},
		{"they stop in the middle of a record", func(c net.Conn) { c.Write([]byte{22, 3, 1, 2, 0, 1}) }},
		{"they do not read the answer", func(c net.Conn) {
			tls.Client(deafConn{c}, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"causeway-tunnel/1"}}).Handshake()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				for range runtime.GOMAXPROCS(0) + 1 {
					tt.begin(b.wire())
				}
				synctest.Wait()
				began := time.Now()
				b.agent(&tunnel.Agent{})
				if took := time.Since(began); took > time.Second {
					t.Errorf("an agent waited %v behind those that are slow", took)
				}
			})
		})
	}
}

// deafConn hears nothing.
type deafConn struct{ net.Conn }

func (deafConn) Read([]byte) (int, error) { return 0, net.ErrClosed }

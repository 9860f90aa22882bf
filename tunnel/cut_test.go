package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// cuts are why a server ends the sessions of an agent and their streams.
var cuts = []struct {
	name string
	code tunnel.Code // of the cause; zero: it has none
	do   func(t *testing.T, b *bed, c *tunnel.Credentials)
}{
	{"revoked", tunnel.CodeRevoked, func(t *testing.T, b *bed, _ *tunnel.Credentials) {
		if err := b.s.Revoke(t.Context(), tunnel.Identity{Cluster: testCluster, Agent: b.sessions()[0].Agent}); err != nil {
			t.Error(err)
		}
	}},
	{"expired", tunnel.CodeCertificateExpired, func(*testing.T, *bed, *tunnel.Credentials) { time.Sleep(2 * time.Hour) }},
	{"grace", tunnel.CodeClosed, func(_ *testing.T, b *bed, _ *tunnel.Credentials) {
		b.stopServe()
		<-b.served
	}},
	{"Close", tunnel.CodeClosed, func(t *testing.T, b *bed, _ *tunnel.Credentials) {
		if err := b.s.Close(); err != nil {
			t.Error(err)
		}
	}},
	{"Shutdown's context", tunnel.CodeClosed, func(t *testing.T, b *bed, _ *tunnel.Credentials) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of its context", err)
		}
	}},
	{"too many sessions", 0, func(t *testing.T, b *bed, c *tunnel.Credentials) {
		for range 64 {
			_, session := b.rawSession(c)
			open(t, session, rawHello())
		}
	}},
}

// To who has a stream, what the server cuts is lost, with the cause; closed is
// what its owner has closed.
func TestCutStreams(t *testing.T) {
	for _, tt := range cuts {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{CertificateLife: time.Hour, Grace: -1})
				c := b.enrolled()
				// It answers each DIAL, and renews nothing.
				b.rawOf(c, func(st *rawStream) { st.dialed(0) })
				conn, err := b.dial("x:7")
				if err != nil {
					t.Fatal(err)
				}
				closed, err := b.dial("x:7")
				if err != nil {
					t.Fatal(err)
				}
				closed.Close()
				tt.do(t, b, c)
				synctest.Wait()
				_, rerr := conn.Read(make([]byte, 1))
				_, werr := conn.Write([]byte("x"))
				for _, err := range []error{rerr, werr} {
					var cause *tunnel.Error
					if !errors.As(err, new(*mux.LostError)) || !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
						t.Errorf("got %v, want a loss", err)
					} else if tt.code != 0 && (!errors.As(err, &cause) || cause.Code != tt.code) {
						t.Errorf("got %v, want the cause %v", err, tt.code)
					}
				}
				t.Log(rerr)
				if _, err := closed.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("got %v of one that was closed here, want net.ErrClosed alone", err)
				}
				conn.Close()
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
					t.Errorf("after Close: got %v, want net.ErrClosed", err)
				}
			})
		})
	}
}

// A target sees a reset when its session is cut, and no end, whoever cuts it.
func TestCutTargets(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *bed, a *agent)
	}{
		{"the agent's grace", func(_ *bed, a *agent) { a.stop() }},
		{"revoked", func(b *bed, _ *agent) {
			b.s.Revoke(context.Background(), tunnel.Identity{Cluster: testCluster, Agent: b.sessions()[0].Agent})
		}},
		{"Server.Close", func(b *bed, _ *agent) { b.s.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer target.Close()
			b, address := newTCPBed(t, &tunnel.Server{})
			a := b.agent(&tunnel.Agent{Servers: []string{address}, Grace: -1, Targets: tunnel.Targets{Allow: []string{target.Addr().String()}}})
			conn, err := b.dial(target.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			far, err := target.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			conn.Write([]byte("a part"))
			if _, err := io.ReadFull(far, make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			tt.do(b, a)
			if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the target got %v, want a reset", err)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
				t.Errorf("the caller got %v, want a reset", err)
			}
		})
	}
}

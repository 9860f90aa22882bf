package tunnel_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// A server that says what it should not. The agent's session goes on, or the
// agent comes back.
func TestHostileServer(t *testing.T) {
	dial := rawMessage(16, uint16(6), []byte("tcp"), uint16(5), []byte("echo:7"))
	for _, tt := range []struct {
		name   string
		stream []byte // first message of a stream; nil: none
		code   uint64 // of the reset, or in DIALED
		reset  bool
		say    []byte // on the control stream
	}{
		{name: "garbage for DIAL", stream: []byte("GET / HTTP/1.1\r\n\r\n"), code: 9, reset: true},
		{name: "DIAL of 5,000 bytes", stream: rawMessage(16, uint16(5), make([]byte, 5000)), code: 9, reset: true},
		{name: "no DIAL", stream: []byte{0}, code: 9, reset: true},
		{name: "HELLO", stream: rawHello(), code: 9, reset: true},
		{name: "DIAL of nothing", stream: rawMessage(16), code: 9},
		{name: "DIAL of udp", stream: rawMessage(16, uint16(6), []byte("udp"), uint16(5), []byte("echo:7")), code: 9},
		{name: "RENEW", stream: dial, say: rawMessage(5)},
		{name: "ISSUED unasked", stream: dial, say: bytes.Repeat(rawMessage(6, uint16(10), []byte("x")), 50)},
		{name: "ROOTS of nothing", stream: dial, say: rawMessage(7)},
		{name: "ROOTS of garbage", stream: dial, say: rawMessage(7, uint16(11), []byte("x"))},
		{name: "HELLO and WELCOME", stream: dial, say: append(rawHello(), rawMessage(2)...)},
		{name: "unknown", stream: dial, say: rawMessage(999)},
		{name: "PAYLOAD without a name", stream: dial, say: rawMessage(8)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				store := &tunnel.MemoryCredentials{}
				b.agent(&tunnel.Agent{Credentials: store}).stop()
				session, control := b.rawServer(store)
				if tt.say != nil {
					if _, err := control.Write(tt.say); err != nil {
						t.Fatal(err)
					}
				}
				st := open(t, session, tt.stream)
				kind, code, err := readRaw(st)
				switch {
				case tt.reset:
					if got := resetCode(err); got != uint32(tt.code) {
						t.Errorf("got %v, want a reset with %d", err, tt.code)
					}
				case err != nil || kind != 17 || code != tt.code:
					t.Errorf("got %d with code %d, %v, want DIALED with %d", kind, code, err, tt.code)
				}
				st.Close()
				if session.Err() != nil {
					t.Errorf("the session ended: %v", session.Err())
				}
			})
		})
	}
}

// rawServer is a server that an agent with the credentials has connected to.
func (b *bed) rawServer(store tunnel.CredentialStore) (*mux.Session, *mux.Stream) {
	b.t.Helper()
	return b.rawServerOf(&tunnel.Agent{Credentials: store, MaxStreams: 10})
}

// rawServerOf is a server that the agent has connected to.
func (b *bed) rawServerOf(a *tunnel.Agent) (*mux.Session, *mux.Stream) {
	b.t.Helper()
	l, err := b.w.Listen(b.t.Context(), "raw:1")
	if err != nil {
		b.t.Fatal(err)
	}
	a.Servers = []string{"raw:1"}
	b.start(a)
	conn, err := l.Accept()
	if err != nil {
		b.t.Fatal(err)
	}
	session, control, err := tunnel.RawServer(b.t.Context(), conn, b.s.Authority)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { session.Close() })
	if _, err := control.Write(tunnel.RawWelcome(b.s.Authority)); err != nil {
		b.t.Fatal(err)
	}
	return session, control
}

// The agent takes no more streams than it said.
func TestAgentMaxStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		store := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: store}).stop()
		session, _ := b.rawServer(store)
		dial := rawMessage(16, uint16(6), []byte("tcp"), uint16(5), []byte("echo:7"))
		var codes []uint32
		for range 15 {
			_, code, err := readRaw(open(t, session, dial))
			if err == nil && code != 0 {
				t.Errorf("got code %d", code)
			}
			codes = append(codes, resetCode(err))
		}
		want := append(make([]uint32, 10), 7, 7, 7, 7, 7)
		if !slices.Equal(codes, want) {
			t.Errorf("got resets with %v, want %v", codes, want)
		}
	})
}

// serveSessions is a server that has each session served by serve until it is closed.
func (b *bed) serveSessions(serve func(number int, session *mux.Session, control *mux.Stream)) {
	b.t.Helper()
	l, err := b.w.Listen(b.t.Context(), "raw:1")
	if err != nil {
		b.t.Fatal(err)
	}
	var serving sync.WaitGroup
	b.t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for number := 1; ; number++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { b.serveRaw(conn, number, serve) })
		}
	})
}

func (b *bed) serveRaw(conn net.Conn, number int, serve func(number int, session *mux.Session, control *mux.Stream)) {
	session, control, err := tunnel.RawServer(b.t.Context(), conn, b.s.Authority)
	if err != nil {
		conn.Close()
		return
	}
	defer session.Close()
	if _, err := control.Write(tunnel.RawWelcome(b.s.Authority, "raw", "other")); err == nil {
		serve(number, session, control)
	}
}

// Whatever a server does, an agent connects some times a minute.
func TestAgentAttempts(t *testing.T) {
	servers := func(number int) []byte {
		return rawMessage(10, uint16(18), []byte("old"), uint16(18), fmt.Appendf(nil, "new-%d", number))
	}
	for _, tt := range []struct {
		name  string
		serve func(number int, session *mux.Session, control *mux.Stream)
	}{
		{"DRAIN at once", func(_ int, _ *mux.Session, control *mux.Stream) {
			control.Write(rawMessage(4))
			io.Copy(io.Discard, control)
		}},
		{"another name, and the end", func(number int, _ *mux.Session, control *mux.Stream) {
			control.Write(servers(number))
			time.Sleep(20 * time.Millisecond)
		}},
		{"other names without end", func(number int, session *mux.Session, control *mux.Stream) {
			for i := 0; session.Err() == nil; i++ {
				control.Write(servers(number<<20 + i))
				time.Sleep(20 * time.Millisecond)
			}
		}},
		{"the name that the agent has", func(_ int, _ *mux.Session, control *mux.Stream) { io.Copy(io.Discard, control) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				store := &tunnel.MemoryCredentials{}
				b.agent(&tunnel.Agent{Credentials: store}).stop()
				var sessions atomic.Int64
				b.serveSessions(func(number int, session *mux.Session, control *mux.Stream) {
					sessions.Add(1)
					tt.serve(number, session, control)
				})
				b.start(&tunnel.Agent{Credentials: store, Servers: []string{"raw:1"}, FirstBackoff: 4 * time.Second})
				time.Sleep(10 * time.Minute)
				if n := sessions.Load(); n < 2 || n > 10*60/4+10 {
					t.Errorf("got %d sessions in 10 minutes, want one in 4 seconds at most, and 10", n)
				}
			})
		})
	}
}

// Sessions that drain for ever don't become more and more.
func TestAgentMaxSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		store := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: store}).stop()
		dial := rawMessage(16, uint16(6), []byte("tcp"), uint16(5), []byte("echo:7"))
		var sessions, now atomic.Int64
		b.serveSessions(func(_ int, session *mux.Session, control *mux.Stream) {
			sessions.Add(1)
			now.Add(1)
			defer now.Add(-1)
			if _, _, err := readRaw(open(t, session, dial)); err != nil {
				t.Error(err)
			}
			control.Write(rawMessage(4)) // the stream stays open
			<-session.Done()
		})
		b.start(&tunnel.Agent{Credentials: store, Servers: []string{"raw:1"}, FirstBackoff: time.Second, MaxBackoff: time.Second})
		time.Sleep(3 * time.Minute)
		if all, open := sessions.Load(), now.Load(); all < 100 || open < 10 || open > 64 {
			t.Errorf("got %d sessions, %d of them open, want 64 at most", all, open)
		}
	})
}

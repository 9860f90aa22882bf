package tunnel_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// Whoever says nothing, or not all, is given up at HandshakeTimeout.
func TestSlowCarriers(t *testing.T) {
	for _, tt := range []struct {
		name string
		say  func(t *testing.T, b *bed, c *tunnel.Credentials)
		late tunnel.Code // of who is refused first, when there is one more than MaxPending
	}{
		{"nothing", func(t *testing.T, b *bed, c *tunnel.Credentials) { b.wire() }, tunnel.CodeTooManyStreams},
		{"half a record", func(t *testing.T, b *bed, c *tunnel.Credentials) { b.wire().Write([]byte{22, 3, 1, 1, 0, 1}) }, tunnel.CodeTooManyStreams},
		{"no ENROLL", func(t *testing.T, b *bed, c *tunnel.Credentials) { rawCarrier(t, b, nil) }, tunnel.CodeTooManyStreams},
		{"half of ENROLL", func(t *testing.T, b *bed, c *tunnel.Credentials) {
			say(t, rawCarrier(t, b, nil), rawMessage(32)[:5])
		}, tunnel.CodeTooManyStreams},
		{"no session", func(t *testing.T, b *bed, c *tunnel.Credentials) { rawCarrier(t, b, c) }, tunnel.CodeTimeout},
		{"no control stream", func(t *testing.T, b *bed, c *tunnel.Credentials) { b.rawSession(c) }, tunnel.CodeTimeout},
		{"half of HELLO", func(t *testing.T, b *bed, c *tunnel.Credentials) {
			_, session := b.rawSession(c)
			open(t, session, rawHello()[:7])
		}, tunnel.CodeTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := make(chan error, 10)
				b := newBed(t, &tunnel.Server{HandshakeTimeout: 5 * time.Second, MaxPending: 1, Hooks: tunnel.Hooks{Refused: refusals(refused)}})
				c := b.enrolled() // which may have been one too many itself
				synctest.Wait()
				for len(refused) > 0 {
					<-refused
				}
				began := time.Now()
				tt.say(t, b, c)
				synctest.Wait()
				late := b.wire() // one more than MaxPending
				if err := <-refused; codeOf(err) != tt.late {
					t.Errorf("got %v, want code %d", err, tt.late)
				}
				if _, err := late.Read(make([]byte, 1)); err == nil {
					t.Error("it can be read from, want its end")
				}
				if err := <-refused; codeOf(err) != tunnel.CodeTimeout {
					t.Errorf("got %v, want a timeout", err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it was given up after %v, want 5 s", took)
				}
				b.agent(&tunnel.Agent{}) // there is room again
			})
		})
	}
}

func rawCarrier(t *testing.T, b *bed, c *tunnel.Credentials) net.Conn {
	t.Helper()
	carrier, err := tunnel.RawCarrier(t.Context(), b.wire(), c)
	if err != nil {
		t.Fatal(err)
	}
	return carrier
}

// say writes to a carrier, which sends when it is told to.
func say(t *testing.T, carrier net.Conn, p []byte) {
	t.Helper()
	if _, err := carrier.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := carrier.(interface{ Flush() error }).Flush(); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, session *mux.Session, first []byte) *mux.Stream {
	t.Helper()
	st, err := session.Open(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// What is no HELLO is refused at once, however much of it is claimed.
func TestBadHello(t *testing.T) {
	huge := rawMessage(1, uint16(99), make([]byte, 5000))
	for _, tt := range []struct {
		name  string
		first []byte
		code  tunnel.Code
	}{
		{"garbage", []byte("GET / HTTP/1.1\r\n\r\n"), tunnel.CodeBadRequest},
		{"another message", rawMessage(4), tunnel.CodeBadRequest},
		{"fields that don't fill it", []byte{0, 1, 0, 0, 0, 3, 1, 2, 3}, tunnel.CodeBadRequest},
		{"a field longer than it", []byte{0, 1, 0, 0, 0, 6, 0, 3, 255, 255, 255, 255}, tunnel.CodeBadRequest},
		{"5,000 bytes", huge, tunnel.CodeBadRequest},
		{"4 GB claimed", []byte{0, 1, 255, 255, 255, 255}, tunnel.CodeBadRequest},
		{"no version", rawMessage(1), tunnel.CodeVersion},
		{"another version", rawMessage(1, uint16(3), uint64(2)), tunnel.CodeVersion},
		{"a version of 3 bytes", rawMessage(1, uint16(3), []byte{0, 0, 1}), tunnel.CodeVersion},
		{"the end", nil, tunnel.CodeBadRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := make(chan error, 10)
				b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{Refused: refusals(refused)}})
				_, session := b.rawSession(b.enrolled())
				control := open(t, session, tt.first)
				if tt.first == nil {
					control.CloseWrite()
				}
				if tt.code == tunnel.CodeVersion {
					if kind, code, err := readRaw(control); kind != 3 || code != uint64(tt.code) || err != nil {
						t.Errorf("got %d with code %d, %v, want REFUSAL with %d", kind, code, err, tt.code)
					}
				}
				began := time.Now()
				if tt.code == tunnel.CodeVersion { // or the server waits for that
					session.Close()
				}
				if err := <-refused; codeOf(err) != tt.code {
					t.Errorf("got %v, want code %d", err, tt.code)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it was refused after %v", took)
				}
			})
		})
	}
}

// What is not TLS, or not of this protocol, is refused at once, and the
// server goes on.
func TestGarbageBeforeTLS(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"SSH", "SSH-2.0-OpenSSH_9.2\r\n"},
		{"a yamux frame", "\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07"},
		{"a record of 64 KiB", "\x16\x03\x01\xff\xff" + strings.Repeat("x", 70000)},
		{"a ClientHello of 16 MB", "\x16\x03\x01\x00\x04\x01\xff\xff\xff"},
		{"an alert", "\x15\x03\x01\x00\x02\x02\x28"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := make(chan error, 1)
				b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{Refused: refusals(refused)}})
				wire := b.wire()
				go io.Copy(io.Discard, wire) // the alert
				go wire.Write([]byte(tt.text))
				began := time.Now()
				if err := <-refused; codeOf(err) != tunnel.CodeBadRequest {
					t.Errorf("got %v, want a bad request", err)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it was refused after %v", took)
				}
				wire.Close()
				b.agent(&tunnel.Agent{})
			})
		})
	}
}

// Close does not wait for an agent that was refused and stays.
func TestCloseWhileRefusing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		_, session := b.rawSession(b.enrolled())
		control := open(t, session, rawMessage(1))
		if _, _, err := readRaw(control); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b.s.Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// A session is not signed a certificate after the other.
func TestManyRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{Refused: func(net.Addr, error) { asked++ }}})
		_, session := b.rawSession(b.enrolled())
		control := open(t, session, rawHello())
		if _, _, err := readRaw(control); err != nil {
			t.Fatal(err)
		}
		for range 30 {
			if _, err := control.Write(rawMessage(5)); err != nil {
				t.Fatal(err)
			}
			if kind, code, err := readRaw(control); kind != 6 || code == 0 || err != nil {
				t.Fatalf("got %d with code %d, %v, want a refusal", kind, code, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if asked != 3 {
			t.Errorf("got %d renewals looked at in 3 s, want 3", asked)
		}
	})
}

// One agent has no more than so many sessions; the newest stay.
func TestManySessionsOfOneAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		c := b.enrolled()
		for range 100 {
			_, session := b.rawSession(c)
			if kind, _, err := readRaw(open(t, session, rawHello())); kind != 2 || err != nil {
				t.Fatalf("got %d, %v, want WELCOME", kind, err)
			}
		}
		synctest.Wait()
		got := b.sessions()
		if last := len(got) - 1; last != 63 || got[0].ID != "38" || got[last].ID != "101" || got[last].Draining {
			t.Errorf("got %d sessions from %s to %s, want 64 from 38 to 101", len(got), got[0].ID, got[len(got)-1].ID)
		}
	})
}

type peer struct {
	session *mux.Session
	control *mux.Stream
}

var hostileAgents = []struct {
	name string
	do   func(t *testing.T, p peer)
	ends bool // the session
}{
	{"HELLO twice", func(t *testing.T, p peer) { p.control.Write(rawHello()) }, false},
	{"unknown kinds", func(t *testing.T, p peer) {
		for kind := range uint16(300) {
			if kind != 4 {
				p.control.Write(rawMessage(kind+100, uint16(7), []byte("x")))
			}
		}
	}, false},
	{"a server's messages", func(t *testing.T, p peer) {
		for _, kind := range []uint16{2, 3, 6, 7, 8, 16, 17, 32} {
			p.control.Write(rawMessage(kind, uint16(11), []byte("x"), uint16(1), uint64(3)))
		}
	}, false},
	{"RECEIVED of nothing", func(t *testing.T, p peer) { p.control.Write(rawMessage(9, uint16(4), []byte("17"))) }, false},
	{"RENEW of nothing", func(t *testing.T, p peer) { p.control.Write(rawMessage(5)) }, false},
	{"RENEW of garbage", func(t *testing.T, p peer) {
		p.control.Write(rawMessage(5, uint16(4), []byte("x"), uint16(9), make([]byte, 3000), uint16(15), make([]byte, 99)))
	}, false},
	{"1,000 RENEW, answers unread", func(t *testing.T, p peer) {
		for range 1000 {
			if _, err := p.control.Write(rawMessage(5, uint16(4), make([]byte, 4000))); err != nil {
				return
			}
		}
	}, true},
	{"streams of its own", func(t *testing.T, p peer) {
		for range 100 {
			st := open(t, p.session, rawMessage(16))
			if _, _, err := readRaw(st); err == nil {
				t.Error("the server answers on a stream of an agent's")
			}
		}
	}, false},
	{"a message of 4 GB", func(t *testing.T, p peer) { p.control.Write([]byte{0, 9, 255, 255, 255, 255}) }, true},
	{"a malformed message", func(t *testing.T, p peer) { p.control.Write([]byte{0, 9, 0, 0, 0, 3, 1, 2, 3}) }, true},
	{"half a message", func(t *testing.T, p peer) { p.control.Write([]byte{0, 9, 0}); p.control.CloseWrite() }, true},
	{"the end of control", func(t *testing.T, p peer) { p.control.CloseWrite() }, true},
	{"a reset of control", func(t *testing.T, p peer) { p.control.Reset(1) }, true},
}

// An agent that says what it should not, on its control stream and beside it.
func TestHostileAgent(t *testing.T) {
	for _, tt := range hostileAgents {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan error, 10)
				b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{Disconnected: func(_ tunnel.SessionInfo, err error) { gone <- err }}})
				_, session := b.rawSession(b.enrolled())
				<-gone // the one that enrolled
				control := open(t, session, rawHello())
				if kind, _, err := readRaw(control); kind != 2 || err != nil {
					t.Fatalf("got %d, %v, want WELCOME", kind, err)
				}
				b.await()
				tt.do(t, peer{session, control})
				time.Sleep(time.Second)
				if ended := len(gone) > 0; ended != tt.ends {
					t.Errorf("the session has ended: got %t, want %t", ended, tt.ends)
				}
				b.agent(&tunnel.Agent{})
				b.s.Status()
			})
		})
	}
}

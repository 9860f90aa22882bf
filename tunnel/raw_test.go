package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// rawStream is a stream that a raw agent accepted, with what is below.
type rawStream struct {
	*mux.Stream
	session *mux.Session
	carrier *stallConn
}

func (s *rawStream) dialed(code uint64) { s.Write(rawMessage(17, uint16(1), code)) }

// enrolled returns the credentials of an agent that was invited.
func (b *bed) enrolled() *tunnel.Credentials { return b.enrolledAt(wireAddress) }

func (b *bed) enrolledAt(address string) *tunnel.Credentials {
	b.t.Helper()
	store := &tunnel.MemoryCredentials{}
	b.agent(&tunnel.Agent{Servers: []string{address}, Credentials: store}).stop()
	c, err := store.Load(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// raw is an agent that says HELLO and answers each DIAL by a function.
func (b *bed) raw(answer func(*rawStream)) *mux.Session {
	b.t.Helper()
	return b.rawOf(b.enrolled(), answer)
}

// rawOf is raw with the credentials.
func (b *bed) rawOf(c *tunnel.Credentials, answer func(*rawStream)) *mux.Session {
	b.t.Helper()
	return b.rawBy(c, rawHello(), answer)
}

// rawBy is rawOf with its HELLO.
func (b *bed) rawBy(c *tunnel.Credentials, hello []byte, answer func(*rawStream)) *mux.Session {
	b.t.Helper()
	wire, session := b.rawSession(c)
	control, err := session.Open(b.t.Context(), hello)
	if err != nil {
		b.t.Fatal(err)
	}
	if kind, _, err := readRaw(control); kind != 2 || err != nil {
		b.t.Fatalf("got %d, %v, want WELCOME", kind, err)
	}
	b.await()
	go func() {
		for {
			stream, err := session.Accept(context.Background())
			if err != nil {
				return
			}
			if _, _, err := readRaw(stream); err == nil {
				answer(&rawStream{stream, session, wire})
			}
		}
	}()
	return session
}

// rawSession is a session that ends with the test.
func (b *bed) rawSession(c *tunnel.Credentials) (*stallConn, *mux.Session) {
	return b.rawSessionAt(wireAddress, c)
}

func (b *bed) rawSessionAt(address string, c *tunnel.Credentials) (*stallConn, *mux.Session) {
	b.t.Helper()
	wire := b.wireTo(address)
	carrier, err := tunnel.RawCarrier(b.t.Context(), wire, c)
	if err != nil {
		b.t.Fatal(err)
	}
	session := mux.Client(carrier, nil)
	b.t.Cleanup(func() {
		wire.Close()
		session.Close()
	})
	return wire, session
}

// wire is a connection to the server, below TLS.
func (b *bed) wire() *stallConn { return b.wireTo(wireAddress) }

func (b *bed) wireTo(address string) *stallConn {
	b.t.Helper()
	conn, err := b.w.Dial(b.t.Context(), "tcp", address)
	if err != nil {
		b.t.Fatal(err)
	}
	s := newStallConn(conn)
	b.t.Cleanup(func() { s.Close() })
	return s
}

// stallConn reads and writes nothing once it is stalled.
type stallConn struct {
	net.Conn
	stalling, closing sync.Once
	stalled, closed   chan struct{}
}

func newStallConn(conn net.Conn) *stallConn {
	return &stallConn{Conn: conn, stalled: make(chan struct{}), closed: make(chan struct{})}
}

func (s *stallConn) stall() { s.stalling.Do(func() { close(s.stalled) }) }

func (s *stallConn) Close() error {
	s.closing.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

func (s *stallConn) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	return n, s.wait(err)
}

func (s *stallConn) Write(p []byte) (int, error) {
	if err := s.wait(nil); err != nil {
		return 0, err
	}
	return s.Conn.Write(p)
}

func (s *stallConn) wait(err error) error {
	select {
	case <-s.stalled:
		<-s.closed
		return net.ErrClosed
	default:
		return err
	}
}

// resetCode is the code of a reset by the peer; zero if err is none.
func resetCode(err error) uint32 {
	var reset *mux.ResetError
	if errors.As(err, &reset) && reset.Remote {
		return reset.Code
	}
	return 0
}

// rawHello is the message that an agent begins with.
func rawHello() []byte { return rawMessage(1, uint16(3), uint64(1)) }

// rawMessage has fields tag, value; values are uint64 or []byte.
func rawMessage(kind uint16, fields ...any) []byte {
	m := wire.New(wire.Kind(kind))
	for i := 0; i < len(fields); i += 2 {
		t := wire.Tag(fields[i].(uint16))
		switch v := fields[i+1].(type) {
		case uint64:
			m.AddUint(t, v)
		case []byte:
			m.AddBytes(t, v)
		}
	}
	return m.Encode()
}

// readRaw reads a message.
func readRaw(r io.Reader) (kind uint16, code uint64, err error) {
	m, err := wire.Read(r, wire.MaxBody)
	if err != nil {
		return 0, 0, err
	}
	return uint16(m.Kind), m.Uint(wire.TagCode), nil
}

// rawPeerHello is the message of a replica of this name.
func rawPeerHello(name string) []byte {
	return wire.New(wire.MsgHello).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, "raw").AddString(wire.TagServer, name).Encode()
}

// rawPeerWelcome is the answer to HELLO of a replica of this name.
func rawPeerWelcome(name string) []byte {
	return wire.New(wire.MsgWelcome).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, "raw "+name).AddString(wire.TagServer, name).Encode()
}

// readServers reads a message with the names of servers.
func readServers(r io.Reader) (kind uint16, code uint64, servers []string, err error) {
	m, err := wire.Read(r, wire.MaxBody)
	if err != nil {
		return 0, 0, nil, err
	}
	return uint16(m.Kind), m.Uint(wire.TagCode), m.Texts(wire.TagServer), nil
}

// An agent of the tunnel that uses nothing of this module: only Go's standard library
// and hashicorp/yamux. The tests run it against the server, so that the wire stays open
// to agents in other languages. The sections named here are those of tunnel/SPEC.md. To
// stay short it keeps its key in memory, so that each start takes a new invitation,
// never renews its certificate, and knows one server, by TCP. yamux has no reset: if a
// target's connection breaks, the other side reads a regular end.
package yamuxagent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
)

// runAgent enrols, and then has one session after the other.
func runAgent(ctx context.Context, invitation string, allow []string) error {
	id, err := enrolAgent(ctx, invitation)
	for err == nil && ctx.Err() == nil {
		serveSession(ctx, id, allow)
		time.Sleep(time.Second)
	}
	return err
}

// serveSession returns when the server opens no more streams (section 5). Those
// that are open live on.
func serveSession(ctx context.Context, id *identity, allow []string) error {
	conn, err := id.dial(ctx, "causeway-tunnel/1")
	if err != nil {
		return err
	}
	config := yamux.DefaultConfig()
	config.StreamCloseTimeout = 0 // a half-closed stream lives as long as the session
	session, err := yamux.Client(conn, config)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { session.Close() })
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { cancel(serveControl(session)) }()
	var streams sync.WaitGroup
	for {
		stream, err := session.AcceptStreamWithContext(ctx)
		if err != nil {
			break
		}
		streams.Go(func() { serveStream(stream, allow) })
	}
	go func() {
		streams.Wait()
		session.Close()
	}()
	<-ctx.Done()
	return context.Cause(ctx)
}

// serveControl opens the session, and then reads what the server has to say.
func serveControl(session *yamux.Session) error {
	stream, err := session.OpenStream()
	if err != nil {
		return err
	}
	m, err := askServer(stream, encodeMessage(kindHello, newNumberField(tagVersion, 1), newTextField(tagProgram, "yamux-agent")), kindWelcome)
	for err == nil && m.kind != kindDrain {
		m, err = readMessage(stream)
	}
	if err == nil {
		err = errors.New("the server drains it")
	}
	return err
}

// serveStream dials what the server asks for, and relays (section 7).
func serveStream(stream *yamux.Stream, allow []string) {
	defer stream.Close()
	m, err := readMessage(stream)
	if err != nil || m.kind != kindDial {
		return
	}
	conn, err := dialTarget(m, allow)
	if err != nil {
		stream.Write(encodeMessage(kindDialed, newNumberField(tagCode, codeOf(err)), newTextField(tagText, err.Error())))
		return
	}
	stream.Write(encodeMessage(kindDialed, newTextField(tagAddress, conn.RemoteAddr().String())))
	relayStream(stream, conn.(*net.TCPConn))
}

// relayStream passes on when a direction ends: yamux's Close closes one direction.
func relayStream(stream *yamux.Stream, conn *net.TCPConn) {
	var up sync.WaitGroup
	up.Go(func() {
		// yamux calls it an end when the session breaks.
		if _, err := io.Copy(conn, stream); err != nil || stream.Session().IsClosed() {
			conn.SetLinger(0) // a reset passes on that the stream was cut
			conn.Close()
		}
		conn.CloseWrite()
		io.Copy(io.Discard, stream) // if the target takes no more
	})
	io.Copy(stream, conn)
	stream.Close()
	up.Wait()
	conn.Close()
}

var errDenied = errors.New("the address is not among the agent's arguments")

func dialTarget(m *message, allow []string) (net.Conn, error) {
	if !slices.Contains(allow, m.textField(tagAddress)) {
		return nil, errDenied
	}
	timeout := 30 * time.Second
	if budget := m.numberField(tagTime); budget > 0 && budget < 30_000 {
		timeout = time.Duration(budget) * time.Millisecond
	}
	return net.DialTimeout("tcp", m.textField(tagAddress), timeout)
}

// codeOf is how the server's user learns what happened.
func codeOf(err error) uint64 {
	var name *net.DNSError
	var slow net.Error
	switch {
	case errors.Is(err, errDenied):
		return 2
	case errors.Is(err, syscall.ECONNREFUSED):
		return 3
	case errors.As(err, &name) && name.IsNotFound:
		return 4
	case errors.As(err, &slow) && slow.Timeout():
		return 5
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return 6
	}
	return 1
}

package tunnel

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxRefused is of all that comes from a client without a session.
const maxRefused = wire.MaxHello + 2<<10

// sayHello opens the control stream with HELLO and reads the answer, of up to
// limit bytes. Begin judges it, and may write what follows HELLO; ctx bounds that
// too.
func sayHello(ctx context.Context, m *mux.Session, hello *wire.Message, limit int, begin func(control *mux.Stream, answer *wire.Message) error) (*mux.Stream, *wire.Message, error) {
	control, err := m.Open(ctx, hello.Encode())
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { control.SetDeadline(time.Unix(1, 0)) })
	answer, err := wire.Read(control, limit)
	if err == nil {
		err = begin(control, answer)
	}
	if !stop() {
		err = ctx.Err()
	}
	return control, answer, err
}

// checkWelcome returns why the answer to HELLO is no WELCOME.
func checkWelcome(answer *wire.Message, cluster, server string) error {
	switch {
	case answer.Kind == wire.MsgRefusal:
		if err := messageError(answer, "connect", cluster, server); err != nil {
			return err
		}
		return wire.ErrMalformed
	case answer.Kind != wire.MsgWelcome || answer.Uint(wire.TagVersion) != wire.Version:
		return &Error{Op: "connect", Addr: server, Code: CodeVersion, Err: wire.ErrMalformed}
	}
	return nil
}

// acceptHello accepts the control stream and reads HELLO. If its version is not
// spoken here, or check returns an error, the client reads why, and the session ends.
func acceptHello(ctx context.Context, m *mux.Session, cluster string, check func(hello *wire.Message) *Error) (*mux.Stream, *wire.Message, error) {
	control, hello, err := readHello(ctx, m)
	if err != nil {
		m.Close()
		return nil, nil, badPeer(ctx, "connect", cluster, err)
	}
	refused := &Error{Op: "connect", Cluster: cluster, Code: CodeVersion}
	if hello.Speaks() {
		refused = check(hello)
	}
	if refused != nil {
		answerLast(ctx, control, refusalOf(wire.MsgRefusal, refused))
		m.Close()
		return nil, nil, refused
	}
	return control, hello, nil
}

// readHello accepts the control stream.
func readHello(ctx context.Context, m *mux.Session) (*mux.Stream, *wire.Message, error) {
	control, err := m.Accept(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { control.SetReadDeadline(time.Unix(1, 0)) })
	hello, err := wire.Read(control, wire.MaxHello)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && hello.Kind != wire.MsgHello {
		err = errors.New("the first message is not HELLO")
	}
	return control, hello, err
}

// refuseStranger answers HELLO for a client without an accepted certificate: it
// gets no session, which would have room for what it sends. It waits until the
// client has read why, and left.
func refuseStranger(ctx context.Context, c *carrier.Conn, why error) {
	stop := context.AfterFunc(ctx, func() { socket.Innermost(c).Close() })
	defer stop()
	c.Limit(maxRefused)
	m := refusalOf(wire.MsgRefusal, why)
	if mux.Refuse(c, m.Encode()) != nil {
		return
	}
	lingered := time.AfterFunc(lingerTimeout, func() { socket.Innermost(c).Close() })
	defer lingered.Stop()
	var b [512]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			return
		}
	}
}

// answerLast writes the last message, and waits until the other side has read
// it and left.
func answerLast(ctx context.Context, stream *mux.Stream, m *wire.Message) {
	ctx, cancel := context.WithTimeout(ctx, lingerTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { stream.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if wire.Write(stream, m) == nil && stream.CloseWrite() == nil {
		io.Copy(io.Discard, stream)
	}
}

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxRefused is how many bytes a client may send that gets no session.
const maxRefused = wire.MaxHello + 2<<10

// SayHello opens the control stream with HELLO and reads the answer, of up to
// limit bytes. Then it calls check, which returns an error unless the answer begins
// a session, and may write to the control stream. The context bounds all of it.
func SayHello(ctx context.Context, m *mux.Session, hello *wire.Message, limit int, check func(control *mux.Stream, answer *wire.Message) error) (*mux.Stream, *wire.Message, error) {
	control, err := m.Open(ctx, hello.Encode())
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { control.SetDeadline(time.Unix(1, 0)) })
	answer, err := wire.Read(control, limit)
	if err == nil {
		err = check(control, answer)
	}
	if !stop() {
		err = fmt.Errorf("waiting for the answer to HELLO: %w", ended.Error(ctx, err))
	}
	return control, answer, err
}

// ReadHello accepts the control stream and reads HELLO.
func ReadHello(ctx context.Context, m *mux.Session) (*mux.Stream, *wire.Message, error) {
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

// RefuseStranger answers the HELLO of a client whose certificate is not accepted. No
// mux.Session is made for it, since that would buffer what the client sends. It waits
// until the client has read the answer and hung up, LingerTimeout at most.
func RefuseStranger(ctx context.Context, c *carrier.Conn, why *wire.Message) {
	stop := context.AfterFunc(ctx, func() { socket.Innermost(c).Close() })
	defer stop()
	c.Limit(maxRefused)
	if mux.Refuse(c, why.Encode()) != nil {
		return
	}
	defer socket.CloseAfter(c, LingerTimeout)()
	var b [512]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			return
		}
	}
}

// AnswerLast writes the last message, and waits until the other side has read
// it and left.
func AnswerLast(ctx context.Context, stream *mux.Stream, m *wire.Message) {
	ctx, cancel := context.WithTimeout(ctx, LingerTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { stream.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if wire.Write(stream, m) == nil && stream.CloseWrite() == nil {
		io.Copy(io.Discard, stream)
	}
}

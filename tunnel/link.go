package tunnel

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/relay"
)

// link is the agent's end of one session.
type link struct {
	runner  *runner
	server  string
	mux     *mux.Session
	tls     *tls.ConnectionState
	since   time.Time
	out     outbox
	streams *group        // when it is closing, the link takes no more
	done    chan struct{} // closed when the session and its streams have ended

	payloads chan *message
	issued   chan *message // answers to RENEW

	mu    sync.Mutex // guards the field below
	cause error
}

// open connects to the server and begins a session.
func (r *runner) open(ctx context.Context, server string) (*link, error) {
	c, err := r.carry(ctx, server, r.held().tlsConfig())
	if err != nil {
		return nil, err
	}
	m := mux.Client(c, r.KeepAlive.mux(orDefault(r.MaxStreams, 1000)))
	control, roots, err := r.hello(ctx, m)
	if err != nil {
		m.Close()
		var e *Error
		if !errors.As(err, &e) {
			err = &Error{Op: "connect", Addr: server, Code: CodeLost, Err: err}
		}
		return nil, err
	}
	if err := r.trust(ctx, roots); err != nil {
		m.Close()
		return nil, err
	}
	l := &link{
		runner: r, server: server, mux: m, tls: c.state(), since: time.Now(),
		out:     outbox{control: control, wake: make(chan struct{}, 1)},
		streams: newGroup(), done: make(chan struct{}),
		payloads: make(chan *message), issued: make(chan *message, 1),
	}
	r.links.Go(l.serve)
	return l, nil
}

// hello says HELLO and reads the answer.
func (r *runner) hello(ctx context.Context, m *mux.Session) (*mux.Stream, *message, error) {
	hello := (&message{kind: msgHello}).uint(tagVersion, protocolVersion).string(tagID, rand.Text()).
		string(tagProgram, r.Program).time(tagTime, time.Now()).uint(tagLimit, uint64(orDefault(r.MaxStreams, 1000)))
	control, err := m.Open(ctx, hello.encode(nil))
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { control.SetReadDeadline(time.Unix(1, 0)) })
	answer, err := readMessage(control, maxMessage)
	switch {
	case !stop() && err == nil:
		err = ctx.Err()
	case err != nil && ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && answer.kind == msgRefusal:
		if err = answer.failure("connect", r.identity().Cluster, ""); err == nil {
			err = errMessage
		}
	case err == nil && (answer.kind != msgWelcome || answer.getUint(tagVersion) != protocolVersion):
		err = &Error{Op: "connect", Code: CodeVersion, Err: errMessage}
	}
	return control, answer, err
}

// serve takes streams and control messages until the session has ended, and
// its streams.
func (l *link) serve() {
	r := l.runner
	r.linked(l, r.held())
	stop := context.AfterFunc(r.ctx, func() { l.end(nil) })
	var wg sync.WaitGroup
	wg.Go(func() { l.end(l.out.run(l.mux)) })
	wg.Go(func() { l.end(l.readControl()) })
	wg.Go(l.takePayloads)
	wg.Go(l.drain)
	l.end(l.acceptStreams())
	wg.Wait()
	stop()
	l.streams.cancel()
	err := l.err()
	r.unlinked(l, err)
	close(l.done)
}

// acceptStreams returns when the session has ended.
func (l *link) acceptStreams() error {
	for {
		stream, err := l.mux.Accept(l.runner.ctx)
		if err != nil {
			return err
		}
		if !l.streams.start(func() { l.serveStream(stream) }) {
			stream.Reset(uint32(CodeDraining))
		}
	}
}

// serveStream dials what the server asks for, and relays.
func (l *link) serveStream(stream *mux.Stream) {
	defer stream.Close()
	stream.SetReadDeadline(time.Now().Add(orDefault(l.runner.HandshakeTimeout, 15*time.Second)))
	m, err := readMessage(stream, maxRequest)
	if err != nil || m.kind != msgDial {
		stream.Reset(uint32(CodeBadRequest))
		return
	}
	stream.SetReadDeadline(time.Time{})
	ctx, cancel := l.runner.ctx, context.CancelFunc(func() {})
	if budget := m.getUint(tagTime); budget > 0 && budget < uint64(time.Hour/time.Millisecond) {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(budget)*time.Millisecond)
	}
	began := time.Now()
	conn, err := l.runner.targets.dial(ctx, m.getString(tagNetwork), m.getString(tagAddress))
	cancel()
	if l.runner.Hooks.Dialed != nil {
		l.runner.Hooks.Dialed(time.Since(began), err)
	}
	if err != nil {
		code := codeOf(err)
		writeMessage(stream, refusal(msgDialed, code, code.String()))
		return
	}
	if err := writeMessage(stream, (&message{kind: msgDialed}).string(tagAddress, conn.RemoteAddr().String())); err != nil {
		conn.Close()
		return
	}
	relay.Relay(l.runner.ctx, stream, conn)
}

// retire takes no more streams; the session ends with the last one.
func (l *link) retire() { l.streams.closing() }

// drain waits until the link is retired, tells the server, and ends the
// session with its last stream.
func (l *link) drain() {
	select {
	case <-l.streams.accepting.Done():
		l.out.add(&message{kind: msgDrain})
	case <-l.mux.Done():
		l.retire()
	}
	<-l.streams.idle() // the end of the session ends streams too
	l.end(nil)
}

// end ends the session; the first cause counts.
func (l *link) end(cause error) {
	l.mu.Lock()
	select {
	case <-l.mux.Done():
	default:
		if l.cause == nil {
			l.cause = cause
		}
	}
	l.mu.Unlock()
	l.mux.Close()
}

// err returns why the session ended.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil || errors.Is(l.cause, io.EOF) {
		return &Error{Op: "connect", Addr: l.server, Code: CodeLost, Err: errors.New("the server ended the session")}
	}
	return &Error{Op: "connect", Addr: l.server, Code: CodeLost, Err: l.cause}
}

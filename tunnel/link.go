package tunnel

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// link is the agent's end of one session.
type link struct {
	runner  *runner
	server  string
	name    string            // of the server; empty: it has none
	cert    *x509.Certificate // the agent's
	mux     *mux.Session
	carrier *carrier.Conn // of mux
	since   time.Time
	out     outbox
	streams *group.Group // its ctx ends with the session; closing, it takes no more

	issued   chan *wire.Message // answers to RENEW
	work     sync.WaitGroup     // its end, and payloads
	retiring sync.Once

	mu       sync.Mutex // guards the fields below
	cause    error
	servers  []string        // by name, as the server knows them
	news     bool            // a name among them was not told before
	payloads []*wire.Message // that wait for the field Payload
	taking   bool            // there is a goroutine that hands them over
}

// open connects to the server and begins a session, unless its name is held.
func (r *runner) open(ctx context.Context, server string, held []string) (*link, error) {
	credentials := r.held()
	c, err := r.carry(ctx, server, r.tlsConfig(credentials, hostOf(server)))
	if err != nil {
		return nil, err
	}
	m := mux.Client(c, r.KeepAlive.mux(orDefault(r.MaxStreams, 1000)))
	control, welcome, err := r.hello(ctx, m, held)
	if err != nil {
		m.Close()
		return nil, connectError(ctx, server, err)
	}
	if err := r.trust(ctx, welcome); err != nil {
		m.Close()
		return nil, err
	}
	l := &link{
		runner: r, server: withoutPassword(server), cert: credentials.Chain[0], mux: m, carrier: c, since: time.Now(),
		out: outbox{control: control}, streams: group.New(r.ctx),
		issued: make(chan *wire.Message, 1),
	}
	if l.servers = serverNames(welcome); len(l.servers) > 0 {
		l.name = l.servers[0]
	}
	r.link(l, r.held())
	r.links.Add(1)
	go l.serve()
	return l, nil
}

// connectError says which server failed, and in codes why, unless err does.
func connectError(ctx context.Context, server string, err error) error {
	server = withoutPassword(server)
	var e *Error
	switch {
	case errors.As(err, &e) && e.Op == "connect" && e.Addr == "":
		named := *e
		named.Addr = server
		return &named
	case e != nil:
		return err
	}
	e = &Error{Op: "connect", Addr: server, Code: CodeLost, Err: err}
	if cause := ctx.Err(); cause != nil {
		e.Code, e.Err = contextCode(cause), cause
	}
	return e
}

// hello says HELLO and reads the answer.
func (r *runner) hello(ctx context.Context, m *mux.Session, held []string) (*mux.Stream, *wire.Message, error) {
	hello := wire.New(wire.MsgHello).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, rand.Text()).
		AddString(wire.TagProgram, r.Program).AddTime(wire.TagTime, time.Now()).AddUint(wire.TagLimit, uint64(orDefault(r.MaxStreams, 1000)))
	for _, name := range held {
		hello.AddString(wire.TagHeld, name)
	}
	control, err := m.Open(ctx, hello.Encode())
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { control.SetReadDeadline(time.Unix(1, 0)) })
	answer, err := wire.Read(control, wire.MaxBody)
	switch {
	case !stop() && err == nil:
		err = ctx.Err()
	case err != nil && ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && answer.Kind == wire.MsgRefusal:
		if err = messageError(answer, "connect", r.identity().Cluster, ""); err == nil {
			err = wire.ErrMalformed
		}
	case err == nil && (answer.Kind != wire.MsgWelcome || answer.Uint(wire.TagVersion) != wire.Version):
		err = &Error{Op: "connect", Code: CodeVersion, Err: wire.ErrMalformed}
	}
	return control, answer, err
}

// serve has streams and control messages taken until the session has ended,
// and its streams. Until then the runner waits for it, and nothing else: it has no
// goroutine until something comes.
func (l *link) serve() {
	r := l.runner
	if r.Hooks.Connected != nil {
		r.Hooks.Connected(l.server, r.identity())
	}
	l.out.start(l.end)
	l.mux.Serve(l.accept)
	l.awaitControl()
}

// accept must not wait.
func (l *link) accept(stream *mux.Stream) {
	if !l.streams.Go(func() { l.serveStream(stream) }) {
		stream.Reset(uint32(CodeDraining))
	}
}

// finish is the end of what serve began.
func (l *link) finish(cause error) {
	defer l.runner.links.Done()
	if err := l.mux.Err(); err != nil && !errors.Is(cause, io.EOF) {
		cause = err // and not what it means for the control stream
	}
	l.end(cause)
	l.ended()
	l.work.Wait()
	l.out.close()
	l.runner.unlink(l, l.err())
}

// ended takes no more streams, and ends dials that are under way: they are for
// nobody.
func (l *link) ended() {
	l.retire()
	l.streams.Cancel()
}

// serveStream relays, for as long as it takes, what the server asks for. Which
// goroutine waits for which side, and apart, are for small stacks.
func (l *link) serveStream(stream *mux.Stream) {
	defer stream.Close()
	var conn net.Conn
	apart(func() { conn = l.connect(stream) })
	if conn != nil {
		stream.AfterReset(func(code uint32, ended bool) { abandonTarget(conn, code, ended) })
		relay.Relay(l.streams.Context(), conn, stream)
	}
}

// deliveryTimeout is how long a target may take for the rest of what was sent by
// a caller that has closed its connection.
const deliveryTimeout = 5 * time.Minute

// abandonTarget ends the connection to a target that nobody reads any more. A
// relay that waits for the target would not notice. It is what the kernel does
// for a socket that was closed: what was sent is still delivered, if ended says
// that it is all, and what the target sends is refused.
func abandonTarget(conn net.Conn, code uint32, ended bool) {
	if !ended {
		abort.Reset(conn, code)
		return
	}
	conn.SetDeadline(time.Now().Add(deliveryTimeout))
	if c, ok := conn.(interface{ CloseRead() error }); ok {
		c.CloseRead()
	}
}

// dialContext returns the context of a dial that m asks for on the stream. It ends
// after the time in m, or when the peer resets the stream: the dial is for nobody
// then.
func dialContext(ctx context.Context, stream *mux.Stream, m *wire.Message) (context.Context, context.CancelFunc) {
	budget := time.Hour
	if ms := m.Uint(wire.TagTime); ms > 0 && ms < uint64(time.Hour/time.Millisecond) {
		budget = time.Duration(ms) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	stream.AfterReset(func(uint32, bool) { cancel() })
	return ctx, cancel
}

// connect dials what the server asks for, and answers. It returns nil if there
// is nothing to relay.
func (l *link) connect(stream *mux.Stream) net.Conn {
	stream.SetReadDeadline(time.Now().Add(orDefault(l.runner.HandshakeTimeout, 15*time.Second)))
	m, err := wire.Read(stream, wire.MaxRequest)
	if err != nil || m.Kind != wire.MsgDial {
		stream.Reset(uint32(CodeBadRequest))
		return nil
	}
	stream.SetReadDeadline(time.Time{})
	ctx, cancel := dialContext(l.streams.Context(), stream, m)
	defer cancel()
	if ctx.Err() != nil {
		return nil
	}
	began := time.Now()
	conn, err := l.runner.targets.dial(ctx, m.Text(wire.TagNetwork), m.Text(wire.TagAddress))
	if l.runner.Hooks.Dialed != nil {
		l.runner.Hooks.Dialed(time.Since(began), err)
	}
	if l.streams.Context().Err() != nil {
		stream.Reset(uint32(CodeDraining))
		if err == nil {
			conn.Close()
		}
		return nil
	}
	if err != nil {
		// Not Close at once: yamux drops what was not read before a reset.
		answerLast(l.streams.Context(), stream, refusalOf(wire.MsgDialed, err))
		return nil
	}
	answer := wire.New(wire.MsgDialed)
	if addr := conn.RemoteAddr(); addr != nil { // of the embedder's DialFunc it may be
		answer.AddString(wire.TagAddress, addr.String())
	}
	if err := wire.Write(stream, answer); err != nil {
		conn.Close()
		return nil
	}
	return conn
}

// retire takes no more streams; the session ends with the last one.
func (l *link) retire() {
	l.retiring.Do(func() {
		l.streams.Close()
		l.work.Go(l.drain)
	})
}

// drain tells the server that the link is retired, and ends the session with
// its last stream.
func (l *link) drain() {
	l.runner.change()
	if l.mux.Err() == nil {
		l.out.add(wire.New(wire.MsgDrain))
	}
	<-l.streams.Idle() // the end of the session ends streams too
	if l.streams.Context().Err() != nil {
		return // it was Grace that ended them, or the session
	}
	// What the last stream had to say may be waiting to be sent.
	if l.mux.Settle(l.streams.Context(), 1) == nil {
		l.leave()
	}
}

// leave ends the session in order: the control stream ends, after all else,
// and the server hangs up.
func (l *link) leave() {
	l.because(errLeft)
	l.out.finish()
	t := time.NewTimer(lingerTimeout)
	defer t.Stop()
	select {
	case <-l.mux.Done():
	case <-t.C:
		l.end(errLeft)
	}
}

var (
	errLeft  = errors.New("the agent left")
	errGrace = errors.New("streams were open when Grace had passed")
)

// end ends the session; the first cause counts.
func (l *link) end(cause error) {
	l.because(cause)
	l.mux.CloseWithError(cause)
}

func (l *link) because(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = cause
	}
}

// err returns why the session ended; nil if this side ended it in order.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(l.cause, errLeft):
		return nil
	case errors.Is(l.cause, errGrace):
		return &Error{Op: "connect", Addr: l.server, Code: CodeClosed, Err: l.cause}
	case errors.Is(l.cause, io.EOF):
		return &Error{Op: "connect", Addr: l.server, Code: CodeLost, Err: errors.New("the server ended the session")}
	}
	return &Error{Op: "connect", Addr: l.server, Code: CodeLost, Err: l.cause}
}

package tunnel

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mask"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/internal/rotate"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// serverSession is the agent's end of a session with a server: the server opens
// streams, and the agent dials targets for them.
type serverSession struct {
	session.Session
	runner  *runner
	server  string            // its address
	reached string            // the address of that name, or of a proxy's, that has led to it
	name    string            // of the server; empty if it sends none
	cert    *x509.Certificate // the agent's
	carrier *carrier.Conn     // of mux
	carried atomic.Bool       // a connection to a target
	leaving bool              // once another session replaces it; only Run's goroutine uses it

	issued   chan *wire.Message // the latest answer to RENEW
	newNames atomic.Bool        // one of servers is new to Run
	moving   atomic.Bool        // the server has sent MOVE

	state    sync.Mutex      // guards the fields below
	servers  []string        // the names that the server knows
	payloads []*wire.Message // that wait for the field Payload
	taking   bool            // takePayloads runs
}

// openSession connects to the server and opens a session, unless the server's name is
// in held.
func (r *runner) openSession(ctx context.Context, server string, held []string) (*serverSession, error) {
	credentials := r.held()
	c, err := r.dialCarrier(ctx, server, r.tlsConfig(credentials, hostOf(server)))
	if err != nil {
		return nil, err
	}
	m := mux.Client(c, muxConfig(cmp.Or(r.MaxStreams, 1000), r.KeepAlive, r.Budget, nil))
	control, welcome, err := r.sayHello(ctx, m, held)
	if err != nil {
		m.Close()
		return nil, connectError(ctx, server, err)
	}
	if err := r.trustRoots(ctx, welcome); err != nil {
		m.Close()
		return nil, err
	}
	l := &serverSession{
		runner: r, server: mask.Address(server), cert: credentials.Chain[0], carrier: c, servers: serverNames(welcome),
		issued: make(chan *wire.Message, 1),
	}
	_, l.reached = rotate.Reached(ctx)
	r.addrs.Prefer(l.reached, false)
	l.Init(session.Config{Role: l, Mux: m, Control: control, Group: r.sessions, Streams: group.New(r.ctx), Dialed: true, MaxMessage: wire.MaxBody})
	if len(l.servers) > 0 {
		l.name = l.servers[0]
	}
	r.addSession(l, r.held())
	if open := r.openSessions(); len(open) > maxSessions {
		open[0].CloseWithCause(errors.New("the agent has too many sessions"))
	}
	l.Begin()
	go l.start()
	return l, nil
}

// connectError returns err, of a session or an enrolment, with the server's address, and with
// a code if it lacks one.
func connectError(ctx context.Context, server string, err error) error {
	server = mask.Address(server)
	var e *Error
	switch {
	case errors.As(err, &e) && (e.Op == "connect" || e.Op == "enroll") && e.Addr == "":
		named := *e
		named.Addr, named.Err = server, nameAddress(ctx, e.Err)
		return &named
	case e != nil:
		return err
	}
	e = &Error{Op: "connect", Addr: server, Code: CodeLost, Err: err}
	if cause := ctx.Err(); cause != nil {
		e.Code, e.Err = contextCode(cause), ended.Error(ctx, err)
	}
	e.Err = nameAddress(ctx, e.Err)
	return e
}

// sayHello says HELLO and reads the answer.
func (r *runner) sayHello(ctx context.Context, m *mux.Session, held []string) (*mux.Stream, *wire.Message, error) {
	hello := wire.New(wire.MsgHello).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagID, rand.Text()).
		AddString(wire.TagProgram, r.Program).AddTime(wire.TagTime, time.Now()).AddUint(wire.TagLimit, uint64(cmp.Or(r.MaxStreams, 1000)))
	if r.Replica != "" {
		hello.AddString(wire.TagName, r.Replica)
	}
	for _, name := range held {
		hello.AddString(wire.TagHeld, name)
	}
	if len(held) > 0 && r.searchTries < zoneTries {
		hello.AddUint(wire.TagAgain, 1)
	}
	return session.SayHello(ctx, m, hello, wire.MaxBody, func(_ *mux.Stream, answer *wire.Message) error {
		return checkWelcome(answer, r.identity().Cluster, "")
	})
}

// start begins to serve streams and control messages.
func (l *serverSession) start() {
	callHook2(l.runner.Hooks.Connected, l.server, l.runner.identity())
	l.Serve(l.serveStream)
}

// serveStream dials what the server asks for, and relays until both ends have ended.
// The order of the arguments of Relay and onOwnStack keep the stacks small.
func (l *serverSession) serveStream(stream *mux.Stream) {
	defer stream.Close()
	var conn net.Conn
	onOwnStack(func() { conn = l.dialRequested(stream) })
	if conn != nil {
		l.carried.Store(true)
		stream.AfterReset(func(code uint32, ended bool) { abandonTarget(conn, code, ended) })
		relay.Relay(l.Streams.Context(), conn, stream)
	}
}

// deliveryTimeout is how long a target may take to read the rest of the data after the
// caller has closed its connection.
const deliveryTimeout = 5 * time.Minute

// abandonTarget ends the connection to a target whose data nobody reads any more. A
// relay that waits for the target would not notice. It does what the kernel does with
// a closed socket: it refuses the target's data, and still delivers the caller's, if
// ended says that all of it has come.
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

// dialContext returns the context of the dial that m asks for. It ends after the time
// in m, or when the other end resets the stream.
func dialContext(ctx context.Context, stream *mux.Stream, m *wire.Message) (context.Context, context.CancelFunc) {
	budget := time.Hour
	if ms := m.Uint(wire.TagTime); ms > 0 && ms < uint64(time.Hour/time.Millisecond) {
		budget = time.Duration(ms) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	stream.AfterReset(func(uint32, bool) { cancel() })
	return ctx, cancel
}

// dialRequested dials what the server asks for, and answers. It returns nil if the dial
// has failed.
func (l *serverSession) dialRequested(stream *mux.Stream) net.Conn {
	stream.SetReadDeadline(time.Now().Add(cmp.Or(l.runner.HandshakeTimeout, 15*time.Second)))
	m, err := wire.Read(stream, wire.MaxRequest)
	if err != nil || m.Kind != wire.MsgDial {
		stream.Reset(uint32(CodeBadRequest))
		return nil
	}
	stream.SetReadDeadline(time.Time{})
	ctx, cancel := dialContext(l.Streams.Context(), stream, m)
	defer cancel()
	if ctx.Err() != nil {
		return nil
	}
	began := time.Now()
	conn, err := dialTarget(ctx, l.runner.policy.Load(), m.Text(wire.TagNetwork), m.Text(wire.TagAddress))
	callHook2(l.runner.Hooks.Dialed, time.Since(began), err)
	if l.Streams.Context().Err() != nil {
		stream.Reset(uint32(CodeDraining))
		if err == nil {
			conn.Close()
		}
		return nil
	}
	if err != nil {
		// A reset at once could overtake the answer: stock yamux drops what was not read.
		session.AnswerLast(l.Streams.Context(), stream, refusalOf(wire.MsgDialed, err))
		return nil
	}
	answer := wire.New(wire.MsgDialed)
	if addr := conn.RemoteAddr(); addr != nil { // nil with some DialFuncs
		answer.AddString(wire.TagAddress, addr.String())
	}
	stream.SetShare(m.Uint(wire.TagShare), budget.Holder{})
	if err := wire.Write(stream, answer); err != nil {
		conn.Close()
		return nil
	}
	return conn
}

func (l *serverSession) ShutdownCause() error { return errGrace }

// HandleRetired tells the server, and makes Run look for another one.
func (l *serverSession) HandleRetired() {
	l.runner.wakeRun()
	if !l.Closed() {
		l.Send(wire.New(wire.MsgDrain))
	}
}

func (l *serverSession) HandleClosed() { l.runner.wakeRun() }

func (l *serverSession) HandleEnd(cause error) { l.runner.removeSession(l, l.sessionError(cause)) }

var errGrace = errors.New("streams were open when Grace had passed")

// sessionError returns the error for AgentHooks.
func (l *serverSession) sessionError(cause error) error {
	switch {
	case cause == nil:
		return nil
	case errors.Is(cause, errGrace):
		return &Error{Op: "connect", Addr: l.server, Code: CodeClosed, Err: cause}
	}
	return lostError(l.server, "server", cause)
}

// lostError is the error of a session that was dialed from here, and ended
// because of the other end or the carrier.
func lostError(address, other string, cause error) *Error {
	if errors.Is(cause, io.EOF) {
		cause = errors.New("the " + other + " ended the session")
	}
	return &Error{Op: "connect", Addr: address, Code: CodeLost, Err: cause}
}

// HandleControl handles a message from the server.
func (l *serverSession) HandleControl(m *wire.Message) {
	switch m.Kind {
	case wire.MsgDrain:
		l.Retire()
	case wire.MsgIssued:
		select {
		case <-l.issued: // an answer that nobody has waited for
		default:
		}
		l.issued <- m
	case wire.MsgRoots:
		l.trustRoots(m)
	case wire.MsgServers:
		l.learnServers(m)
	case wire.MsgMove:
		l.moving.Store(true)
		l.runner.wakeRun()
	case wire.MsgPayload:
		if !l.queuePayload(m) { // the rest of the control stream must not wait
			l.receivedPayload(m, errors.New("too many payloads wait"))
		}
	}
}

// trustRoots takes the authorities of a ROOTS. Since that saves credentials, it may
// take long, and watches for the end of the session meanwhile. If it fails because the
// session ends, that is no failure: the WELCOME of the next one has the authorities.
func (l *serverSession) trustRoots(m *wire.Message) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx := l.Streams.Context()
		if err := l.runner.trustRoots(ctx, m); err != nil && ctx.Err() == nil {
			l.runner.reportFailure(l.server, err, 0)
		}
	}()
	select {
	case <-done:
	case <-l.Mux.Done():
		l.CancelStreams()
		l.runner.wakeRun()
		<-done
	}
}

package session_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/linktest"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

var errShutdown = errors.New("shut down")

// role is an end of a session that records what happens to it, in order.
type role struct {
	session.Session
	mu     sync.Mutex
	events []string
	cause  error

	closedAt time.Time
}

func (r *role) record(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *role) HandleControl(m *wire.Message) {
	switch m.Kind {
	case wire.MsgDrain:
		r.record("drain")
		r.Retire()
	case wire.MsgPayload:
		r.record("payload")
	}
}
func (r *role) HandleRetired()        { r.record("retired") }
func (r *role) HandleClosed()         { r.record("closed"); r.closedAt = time.Now() }
func (r *role) HandleEnd(cause error) { r.record("end"); r.cause = cause }
func (r *role) ShutdownCause() error  { return errShutdown }

// newPair begins a session, in which the dialer opens streams.
func newPair(t *testing.T) (dialer, acceptor *role) {
	t.Helper()
	near, far := net.Pipe()
	return newPairOn(t, near, far)
}

func newPairOn(t *testing.T, near, far net.Conn) (dialer, acceptor *role) {
	t.Helper()
	dialer, acceptor = &role{}, &role{}
	dialed, accepted := group.New(context.Background()), group.New(context.Background())
	m := mux.Client(near, nil)
	ready := make(chan error)
	go func() {
		m := mux.Server(far, nil)
		control, _, err := session.ReadHello(t.Context(), m)
		if err == nil {
			acceptor.Init(session.Config{Role: acceptor, Mux: m, Control: control, Group: accepted, Streams: group.New(context.Background())})
			acceptor.Send(wire.New(wire.MsgWelcome))
			acceptor.Begin()
			acceptor.Serve(acceptor.serveStream)
		}
		ready <- err
	}()
	welcome := func(_ *mux.Stream, answer *wire.Message) error {
		if answer.Kind != wire.MsgWelcome {
			return wire.ErrMalformed
		}
		return nil
	}
	control, _, err := session.SayHello(t.Context(), m, wire.New(wire.MsgHello), wire.MaxHello, welcome)
	if err := errors.Join(err, <-ready); err != nil {
		t.Fatal(err)
	}
	dialer.Init(session.Config{Role: dialer, Mux: m, Control: control, Group: dialed, Dialed: true, Limit: 2, MaxMessage: wire.MaxBody})
	dialer.Begin()
	dialer.Serve(nil)
	return dialer, acceptor
}

// TestSayHelloEnds: the end of the context, its cause, and what the check found are in the error.
func TestSayHelloEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			m := mux.Server(far, nil)
			if control, _, err := session.ReadHello(t.Context(), m); err == nil {
				wire.Write(control, wire.New(wire.MsgWelcome))
			}
			<-m.Done()
		}()
		ctx, cancel := context.WithCancelCause(t.Context())
		why, found := errors.New("why"), errors.New("found")
		m := mux.Client(near, nil)
		_, _, err := session.SayHello(ctx, m, wire.New(wire.MsgHello), wire.MaxHello, func(*mux.Stream, *wire.Message) error {
			cancel(why)
			return found
		})
		for _, is := range []error{context.Canceled, why, found} {
			if !errors.Is(err, is) {
				t.Errorf("got %v, want that errors.Is finds %v", err, is)
			}
		}
		m.Close()
	})
}

// serveStream answers an ASK, and reads the stream to its end.
func (r *role) serveStream(stream *mux.Stream) {
	defer stream.Close()
	if _, err := wire.Read(stream, wire.MaxRequest); err == nil {
		wire.Write(stream, wire.New(wire.MsgHave))
		io.Copy(io.Discard, stream)
	}
}

func (r *role) ask(ctx context.Context) (*mux.Stream, error) {
	stream, _, err := r.Exchange(ctx, session.Caller{}, wire.New(wire.MsgAsk), nil, func(context.Context) bool { return false })
	return stream, err
}

// TestEnds: what each end hears, and why the session ended for it.
func TestEnds(t *testing.T) {
	errFirst := errors.New("first")
	for _, tt := range []struct {
		name             string
		end              func(dialer, acceptor *role)
		dialer, acceptor error // of the end; io.ErrUnexpectedEOF: any
		events           []string
	}{
		{"the dialer retires", func(d, _ *role) { d.Retire(); d.Retire() }, nil, nil, []string{"retired", "closed", "end"}},
		{"the acceptor asks for it", func(_, a *role) { a.Send(wire.New(wire.MsgDrain)) }, nil, nil, []string{"drain", "retired", "closed", "end"}},
		{"a cause, and another", func(d, _ *role) { d.CloseWithCause(errFirst); d.CloseWithCause(errShutdown) }, errFirst, io.ErrUnexpectedEOF, []string{"closed", "end"}},
		{"the dialer's group ends", func(d, _ *role) { d.Group.Cancel() }, errShutdown, io.ErrUnexpectedEOF, []string{"closed", "end"}},
		{"the acceptor's group ends", func(_, a *role) { a.Group.Cancel() }, io.ErrUnexpectedEOF, errShutdown, []string{"closed", "end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dialer, acceptor := newPair(t)
				tt.end(dialer, acceptor)
				dialer.Group.Drain(context.Background())
				acceptor.Group.Drain(context.Background())
				for _, r := range []struct {
					*role
					want error
				}{{dialer, tt.dialer}, {acceptor, tt.acceptor}} {
					if r.want == io.ErrUnexpectedEOF && r.cause != nil {
						continue
					}
					if !errors.Is(r.cause, r.want) {
						t.Errorf("got %v, want %v", r.cause, r.want)
					}
				}
				if !slices.Equal(dialer.events, tt.events) {
					t.Errorf("got %q, want %q", dialer.events, tt.events)
				}
				dialer.Go(func() { t.Error("Go runs after the end") })
			})
		})
	}
}

// TestRetireWaits: a session that was retired lives for as long as its stream, and
// takes no other.
func TestRetireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialer, acceptor := newPair(t)
		stream, err := dialer.ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		acceptor.Retire()
		if _, err := dialer.ask(t.Context()); err == nil || !dialer.TakesStreams() {
			t.Errorf("got %v, want a stream that is refused", err)
		}
		dialer.Retire()
		time.Sleep(time.Minute)
		if dialer.TakesStreams() || dialer.Closed() || dialer.OpenStreams() != 1 {
			t.Errorf("got takes %t, closed %t, %d streams", dialer.TakesStreams(), dialer.Closed(), dialer.OpenStreams())
		}
		stream.Close()
		dialer.Group.Drain(context.Background())
		acceptor.Group.Drain(context.Background())
		if dialer.cause != nil || acceptor.cause != nil {
			t.Errorf("got %v and %v, want an end in order", dialer.cause, acceptor.cause)
		}
	})
}

// TestLimit: streams that are open count, and others do not.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialer, acceptor := newPair(t)
		first, err := dialer.ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dialer.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := dialer.ask(t.Context()); err != session.ErrTooMany {
			t.Errorf("got %v, want ErrTooMany", err)
		}
		first.Close()
		synctest.Wait()
		if _, err := dialer.ask(t.Context()); err != nil {
			t.Errorf("got %v after a stream has ended", err)
		}
		dialer.Group.Cancel()
		dialer.Group.Drain(context.Background())
		acceptor.Group.Drain(context.Background())
	})
}

// TestSlowControl: a long message takes minutes on a slow line.
func TestSlowControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := linktest.Direction{Rate: 6000}
		link := linktest.New(linktest.Config{Up: way, Down: way})
		defer link.Close()
		near, client := net.Pipe()
		target, far := net.Pipe()
		link.Join(client, target)
		dialer, acceptor := newPairOn(t, near, far)
		acceptor.Send(wire.New(wire.MsgPayload).AddBytes(wire.TagData, make([]byte, wire.MaxBody-6)))
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if dialer.Closed() || len(dialer.events) != 1 {
			t.Errorf("got %q, closed: %t, by %v; want the payload", dialer.events, dialer.Closed(), dialer.cause)
		}
		for _, end := range []*role{dialer, acceptor} {
			end.Group.Cancel()
			end.Group.Drain(context.Background())
		}
	})
}

// A control message that is longer than the other end may have to say, or that has begun
// and does not end, ends the session.
func TestControlMessageBounds(t *testing.T) {
	claim := func(n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0, 99}, n) }
	whole := func(n int) []byte {
		return wire.New(99).AddBytes(wire.TagData, make([]byte, n-6)).Encode() // 6: a field's header
	}
	for _, tt := range []struct {
		name     string
		toDialer bool // whose bound is wire.MaxBody
		text     []byte
		every    time.Duration // between two pieces, of which there are 64
		want     time.Duration // until the session ends; zero: it goes on
	}{
		{"as long as may be", false, whole(wire.MaxControl), 0, 0},
		{"one byte longer", false, claim(wire.MaxControl + 1), 0, time.Nanosecond},
		{"1 MiB", false, claim(wire.MaxBody), 0, time.Nanosecond},
		{"1 MiB to the dialer", true, whole(wire.MaxBody), 0, 0},
		{"more than that", true, claim(wire.MaxBody + 1), 0, time.Nanosecond},
		{"a slow line", false, whole(wire.MaxControl), time.Second, 0},
		{"one byte is missing", false, whole(wire.MaxControl)[:wire.MaxControl], 0, 2 * time.Minute},
		{"half a header", false, claim(0)[:3], 0, 2 * time.Minute},
		{"a piece now and then", false, whole(wire.MaxControl), 3 * time.Second, 2 * time.Minute},
		{"a piece now and then to the dialer", true, whole(wire.MaxBody), 4 * time.Second, 0},
		{"to the dialer", true, claim(wire.MaxBody), 0, 2 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				writer, reader := newPair(t)
				if tt.toDialer {
					writer, reader = reader, writer
				}
				began := time.Now()
				go func() {
					for piece := range slices.Chunk(tt.text, max(len(tt.text)/64, 1)) {
						if _, err := writer.Control.Write(piece); err != nil {
							return
						}
						time.Sleep(tt.every)
					}
				}()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if ended := reader.Closed(); ended != (tt.want > 0) {
					t.Errorf("the session has ended: got %t, want %t", ended, tt.want > 0)
				} else if took := reader.closedAt.Sub(began); ended && (took > tt.want || !errors.Is(reader.cause, wire.ErrMalformed)) {
					t.Errorf("it ended after %v by %v, want %v at most and a malformed message", took, reader.cause, tt.want)
				}
				for _, end := range []*role{writer, reader} {
					end.Group.Cancel()
					end.Group.Drain(context.Background())
				}
			})
		})
	}
}

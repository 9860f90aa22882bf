package mux_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/mux"
)

// budgetBed has sessions that share a budget of 1 MiB.
type budgetBed struct {
	*testing.T
	budget budget.Budget
	server *mux.Session
	client *mux.Session
}

// fill opens a stream of the greedy, for which 64 KiB wait.
func (b *budgetBed) fill() (opened, accepted *mux.Stream) {
	opened, err := b.client.Open(b.Context(), []byte(strings.Repeat("x", 60<<10)))
	if err != nil {
		b.Fatal(err)
	}
	accepted = accept(b, b.server)
	accepted.SetShare(1, budget.Holder{})
	return opened, accepted
}

// blocked returns a stream of a session whose peer takes nothing.
func (b *budgetBed) blocked() *mux.Stream {
	s, p := rawPeer(b, &mux.Config{Budget: &b.budget, DeadAfter: -1})
	b.Cleanup(func() { s.Close() })
	p.send(header(window, syn, 1, 0), header(window, 0, 1, 1<<20))
	return accept(b, s)
}

// TestBudget: whatever lets 4 MiB wait, 1 MiB at most is held, the greedy learn why, and who
// reads, or holds less, loses nothing.
func TestBudget(t *testing.T) {
	const small = 20 << 10
	for name, tt := range map[string]struct {
		greedy func(*budgetBed) net.Conn
		more   int  // bytes beyond the bound
		lost   bool // the session may end, too
	}{
		"not read": {greedy: func(b *budgetBed) net.Conn {
			_, accepted := b.fill()
			return accepted
		}},
		"read a byte at a time": {greedy: func(b *budgetBed) net.Conn {
			_, accepted := b.fill()
			go func() {
				for _, err := accepted.Read(make([]byte, 1)); err == nil; _, err = accepted.Read(make([]byte, 1)) {
					time.Sleep(100 * time.Millisecond)
				}
			}()
			return accepted
		}},
		"closed by the peer": {greedy: func(b *budgetBed) net.Conn {
			opened, accepted := b.fill()
			opened.Close()
			return accepted
		}},
		"of sessions that have ended": {greedy: func(b *budgetBed) net.Conn {
			client, server := sessions(b.T, pipePair, &mux.Config{Budget: &b.budget})
			opened, accepted := connect(b, client, server, strings.Repeat("x", 60<<10))
			accepted.SetShare(1, budget.Holder{})
			opened.Close()
			synctest.Wait()
			client.Close()
			<-server.Done()
			return accepted
		}},
		"written to one that takes nothing": {greedy: func(b *budgetBed) net.Conn {
			_, accepted := b.fill()
			sink, target := net.Pipe()
			b.Cleanup(func() { sink.Close(); target.Close() })
			failed := make(chan error, 1)
			go func() {
				_, err := accepted.WriteTo(sink)
				failed <- err
			}()
			return writing{accepted, failed}
		}},
		"has written as much as a buffer takes, and then nothing": {greedy: func(b *budgetBed) net.Conn {
			opened, st := connect(b.T, b.client, b.server, "x")
			st.SetShare(1, budget.Holder{})
			go io.Copy(io.Discard, opened)
			ctx, cancel := context.WithCancel(b.Context())
			go func() { // as a relay does
				io.Copy(io.Discard, struct{ io.Reader }{st})
				cancel()
			}()
			go st.ReadFrom(&burst{ctx, 2 * (4<<10 - 12)})
			return st
		}},
		"of messages that are half read": {greedy: func(b *budgetBed) net.Conn {
			_, st := connect(b.T, b.client, b.server, "x")
			st.SetShare(1, budget.Holder{})
			go func() {
				st.Keep(32 << 10)
				st.Keep(64 << 10)
				io.Copy(io.Discard, struct{ io.Reader }{st})
				st.Keep(0)
			}()
			return st
		}},
		"half a payload": {greedy: func(b *budgetBed) net.Conn {
			s, p := rawPeer(b, &mux.Config{Budget: &b.budget, DeadAfter: -1, Holder: "greedy"})
			b.Cleanup(func() { s.Close() })
			go io.Copy(io.Discard, p)
			p.send(header(window, syn, 1, 0), header(data, 0, 1, 64<<10))
			return accept(b, s)
		}, more: 6 * 64 << 10, lost: true},
		"not sent": {greedy: func(b *budgetBed) net.Conn {
			st := b.blocked()
			go st.Write(make([]byte, 250<<10))
			return st
		}, more: 6 * 4 * 64 << 10, lost: true},
		"not sent, from a Reader": {greedy: func(b *budgetBed) net.Conn {
			st := b.blocked()
			go st.ReadFrom(endless{})
			return st
		}, more: 6 * 4 * 64 << 10, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &budgetBed{T: t, budget: budget.Budget{Bytes: 1 << 20}}
				b.client, b.server = sessions(t, pipePair, &mux.Config{Budget: &b.budget})
				_, modest := connect(t, b.client, b.server, strings.Repeat("m", small))
				modest.SetShare(2, budget.Holder{})
				up, down := connect(t, b.client, b.server, "x")
				down.SetShare(1, budget.Holder{}) // the greedy's own
				down.Read(make([]byte, 1))
				var all []net.Conn
				for i := range 64 {
					all = append(all, tt.greedy(b))
					synctest.Wait()
					time.Sleep(time.Second)
					if held := budget.Held(&b.budget); held > 1<<20+tt.more {
						t.Errorf("%d: %d bytes are held, want %d at most", i, held, 1<<20+tt.more)
					}
					if _, err := up.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
					if _, err := down.Read(make([]byte, 1)); err != nil {
						t.Fatal("who reads: ", err)
					}
				}
				modest.SetReadDeadline(time.Now().Add(time.Second))
				if got, err := io.ReadFull(modest, make([]byte, small)); err != nil {
					t.Errorf("who holds little has read %d bytes: %v", got, err)
				}
				all[0].SetReadDeadline(time.Now().Add(time.Second))
				_, err := io.Copy(io.Discard, struct{ io.Reader }{all[0]})
				var reset *mux.ResetError
				var lost *mux.LostError
				isReset := errors.As(err, &reset) && reset.Code == mux.CodeBudget
				if errors.Is(err, net.ErrClosed) || !isReset && !(tt.lost && errors.As(err, &lost)) {
					t.Errorf("the first of the greedy has read: %v, want a reset with code %d that is no close", err, mux.CodeBudget)
				}
				for _, conn := range all {
					conn.Close()
				}
				b.client.Close()
				b.server.Close()
				time.Sleep(time.Second) // until who reads slowly has noticed
			})
		})
	}
}

// burst is a Reader that fills one buffer, and then waits.
type burst struct {
	context.Context
	left int
}

func (r *burst) Read(p []byte) (int, error) {
	n := min(r.left, len(p))
	if r.left -= n; n == 0 {
		<-r.Done()
		return 0, io.EOF
	}
	return n, nil
}

// writing is a stream whose WriteTo waits for the other side.
type writing struct {
	*mux.Stream
	failed chan error
}

func (w writing) Read([]byte) (int, error) {
	select {
	case err := <-w.failed:
		return 0, err
	case <-time.After(time.Minute):
		return 0, errors.New("WriteTo waits")
	}
}

// TestBudgetOfNew: of streams that nobody had the time to read no more are reset than the
// bound needs, and an eighth. Nothing is left in the end.
func TestBudgetOfNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budgetBed{T: t, budget: budget.Budget{Bytes: 1 << 20}}
		b.client, b.server = sessions(t, pipePair, &mux.Config{Budget: &b.budget})
		var all []*mux.Stream
		for range 32 {
			_, accepted := b.fill()
			all = append(all, accepted)
		}
		synctest.Wait()
		alive := 0
		for _, st := range all {
			if _, err := st.Read(make([]byte, 1)); err == nil {
				alive++
			}
		}
		if want := 1<<20/(64<<10)*7/8 - 1; alive < want {
			t.Errorf("got %d that can be read, want %d at least", alive, want)
		}
		b.client.Close()
		b.server.Close()
		for _, st := range all {
			st.Close()
		}
		if held := budget.Held(&b.budget); held > 0 {
			t.Errorf("%d bytes are left", held)
		}
	})
}

// TestBudgetOfClusters: a session with a replica has streams of many clusters.
func TestBudgetOfClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budgetBed{T: t, budget: budget.Budget{Bytes: 1 << 20}}
		b.client, b.server = sessions(t, pipePair, &mux.Config{Budget: &b.budget})
		var good net.Conn
		for i := range uint64(33) {
			_, st := b.fill()
			if i == 0 {
				good = st
				st.SetShare(1000, budget.Holder{In: "good"})
			} else {
				st.SetShare(1000+i, budget.Holder{In: "evil"})
			}
			defer st.Close()
		}
		synctest.Wait()
		if _, err := good.Read(make([]byte, 1)); err != nil {
			t.Errorf("the only stream of its cluster: %v", err)
		}
		b.client.Close()
		b.server.Close()
	})
}

// TestBudgetTellsTheOwner: the owner of a connection learns of it without a read.
func TestBudgetTellsTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budgetBed{T: t, budget: budget.Budget{Bytes: 32 << 10}}
		b.client, b.server = sessions(t, pipePair, &mux.Config{Budget: &b.budget})
		told := make(chan bool, 1)
		_, accepted := b.fill()
		accepted.AfterReset(func(code uint32, ended bool) { told <- code == mux.CodeBudget && !ended })
		time.Sleep(time.Second)
		opened, err := b.client.Open(context.Background(), []byte(strings.Repeat("x", 60<<10)))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case ok := <-told:
			if !ok {
				t.Error("got another code, or an end in order")
			}
		default:
			t.Error("the owner was not told")
		}
		opened.Close()
		b.client.Close()
		b.server.Close()
	})
}

// slowlyTaken is a carrier of which the network takes a little all the time.
type slowlyTaken struct{ net.Conn }

func (slowlyTaken) Progress() (taken, came time.Time) { return time.Now(), time.Time{} }

// TestBudgetOfSlowCarrier: a session lives while its carrier takes something.
func TestBudgetOfSlowCarrier(t *testing.T) {
	for _, slow := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := &budgetBed{T: t, budget: budget.Budget{Bytes: 60 << 10}}
			near, far := net.Pipe()
			defer far.Close()
			carrier := net.Conn(slowlyTaken{near})
			if !slow {
				carrier = near
			}
			s := mux.Client(carrier, &mux.Config{Budget: &b.budget})
			defer s.Close()
			st, err := s.Open(t.Context(), make([]byte, 60<<10))
			if err != nil {
				t.Fatal(err)
			}
			io.ReadFull(far, make([]byte, 1<<10)) // the session writes the stream's payload
			time.Sleep(10 * time.Second)
			st.SetWriteDeadline(time.Now().Add(time.Second))
			for range 2 { // has the budget looked at; the session alone holds more
				st.Write(make([]byte, 100<<10))
			}
			synctest.Wait()
			if err := s.Err(); (err == nil) != slow {
				t.Errorf("it takes something: %t; got %v", slow, err)
			}
		})
	}
}

// BenchmarkBudget is what a byte costs that comes for nobody, beyond the bound and below it,
// while 20,000 streams of 20 sessions hold little and stall.
func BenchmarkBudget(b *testing.B) {
	for _, bytes := range []int64{1 << 40, 256 << 20} {
		b.Run(strconv.FormatInt(bytes>>20, 10)+" MiB", func(b *testing.B) {
			shared := budget.Budget{Bytes: bytes}
			for range 20 {
				client, server := sessions(b, tcpPair, &mux.Config{Budget: &shared})
				for share := range 1000 {
					_, st := connect(b, client, server, strings.Repeat("x", 5<<10))
					st.SetShare(uint64(share)+2, budget.Holder{})
				}
			}
			client, server := sessions(b, tcpPair, &mux.Config{Budget: &shared})
			part := strings.Repeat("x", 60<<10)
			var held []*mux.Stream
			b.SetBytes(int64(len(part)))
			before, slowest := cpu(), time.Duration(0)
			for b.Loop() {
				opened, st := connect(b, client, server, part)
				st.SetShare(1, budget.Holder{})
				if held = append(held, opened, st); len(held) > 2*4000 { // 240 MiB
					held[0].Close()
					held[1].Close()
					held = held[2:]
				}
				began := time.Now()
				client.Ping(b.Context())
				slowest = max(slowest, time.Since(began))
			}
			b.ReportMetric((cpu()-before).Seconds()/float64(b.N*len(part))*1e9, "cpu-s/GB")
			b.ReportMetric(slowest.Seconds()*1e3, "ms-max")
		})
	}
}

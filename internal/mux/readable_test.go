package mux_test

import (
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

// readableCauses are what a Read need not wait for any more.
var readableCauses = []struct {
	name string
	do   func(s *mux.Session, st *mux.Stream, p peer)
	want bool
}{
	{"nothing", func(*mux.Session, *mux.Stream, peer) {}, false},
	{"a small payload", func(_ *mux.Session, _ *mux.Stream, p peer) { p.send(dataFrame(0, 1, "x")) }, true},
	{"a large payload", func(_ *mux.Session, _ *mux.Stream, p peer) { p.send(dataFrame(0, 1, strings.Repeat("x", 50000))) }, true},
	{"no payload", func(_ *mux.Session, _ *mux.Stream, p peer) { p.send(dataFrame(0, 1, "")) }, false},
	{"another stream's", func(_ *mux.Session, _ *mux.Stream, p peer) { p.send(dataFrame(syn, 3, "x")) }, false},
	{"window", func(_ *mux.Session, _ *mux.Stream, p peer) { p.send(header(window, 0, 1, 9)) }, false},
	{"the end", func(_ *mux.Session, _ *mux.Stream, p peer) { p.send(header(window, fin, 1, 0)) }, true},
	{"a reset", func(_ *mux.Session, _ *mux.Stream, p peer) { p.send(header(window, rst, 1, 7)) }, true},
	{"a violation", func(_ *mux.Session, _ *mux.Stream, p peer) { p.send(header(window, syn, 1, 0)) }, true},
	{"the carrier's end", func(_ *mux.Session, _ *mux.Stream, p peer) { p.Close() }, true},
	{"the session's end", func(s *mux.Session, _ *mux.Stream, _ peer) { s.Close() }, true},
	{"Close", func(_ *mux.Session, st *mux.Stream, _ peer) { st.Close() }, true},
	{"Reset", func(_ *mux.Session, st *mux.Stream, _ peer) { st.Reset(7) }, true},
	{"CloseWrite", func(_ *mux.Session, st *mux.Stream, _ peer) { st.CloseWrite() }, false},
	{"a read deadline", func(_ *mux.Session, st *mux.Stream, _ peer) { st.SetReadDeadline(time.Unix(1, 0)) }, false},
}

func TestAfterReadable(t *testing.T) {
	for _, tt := range readableCauses {
		for _, before := range []bool{false, true} {
			name := tt.name
			if before {
				name += ", already"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, p := rawPeer(t, nil) // which reads nothing: an end here is not sent
					p.send(header(window, syn, 1, 0))
					st := accept(t, s)
					var calls atomic.Int32
					arm := func() {
						st.AfterReadable(func() {
							s.Stats() // no lock is held
							calls.Add(1)
						})
					}
					if !before {
						arm()
						synctest.Wait()
						if calls.Load() != 0 {
							t.Error("called too early")
						}
					}
					tt.do(s, st, p)
					synctest.Wait()
					if before {
						arm()
						synctest.Wait()
					}
					if got := calls.Load() == 1; got != tt.want {
						t.Errorf("got called %t, want %t", got, tt.want)
					}
					s.Close()
					synctest.Wait()
					if got := calls.Load(); got != 1 {
						t.Errorf("called %d times at the end, want once", got)
					}
				})
			})
		}
	}
}

// Whatever comes while it is set, the function is called, once.
func TestAfterReadableRaces(t *testing.T) {
	for _, tt := range readableCauses {
		if !tt.want {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			for range 10 {
				s, p := rawPeer(t, nil)
				p.discard()
				p.send(header(window, syn, 1, 0))
				st := accept(t, s)
				called := make(chan struct{}, 2)
				var both sync.WaitGroup
				both.Go(func() { st.AfterReadable(func() { called <- struct{}{} }) })
				both.Go(func() { tt.do(s, st, p) })
				both.Wait()
				<-called
				s.Close()
				if len(called) > 0 {
					t.Fatal("called twice")
				}
			}
		})
	}
}

// One that reads and sets itself again reads all, and then the end.
func TestAfterReadableAgain(t *testing.T) {
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			client, server := sessions(t, c.pair, nil)
			opened, accepted := connect(t, client, server, "")
			const n = 300
			var got []byte
			ended := make(chan error)
			var take func()
			take = func() {
				var b [2]byte
				m, err := accepted.Read(b[:])
				if got = append(got, b[:m]...); err != nil {
					ended <- err
					return
				}
				accepted.AfterReadable(take)
			}
			accepted.AfterReadable(take)
			for i := range n {
				if _, err := opened.Write([]byte{byte(i)}); err != nil {
					t.Fatal(err)
				}
			}
			opened.CloseWrite()
			if err := <-ended; err != io.EOF {
				t.Errorf("got %v, want the end", err)
			}
			if len(got) != n {
				t.Errorf("got %d bytes, want %d", len(got), n)
			}
			for i, b := range got {
				if b != byte(i) {
					t.Fatalf("byte %d is %d", i, b)
				}
			}
		})
	}
}

func TestAfterReadableTwice(t *testing.T) {
	client, server := sessions(t, pipePair, nil)
	opened, _ := connect(t, client, server, "")
	called := make(chan struct{})
	opened.AfterReadable(func() { close(called) })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a second function was taken while the first waits")
			}
		}()
		opened.AfterReadable(func() {})
	}()
	opened.Close()
	<-called
}

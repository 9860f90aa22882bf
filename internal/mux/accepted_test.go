package mux_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

// However a peer ends its streams, no more than MaxStreams are with who serves
// them. Others wait, and the peer that keeps to the limit is refused none.
func TestAcceptedAreBounded(t *testing.T) {
	const limit = 3
	ends := map[string]func(id uint32) [][]byte{
		"reset":             func(id uint32) [][]byte { return [][]byte{header(window, rst, id, 0)} },
		"end and reset":     func(id uint32) [][]byte { return [][]byte{header(window, fin|rst, id, 0)} },
		"end, then a reset": func(id uint32) [][]byte { return [][]byte{header(window, fin, id, 0), header(window, rst, id, 0)} },
		"data after the end": func(id uint32) [][]byte {
			return [][]byte{header(window, fin, id, 0), dataFrame(0, id, "x")}
		},
	}
	for name, end := range ends {
		for _, byAccept := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", Accept ", byAccept), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, p := rawPeer(t, &mux.Config{MaxStreams: limit})
					p.discard()
					served := make(chan *mux.Stream, 1000)
					serve(t, s, byAccept, served)
					id := uint32(1)
					for range 100 {
						p.send(dataFrame(syn, id, "dial"))
						synctest.Wait() // or nobody would see one that is reset
						p.send(end(id)...)
						id += 2
					}
					synctest.Wait()
					if n := len(served); n != limit {
						t.Fatalf("got %d streams at once, want %d", n, limit)
					}
					(<-served).Close()
					for range limit - 1 {
						(<-served).Reset(1)
					}
					synctest.Wait()
					for len(served) > 0 { // those that waited and were not reset
						(<-served).Close()
						synctest.Wait()
					}
					p.send(dataFrame(syn, id, "dial"))
					synctest.Wait()
					if len(served) != 1 {
						t.Error("there is no room after all were closed")
					}
					(<-served).Close()
					synctest.Wait()
					if left := s.Leftovers(); left["accepted"] > 0 {
						t.Errorf("left over: %v", left)
					}
				})
			})
		}
	}
}

// serve has what s serves sent to a channel, by Accept or by Serve.
func serve(t *testing.T, s *mux.Session, byAccept bool, served chan<- *mux.Stream) {
	if !byAccept {
		s.Serve(func(st *mux.Stream) { served <- st })
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			st, err := s.Accept(ctx)
			if err != nil {
				return
			}
			served <- st
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// A peer that opens a stream when it has ended another is served, as soon as that
// one was closed.
func TestAcceptedWaitForRoom(t *testing.T) {
	for _, byAccept := range []bool{true, false} {
		t.Run(fmt.Sprint("Accept ", byAccept), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := rawPeer(t, &mux.Config{MaxStreams: 1})
				p.discard()
				served := make(chan *mux.Stream, 10)
				serve(t, s, byAccept, served)
				p.send(dataFrame(syn, 1, "a"))
				synctest.Wait()
				p.send(header(window, rst, 1, 0), dataFrame(syn, 3, "b"))
				synctest.Wait()
				if len(served) != 1 {
					t.Fatalf("got %d streams, want the first", len(served))
				}
				first := <-served
				read(t, first, "a")
				first.Close()
				synctest.Wait()
				if len(served) != 1 {
					t.Fatalf("got %d streams, want the second", len(served))
				}
				read(t, <-served, "b")
			})
		})
	}
}

// A peer that takes nothing is not read any more once some streams were ended here: until
// their ends are sent, they cost memory.
func TestEndsThatWaitAreBounded(t *testing.T) {
	for name, end := range map[string]func(*mux.Stream){
		"close":           func(st *mux.Stream) { st.Close() },
		"reset":           func(st *mux.Stream) { st.Reset(1) },
		"answer and end":  func(st *mux.Stream) { st.Write([]byte("no")); st.Close() },
		"reset, a second": func(st *mux.Stream) { st.Close(); st.Reset(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := rawPeer(t, &mux.Config{MaxStreams: 1 << 16})
				s.Serve(end)
				open := func(n int) (opened int) {
					p.SetWriteDeadline(time.Now().Add(time.Second))
					for id := uint32(1 + 2*n); n < 10*mux.MaxEnding; id += 2 {
						if _, err := p.Write(dataFrame(syn|fin, id, "ask")); err != nil {
							break
						}
						n++
					}
					return n
				}
				if n := open(0); n < mux.MaxEnding || n > 2*mux.MaxEnding+1 { // one is being read
					t.Errorf("%d streams were taken, want %d and those of a batch", n, mux.MaxEnding)
				}
				p.discard()
				synctest.Wait()
				if left := s.Leftovers(); left["ending"] > 0 || left["streams"] > 1 {
					t.Errorf("left over once the peer reads: %v", left)
				}
			})
		})
	}
}

// Serve's function may itself close streams, thousands of them in a row.
func TestServeCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, &mux.Config{MaxStreams: 2000})
		p.discard()
		var first []*mux.Stream
		n := 0
		s.Serve(func(st *mux.Stream) {
			if n++; n <= 2000 {
				first = append(first, st)
				return
			}
			st.Reset(8)
		})
		for id := uint32(1); id < 4000; id += 2 {
			p.send(dataFrame(syn, id, "a"), header(window, fin|rst, id, 0))
		}
		for id := uint32(4001); id < 8000; id += 2 {
			p.send(dataFrame(syn, id, "b"))
		}
		synctest.Wait()
		if n != 2000 {
			t.Errorf("got %d streams, want 2000", n)
		}
		first[0].Close()
		synctest.Wait()
		if n != 4000 {
			t.Errorf("got %d streams, want 4000", n)
		}
		for _, st := range first {
			st.Close()
		}
	})
}

// The function of AfterReset is called for a reset of the peer, before or after
// it was set, once, and for nothing else.
func TestAfterReset(t *testing.T) {
	type call struct {
		code  uint32
		ended bool
	}
	for _, tt := range []struct {
		name   string
		frames [][]byte
		want   []call
	}{
		{"nothing", nil, nil},
		{"data", [][]byte{dataFrame(0, 1, "x")}, nil},
		{"an end", [][]byte{header(window, fin, 1, 0)}, nil},
		{"a reset", [][]byte{header(window, rst, 1, 6)}, []call{{6, false}}},
		{"a reset after data", [][]byte{dataFrame(0, 1, "x"), header(window, rst, 1, 6)}, []call{{6, false}}},
		{"a reset with data", [][]byte{dataFrame(rst, 1, "x")}, []call{{0, false}}},
		{"end and reset", [][]byte{header(window, fin|rst, 1, 0)}, []call{{0, true}}},
		{"end, then a reset", [][]byte{header(window, fin, 1, 0), header(window, rst, 1, 0)}, []call{{0, true}}},
		{"two resets", [][]byte{header(window, rst, 1, 6), header(window, rst, 1, 7)}, []call{{6, false}}},
		{"data after the end", [][]byte{header(window, fin, 1, 0), dataFrame(0, 1, "x")}, []call{{mux.CodeProtocol, true}}},
		{"the session's end", [][]byte{header(9, 0, 0, 0)}, nil},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, ", set late ", late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, p := rawPeer(t, nil)
					p.discard()
					p.send(header(window, syn, 1, 0))
					st := accept(t, s)
					calls := make(chan call, 10)
					set := func() {
						st.AfterReset(func(code uint32, ended bool) {
							s.Stats() // no lock is held
							calls <- call{code, ended}
						})
					}
					if !late {
						set()
					}
					p.send(tt.frames...)
					synctest.Wait()
					if late {
						set()
					}
					synctest.Wait()
					for _, want := range tt.want {
						if len(calls) == 0 {
							t.Fatalf("it was not called, want %v", want)
						}
						if got := <-calls; got != want {
							t.Errorf("got %v, want %v", got, want)
						}
					}
					st.Close()
					s.Close()
					if len(calls) > 0 {
						t.Errorf("it was called with %v more", <-calls)
					}
				})
			})
		}
	}
}

// Of streams that nobody takes yet few are kept, and the peer waits. None is lost.
func TestUnacceptedAreFew(t *testing.T) {
	for name, serving := range map[string]bool{"before Serve": false, "while Serve is busy": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := rawPeer(t, nil)
				p.discard()
				const n = 1000
				var served int
				free := make(chan struct{})
				serve := func() {
					s.Serve(func(*mux.Stream) {
						<-free
						served++
					})
				}
				if serving {
					p.send(dataFrame(syn, 1, "first"))
					synctest.Wait()
					go serve()
					synctest.Wait()
				}
				go func() {
					for id := range uint32(n) {
						if id > 0 || !serving {
							p.send(header(window, syn, 2*id+1, 0))
						}
					}
				}()
				synctest.Wait()
				if got := s.Stats().Streams; got > mux.MaxUnaccepted+1 {
					t.Errorf("got %d streams, want %d and the one that is served", got, mux.MaxUnaccepted)
				}
				close(free)
				if !serving {
					serve()
				}
				synctest.Wait()
				if served != n {
					t.Errorf("%d streams were served, want %d", served, n)
				}
			})
		})
	}
}

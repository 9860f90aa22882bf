package mux_test

import (
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

// Whatever opens a stream, who serves gets it, with what came along.
func TestServe(t *testing.T) {
	small, large := "hello", strings.Repeat("x", 50000)
	for _, tt := range []struct {
		name   string
		frames [][]byte
		want   []string // what each stream that is served has sent
	}{
		{"no stream", [][]byte{header(ping, ack, 0, 9)}, nil},
		{"an opening alone", [][]byte{header(window, syn|fin, 1, 0)}, []string{""}},
		{"with a small payload", [][]byte{dataFrame(syn|fin, 1, small)}, []string{small}},
		{"with a large payload", [][]byte{dataFrame(syn|fin, 1, large)}, []string{large}},
		{"several", [][]byte{dataFrame(syn|fin, 1, small), dataFrame(syn|fin, 3, large), header(window, syn|fin, 5, 0)}, []string{small, large, ""}},
		{"a reset with it", [][]byte{header(window, syn|rst, 1, 0), dataFrame(syn|fin, 3, small)}, []string{small}},
		{"a refused one", [][]byte{header(window, syn|fin, 1, 0), header(window, syn|fin, 3, 0), header(window, syn|fin, 5, 0), header(window, syn|fin, 7, 0)},
			[]string{"", "", ""}},
	} {
		for _, first := range []bool{true, false} {
			name := tt.name + ", then Serve"
			if first {
				name = "Serve, then " + tt.name
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, p := rawPeer(t, &mux.Config{MaxStreams: 3})
					p.discard()
					var served []*mux.Stream
					serve := func(st *mux.Stream) {
						s.Stats() // no lock is held
						served = append(served, st)
					}
					if first {
						s.Serve(serve)
					}
					p.send(tt.frames...)
					synctest.Wait()
					if !first {
						s.Serve(serve)
					}
					var got []string
					for _, st := range served {
						b, err := io.ReadAll(st)
						if err != nil {
							t.Error(err)
						}
						got = append(got, string(b))
						st.Close()
					}
					if !slices.Equal(got, tt.want) {
						t.Errorf("got %d streams, want %d with what they were sent", len(got), len(tt.want))
					}
					time.Sleep(time.Second)
					if left := s.Leftovers(); len(left) > 0 {
						t.Errorf("left over: %v", left)
					}
				})
			})
		}
	}
}

// What is served is acknowledged, as what is accepted.
func TestServedIsAcknowledged(t *testing.T) {
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, p := rawPeer(t, nil)
			if first {
				s.Serve(func(*mux.Stream) {})
			}
			p.send(header(window, syn, 1, 0))
			synctest.Wait()
			if !first {
				s.Serve(func(*mux.Stream) {})
			}
			p.expect(frame{kind: window, flags: ack, id: 1})
		})
	}
}

// Streams that come while Serve begins are handed over once each, in their
// order, one at a time.
func TestServeBeginsAmidStreams(t *testing.T) {
	const n = 200
	for range 20 {
		client, server := sessions(t, pipePair, nil)
		begin, opened := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(opened)
			for i := range n {
				if i == n/2 {
					close(begin)
				}
				if _, err := client.Open(t.Context(), []byte{byte(i)}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		<-begin
		var busy atomic.Bool
		served := make(chan *mux.Stream, 2*n)
		server.Serve(func(st *mux.Stream) {
			if busy.Swap(true) {
				t.Error("called while another call was under way")
			}
			served <- st
			busy.Store(false)
		})
		<-opened
		for i := range n {
			read(t, <-served, string([]byte{byte(i)}))
		}
		if len(served) > 0 {
			t.Errorf("%d streams too many", len(served))
		}
		client.Close()
		server.Close()
	}
}

// One that comes while those that wait are handed over waits behind them.
func TestServeOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		p.discard()
		p.send(dataFrame(syn, 1, "a"), dataFrame(syn, 3, "b"))
		synctest.Wait()
		var served []*mux.Stream
		var busy atomic.Bool
		s.Serve(func(st *mux.Stream) {
			if busy.Swap(true) {
				t.Error("called while another call was under way")
				return
			}
			if len(served) == 0 {
				p.send(dataFrame(syn, 5, "c"))
				synctest.Wait()
			}
			served = append(served, st)
			busy.Store(false)
		})
		synctest.Wait()
		if len(served) != 3 {
			t.Fatalf("got %d streams, want 3", len(served))
		}
		for i, want := range []string{"a", "b", "c"} {
			read(t, served[i], want)
		}
	})
}

// Nobody is served after the end, and Close waits for a call that is under way.
func TestServeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		p.discard()
		p.send(header(window, syn, 1, 0))
		synctest.Wait()
		s.Close()
		s.Serve(func(*mux.Stream) { t.Error("served after Close") })
	})
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		p.discard()
		leave := make(chan struct{})
		s.Serve(func(*mux.Stream) { <-leave })
		p.send(header(window, syn, 1, 0))
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait for the function")
		default:
		}
		close(leave)
		<-closed
	})
}

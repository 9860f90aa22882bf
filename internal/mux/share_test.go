package mux_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/mux"
)

// endless returns what a Reader of a download without end would: it never ends, nor waits.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// Somebody with ten streams sends as much as somebody with one, by whatever call.
func TestShares(t *testing.T) {
	send := map[string]func(*mux.Stream) error{
		"Write": func(st *mux.Stream) error {
			_, err := io.Copy(struct{ io.Writer }{st}, endless{})
			return err
		},
		"ReadFrom": func(st *mux.Stream) error {
			_, err := st.ReadFrom(endless{})
			return err
		},
	}
	for name, send := range send {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := rawPeer(t, &mux.Config{DeadAfter: -1})
				done := make(chan error)
				const greedy = 10
				for i := range greedy + 1 {
					id := uint32(2*i + 1)
					p.send(header(window, syn, id, 0), header(window, 0, id, 1<<30))
					st := accept(t, s)
					st.SetShare(1, budget.Holder{})
					if i == greedy {
						st.SetShare(2, budget.Holder{})
					}
					go func() { done <- send(st) }()
				}
				sent := map[bool]int{}
				for range 100 + 2*greedy { // what was queued before all had begun is not counted
					synctest.Wait()
					f := p.next()
					if f.kind != data {
						continue
					}
					sent[f.id == 2*greedy+1] += len(f.payload)
				}
				if one, ten := sent[true], sent[false]; one < ten*2/3 {
					t.Errorf("one stream of a share sent %d bytes beside %d of ten", one, ten)
				}
				s.Close()
				for range greedy + 1 {
					<-done
				}
			})
		})
	}
}

// A share is forgotten with its last stream, and a stream takes its place in a queue along.
func TestShareEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, &mux.Config{DeadAfter: -1})
		if _, err := readFrame(p); err != nil { // the first ping
			t.Fatal(err)
		}
		synctest.Wait()
		var all []*mux.Stream
		for id := uint32(1); id < 9; id += 2 {
			p.send(header(window, syn, id, 0))
			st := accept(t, s)
			all = append(all, st)
			go io.Copy(struct{ io.Writer }{st}, strings.NewReader(strings.Repeat("x", 200<<10)))
			synctest.Wait()
		}
		for i, st := range all {
			st.SetShare(uint64(1+i%2), budget.Holder{})
			st.SetShare(uint64(1+i%3), budget.Holder{})
			st.SetShare(7, budget.Holder{})
		}
		got := map[uint32]int{}
		for sum := 0; sum < len(all)*200<<10; {
			f := p.next()
			got[f.id] += len(f.payload)
			sum += len(f.payload)
		}
		p.discard()
		for i, st := range all {
			if n := got[uint32(2*i+1)]; n != 200<<10 {
				t.Errorf("stream %d: %d bytes came", i, n)
			}
			st.Reset(0)
		}
		synctest.Wait()
		if left := s.Leftovers(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

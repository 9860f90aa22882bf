package mux_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

// There is a writer from the first frame of a stream until the session is
// idle, and none for longer than a ping takes.
func TestWriterOfIdleSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, &mux.Config{DeadAfter: -1})
		check := func(when string, want bool) {
			t.Helper()
			if synctest.Wait(); s.Writing() != want {
				t.Errorf("%s: got a writer: %t, want %t", when, s.Writing(), want)
			}
		}
		check("the first ping is being written", true)
		readFrame(p)
		check("it was", false)
		open := func(id uint32) {
			t.Helper()
			st, err := s.Open(t.Context(), []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			check("an opening is being written", true)
			p.expect(frame{kind: data, flags: syn, id: id, length: 1, payload: "x"})
			check("it was, and there may be more", true)
			st.Reset(0)
			p.next()
		}
		open(2)
		time.Sleep(time.Second)
		check("after a second", false)
		open(4)
		time.Sleep(8 * time.Second)
		check("after nine", true)
		time.Sleep(time.Second)
		check("after ten, a ping is being written", true)
		readFrame(p)
		check("it was", false)
		open(6)
		p.send(header(ping, syn, 0, 1))
		readFrame(p)
		check("a ping was answered", false)
		p.send(header(ping, syn, 0, 2))
		check("the next one is being answered", true)
		readFrame(p)
		check("it was", false)
	})
}

// What comes up while a ping is being written is written after it.
func TestWriterAfterPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		synctest.Wait() // the first ping is being written
		if _, err := s.Open(t.Context(), []byte("more")); err != nil {
			t.Fatal(err)
		}
		p.expect(frame{kind: data, flags: syn, id: 2, length: 4, payload: "more"})
		synctest.Wait()
		if !s.Writing() {
			t.Error("the writer ended")
		}
	})
}

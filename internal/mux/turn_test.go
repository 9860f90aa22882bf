package mux_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

// blockedReader is a session whose carrier blocks, in a ReadFrom that writes.
func blockedReader(t *testing.T) (*mux.Session, peer, <-chan error) {
	s, p := rawPeer(t, &mux.Config{DeadAfter: -1})
	if _, err := readFrame(p); err != nil { // the first ping
		t.Fatal(err)
	}
	synctest.Wait() // and nobody is writing any more
	p.send(header(window, syn, 1, 0))
	st := accept(t, s)
	done := make(chan error, 1)
	go func() {
		_, err := st.ReadFrom(strings.NewReader("hello"))
		done <- err
	}()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("ReadFrom returned %v: it left the writing to the session", err)
	default:
	}
	return s, p, done
}

// Who read it writes it, but no longer than the carrier may take; then
// the session is lost.
func TestReaderWritesToBlockedCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, done := blockedReader(t)
		began := time.Now()
		wantLost(t, <-done)
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("the session was lost after %v, want 30 s", took)
		}
	})
}

// What others want to send meanwhile goes out after that.
func TestReaderGivesTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, done := blockedReader(t)
		st, err := s.Open(t.Context(), []byte("more"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		p.expect(frame{kind: data, flags: ack, id: 1, length: 5, payload: "hello"},
			frame{kind: data, flags: syn, id: 2, length: 4, payload: "more"})
		if waited := time.Since(began); waited > 0 {
			t.Errorf("what is to be sent waited for %v", waited)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		st.Reset(0)
	})
}

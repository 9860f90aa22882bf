package mux_test

import (
	"io"
	"testing"
	"testing/synctest"
)

// A peer that has sent all and left keeps nobody from reading on: its end is
// found by who has something to write. A reset is found at once.
func TestReadFromAfterPeersEnd(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags uint16
		says  string // what comes to be written
		waits bool   // for it
		fails bool
	}{
		{"closed, and there is something to write", fin | rst, "late", true, true},
		{"closed, and there is nothing", fin | rst, "", true, false},
		{"reset", rst, "late", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := rawPeer(t, nil)
				p.discard()
				p.send(dataFrame(syn, 1, "all"))
				st := accept(t, s) // a stream that was reset before is not there any more
				p.send(header(window, tt.flags, 1, 0))
				synctest.Wait()
				r, w := io.Pipe()
				done := make(chan error, 1)
				go func() {
					_, err := st.ReadFrom(r)
					r.Close()
					done <- err
				}()
				synctest.Wait()
				if waits := len(done) == 0; waits != tt.waits {
					t.Errorf("ReadFrom waits for its reader: %t, want %t", waits, tt.waits)
				}
				io.WriteString(w, tt.says)
				w.Close()
				err := <-done
				if tt.fails {
					wantReset(t, err, 0)
				} else if err != nil {
					t.Error(err)
				}
				if got := make([]byte, 3); tt.flags&fin != 0 {
					if _, err := io.ReadFull(st, got); err != nil || string(got) != "all" {
						t.Errorf("got %q, %v, want what came before", got, err)
					}
				}
			})
		})
	}
}

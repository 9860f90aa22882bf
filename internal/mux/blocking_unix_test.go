//go:build unix

package mux_test

import (
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// setBlocking does to c what os.File.Fd does to a copy of its descriptor.
func setBlocking(t testing.TB, c syscall.Conn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = syscall.SetNonblock(int(fd), false) })
	if err != nil {
		t.Fatal(err)
	}
}

// A target that takes nothing holds up its own stream only, even if its socket
// is one that blocks.
func TestWriteToBlocked(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		near, _ := socketPairs[0].pair(t)
		client, server := sessions(t, tcpPair, nil)
		opened, accepted := connect(t, client, server, "")
		echoing, echoed := connect(t, client, server, "")
		go io.Copy(echoed, echoed)
		fill(t, near)
		done := delivering(t, accepted, near)
		if blocking {
			setBlocking(t, near)
		}
		wrote := make(chan struct{})
		go func() {
			opened.Write(make([]byte, 16<<20))
			close(wrote)
		}()
		for accepted.Offered() { // nothing has come yet
			runtime.Gosched()
		}
		for range 100 {
			echoing.Write([]byte("hello"))
			read(t, echoing, "hello")
		}
		if got := accepted.BufferBytes(); got > 2*accepted.Window() {
			t.Errorf("%d bytes are held for a target that takes nothing", got)
		}
		opened.Reset(7)
		<-wrote
		near.SetWriteDeadline(time.Unix(1, 0))
		if !blocking {
			if r := <-done; !errors.Is(r.err, os.ErrDeadlineExceeded) {
				t.Errorf("got %+v, want the target's timeout", r)
			}
		}
	}
}

package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// written is how many bytes this process has passed to write calls. What is
// spliced is not among them.
func written(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	_, after, _ := bytes.Cut(text, []byte("wchar: "))
	if _, err := fmt.Sscan(string(after), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSplice counts the bytes that go through user space: those that the test
// itself writes, and no others if the relay splices.
func TestSplice(t *testing.T) {
	const size = 32 << 20
	tests := []struct {
		name    string
		a, b    maker
		spliced bool
	}{
		{"tcp to tcp", tcp, tcp, true},
		{"unix to tcp", unix, tcp, true},
		{"tcp to unix", tcp, unix, true},
		{"unix to unix", unix, unix, true},
		{"tls to tcp", overTLS, tcp, false}, // says that the count is right
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			farA, nearA := tt.a(t)
			farB, nearB := tt.b(t)
			done := start(t.Context(), nearA, nearB)
			before := written(t)
			go func() {
				buf := make([]byte, 1<<20)
				for range size / len(buf) {
					farA.Write(buf)
				}
				farA.Close()
			}()
			if n, err := io.Copy(io.Discard, farB); n != size || err != nil {
				t.Fatalf("got %d bytes, %v", n, err)
			}
			farB.Close()
			result(t, done)
			got := written(t) - before
			if spliced := got < size+size/2; spliced != tt.spliced {
				t.Errorf("got %d bytes written for %d, want spliced %v", got, size, tt.spliced)
			}
		})
	}
}

// inherited is what the process was started with.
var inherited = openPipes()

// openPipes is how many ends of pipes this process has.
func openPipes() (n int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		what, _ := os.Readlink("/proc/self/fd/" + e.Name()) // ReadDir's own is gone
		if strings.HasPrefix(what, "pipe:") {
			n++
		}
	}
	return n
}

// expectNoPipes fails if there are any, once the pool is empty.
func expectNoPipes(t *testing.T) {
	t.Helper()
	n := openPipes() - inherited
	for deadline := time.Now().Add(5 * time.Second); n > 0 && time.Now().Before(deadline); n = openPipes() - inherited {
		runtime.GC()
	}
	if n > 0 {
		t.Errorf("got %d ends of pipes, want none", n)
	}
}

// TestIdleHoldsNoPipe: connections idle most of the time, and a pipe is two
// descriptors in each direction and a part of what a user may have in pipes.
func TestIdleHoldsNoPipe(t *testing.T) {
	const relays = 100
	for range relays {
		farA, nearA := tcp(t)
		farB, nearB := tcp(t)
		done := start(t.Context(), nearA, nearB)
		t.Cleanup(func() {
			farA.Close()
			farB.Close()
			result(t, done)
		})
		send(t, farA, "question")
		expect(t, farB, "question")
		send(t, farB, "answer")
		expect(t, farA, "answer")
	}
	expectNoPipes(t)
}

// TestWithoutPipes: a relay that gets no pipe goes on without one, also where
// it had one before.
func TestWithoutPipes(t *testing.T) {
	farA, nearA := tcp(t)
	farB, nearB := tcp(t)
	done := start(t.Context(), nearA, nearB)
	send(t, farA, "spliced")
	expect(t, farB, "spliced")
	expectNoPipes(t)
	restore := useUpFiles(t)
	send(t, farA, " and copied")
	expect(t, farB, " and copied")
	restore()
	farA.Close()
	expectEnd(t, farB)
	farB.Close()
	if res := result(t, done); res.AToB != 18 || res.Err != nil {
		t.Errorf("got %+v, want 18 bytes", res)
	}
}

// useUpFiles lets nobody open a file until restore is called.
func useUpFiles(t *testing.T) (restore func()) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	restore = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	return restore
}

// TestPipeWithRestIsNotReused: what was under way when a relay broke off is not
// for the next one.
func TestPipeWithRestIsNotReused(t *testing.T) {
	for range 10 { // with the race detector a sync.Pool forgets much
		far, near := tcp(t)
		end, to := unix(t) // where nothing that was written is lost
		ctx, cancel := context.WithCancel(t.Context())
		done := start(ctx, near, to)
		go func() { // until nothing between here and the other end has room
			far.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			for buf := make([]byte, 1<<20); ; {
				if _, err := far.Write(buf); err != nil {
					cancel()
					return
				}
			}
		}()
		if res := result(t, done); !errors.Is(res.Err, context.Canceled) {
			t.Fatalf("got %+v, want canceled", res)
		} else if n, err := io.Copy(io.Discard, end); n != res.AToB || n == 0 || err != nil {
			t.Fatalf("got %d bytes, %v; the relay counts %d", n, err, res.AToB)
		}
		far, near = tcp(t)
		end, to = tcp(t)
		done = start(t.Context(), near, to)
		send(t, far, "fresh")
		expect(t, end, "fresh")
		far.Close()
		expectEnd(t, end)
		end.Close()
		result(t, done)
	}
}

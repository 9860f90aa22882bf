package relay_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"
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
		{"unix to unix", unix, unix, false}, // says that the count is right
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

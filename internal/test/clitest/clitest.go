// Package clitest runs the examples in their tests.
package clitest

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"sync"
	"testing"
	"time"
)

// Program is a program that runs beside the test.
type Program struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	err    error         // the program's, once done is closed

	mu      sync.Mutex // guards the fields below
	text    bytes.Buffer
	written chan struct{} // closed and replaced by each Write
}

// Start runs a program until the test ends. Both its outputs go to one text.
func Start(t testing.TB, run func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error, stdin io.Reader, args ...string) *Program {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Program{t: t, cancel: cancel, done: make(chan struct{}), written: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = run(ctx, args, stdin, p, p)
	}()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("the output of %q:\n%s", args, p.Text())
		}
	})
	return p
}

// Stop ends the program, as a signal does, and returns its error.
func (p *Program) Stop() error {
	p.cancel()
	<-p.done
	return p.err
}

// Wait waits for the program's end, and returns its error.
func (p *Program) Wait() error {
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.t.Fatal("the program does not end")
	}
	return p.err
}

// Write implements io.Writer.
func (p *Program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.written)
	p.written = make(chan struct{})
	return p.text.Write(b)
}

// Text returns the output so far.
func (p *Program) Text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// Await waits for a match in the output, and returns its last group.
func (p *Program) Await(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.After(20 * time.Second)
	for {
		p.mu.Lock()
		found, written := re.FindStringSubmatch(p.text.String()), p.written
		p.mu.Unlock()
		if found != nil {
			return found[len(found)-1]
		}
		select {
		case <-written:
		case <-p.done:
			p.t.Fatalf("no %s in the output, and the program ended: %v", pattern, p.err)
		case <-late:
			p.t.Fatalf("no %s in the output", pattern)
		}
	}
}

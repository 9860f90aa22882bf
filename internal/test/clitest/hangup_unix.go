//go:build unix

package clitest

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// HangUpUntil sends SIGHUP to the process of the test, in which the program runs, until the
// program has written a text that matches. It may not listen at first.
func (p *Program) HangUpUntil(pattern string) {
	p.t.Helper()
	ours := make(chan os.Signal, 1) // the signal must not end the test
	signal.Notify(ours, syscall.SIGHUP)
	defer signal.Stop(ours)
	told := make(chan string, 1)
	go func() { told <- p.Await(pattern) }()
	for {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			p.t.Fatal(err)
		}
		select {
		case <-told:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

package rig

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// A Usage is what a process has used.
type Usage struct {
	CPU  time.Duration // user and system
	Peak int64         // bytes, the resident memory's highest since the last reset
	RSS  int64         // bytes, resident now
	Heap int64         // bytes of live heap and of stacks; zero: not a Go program
}

// Own is this process's.
func Own() (Usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return Usage{}, err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u, err := Status("/proc/self/status")
	u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	u.Heap = int64(m.HeapAlloc + m.StackInuse)
	return u, err
}

// Status reads Peak and RSS from a status file of /proc.
func Status(path string) (u Usage, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return u, err
	}
	if u.Peak, err = Field(b, "VmHWM:"); err != nil {
		return u, err
	}
	u.RSS, err = Field(b, "VmRSS:")
	return u, err
}

// Field returns the bytes of a line such as "VmRSS:   1234 kB".
func Field(b []byte, name string) (int64, error) {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte(name))
		if !ok {
			continue
		}
		f := bytes.Fields(rest)
		if len(f) != 2 || string(f[1]) != "kB" {
			break
		}
		n, err := strconv.ParseInt(string(f[0]), 10, 64)
		return n << 10, err
	}
	return 0, fmt.Errorf("there is no %s", name)
}

// RaiseFiles raises the number of open files to what the system allows, for
// this process and its children, and returns it.
func RaiseFiles(want uint64) (uint64, error) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, err
	}
	if r.Max < want { // root may
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: want, Max: want})
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
			return 0, err
		}
	}
	// Set it even where Go has: Go takes its own change back in children.
	r.Cur = r.Max
	return r.Cur, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r)
}

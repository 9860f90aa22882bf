package rig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"syscall"
	"time"
)

// A Usage is what a process has used.
type Usage struct {
	CPU        time.Duration // user and system
	Peak       int64         // bytes, the resident memory's highest since the last reset
	RSS        int64         // bytes, resident now
	Heap       int64         // bytes of live heap and of stacks; zero: not a Go program
	Goroutines int
}

// Plus is the sum.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.CPU + v.CPU, u.Peak + v.Peak, u.RSS + v.RSS, u.Heap + v.Heap, u.Goroutines + v.Goroutines}
}

// Process has the methods that every role has. Roles embed it.
type Process struct{}

// So many collections shrink stacks to the size in use: each one halves them. A
// process that idles has as many in ten minutes.
const collections = 5

// Usage is this process's. tidy collects the garbage and returns the memory first.
func (Process) Usage(tidy bool, u *Usage) (err error) {
	if tidy {
		for range collections {
			runtime.GC()
		}
		debug.FreeOSMemory()
	}
	if *u, err = Status("/proc/self/status"); err != nil {
		return err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.Heap, u.Goroutines = int64(m.HeapAlloc+m.StackInuse), runtime.NumGoroutine()
	u.CPU, err = CPU(syscall.RUSAGE_SELF)
	return err
}

// CPU is user and system time of this process, or of its children that have ended.
func CPU(who int) (time.Duration, error) {
	var r syscall.Rusage
	err := syscall.Getrusage(who, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), err
}

// ResetPeak makes the peak of the memory what is resident now.
func (Process) ResetPeak(None, *None) error {
	return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// Profile writes a CPU profile to the file until it is called with none. The
// file ends with the process.
func (Process) Profile(path string, _ *None) error {
	if path == "" {
		pprof.StopCPUProfile()
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

// HeapProfile writes a profile of the memory in use to the file.
func (Process) HeapProfile(path string, _ *None) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
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

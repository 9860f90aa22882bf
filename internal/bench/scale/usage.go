package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A usage is what a process has used.
type usage struct {
	CPU        time.Duration // user and system
	RSS        int64         // bytes, resident now
	Heap       int64         // bytes of live heap and of stacks
	Goroutines int
}

func (u usage) plus(v usage) usage {
	return usage{u.CPU + v.CPU, u.RSS + v.RSS, u.Heap + v.Heap, u.Goroutines + v.Goroutines}
}

func (u usage) minus(v usage) usage {
	return usage{u.CPU - v.CPU, u.RSS - v.RSS, u.Heap - v.Heap, u.Goroutines - v.Goroutines}
}

// collections are how many it takes for stacks to shrink to what they hold:
// each halves them. A process that idles has as many in ten minutes.
const collections = 5

// ownUsage is this process's. tidy collects the garbage and returns the memory
// first.
func ownUsage(_ context.Context, tidy bool) (usage, error) {
	if tidy {
		for range collections {
			runtime.GC()
		}
		debug.FreeOSMemory()
	}
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{}, err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return usage{}, err
	}
	rss, err := kilobytes(status, "VmRSS:")
	return usage{
		CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), RSS: rss,
		Heap: int64(m.HeapAlloc + m.StackInuse), Goroutines: runtime.NumGoroutine(),
	}, err
}

// kilobytes returns the bytes of a line such as "VmRSS:   1234 kB".
func kilobytes(b []byte, name string) (int64, error) {
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

// machineBusy is the time that the machine's cores have worked, whoever for.
func machineBusy() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(string(b))
}

// parseBusy reads the line of all cores: user, nice, system, idle, iowait, irq,
// softirq, steal, in hundredths of a second; what follows is counted in user.
func parseBusy(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, fmt.Errorf("no line of all cores: %q", line)
	}
	var sum time.Duration
	for i, field := range f[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		if i != 3 && i != 4 { // idle, and waiting for a disk
			sum += time.Duration(n) * (time.Second / 100)
		}
	}
	return sum, nil
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	load, _, _ := strings.Cut(string(b), " ")
	return load
}

// wantedFiles are those of a process with half of 5,000 agents and the targets
// of a thousand dials.
const wantedFiles = 16 << 10

// raiseFiles raises the number of open files to what the system allows.
func raiseFiles() error {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return fmt.Errorf("scale: open files: %w", err)
	}
	if r.Max < wantedFiles { // root may
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: wantedFiles, Max: wantedFiles})
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
			return fmt.Errorf("scale: open files: %w", err)
		}
	}
	r.Cur = r.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return fmt.Errorf("scale: open files: %w", err)
	}
	return nil
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A usage is what a role has used: its process, or those that it started.
type usage struct {
	CPU  time.Duration // user and system
	Peak int64         // bytes, the resident memory's highest since the last reset
	RSS  int64         // bytes, resident now
	Heap int64         // bytes of live heap and of stacks; zero: not a Go program
}

func (u usage) plus(v usage) usage {
	return usage{u.CPU + v.CPU, u.Peak + v.Peak, u.RSS + v.RSS, u.Heap + v.Heap}
}

// ownUsage is this process's. tidy collects the garbage and returns the memory
// first.
func ownUsage(tidy bool) (usage, error) {
	if tidy {
		runtime.GC() // twice: a sync.Pool keeps its content for one
		debug.FreeOSMemory()
	}
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{}, fmt.Errorf("bench: usage: %w", err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return usage{}, fmt.Errorf("bench: usage: %w", err)
	}
	u, err := parseStatus(status)
	u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	u.Heap = int64(m.HeapAlloc + m.StackInuse)
	return u, err
}

// childrenUsage is that of processes with their descendants. Memory that they
// share counts once for each in the peak, and in parts in what is resident.
func childrenUsage(pids []int) (usage, error) {
	var sum usage
	for _, pid := range pids {
		u, err := processUsage(pid)
		if err != nil {
			return usage{}, err
		}
		below, err := children(pid)
		if err != nil {
			return usage{}, err
		}
		rest, err := childrenUsage(below)
		if err != nil {
			return usage{}, err
		}
		sum = sum.plus(u).plus(rest)
	}
	return sum, nil
}

func processUsage(pid int) (usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return usage{}, fmt.Errorf("bench: usage: %w", err)
	}
	u, err := parseStatus(status)
	if err != nil {
		return usage{}, err
	}
	// schedstat counts nanoseconds, where stat counts hundredths of a second;
	// it is a thread's, and these programs have one.
	sched, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	if err != nil {
		return usage{}, fmt.Errorf("bench: usage: %w", err)
	}
	ns, err := strconv.ParseInt(string(bytes.Fields(sched)[0]), 10, 64)
	if err != nil {
		return usage{}, fmt.Errorf("bench: usage: %w", err)
	}
	u.CPU = time.Duration(ns)
	if rollup, err := os.ReadFile(filepath.Join(dir, "smaps_rollup")); err == nil {
		u.RSS, err = field(rollup, "Pss:")
		return u, err
	}
	return u, nil
}

func children(pid int) ([]int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it has ended
	}
	if err != nil {
		return nil, fmt.Errorf("bench: usage: %w", err)
	}
	var pids []int
	for _, s := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("bench: usage: %w", err)
		}
		pids = append(pids, n)
	}
	return pids, nil
}

func parseStatus(b []byte) (usage, error) {
	peak, err := field(b, "VmHWM:")
	if err != nil {
		return usage{}, err
	}
	rss, err := field(b, "VmRSS:")
	return usage{Peak: peak, RSS: rss}, err
}

// field returns the bytes of a line such as "VmRSS:   1234 kB".
func field(b []byte, name string) (int64, error) {
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
	return 0, fmt.Errorf("bench: usage: there is no %s", name)
}

// raiseFiles raises the number of open files to what the system allows, for
// this process and those that it starts.
func raiseFiles(want uint64) error {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return fmt.Errorf("bench: open files: %w", err)
	}
	if r.Max < want { // root may
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: want, Max: want})
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
			return fmt.Errorf("bench: open files: %w", err)
		}
	}
	// Set it even where Go has: Go takes its own change back in children.
	r.Cur = r.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return fmt.Errorf("bench: open files: %w", err)
	}
	if r.Cur < want {
		return fmt.Errorf("bench: open files: only %d are allowed, %d are needed", r.Cur, want)
	}
	return nil
}

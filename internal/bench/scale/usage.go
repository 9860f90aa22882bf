package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
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

// So many collections shrink stacks to the size in use: each one halves them. A
// process that idles has as many in ten minutes.
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
	u, err := rig.Own()
	return usage{CPU: u.CPU, RSS: u.RSS, Heap: u.Heap, Goroutines: runtime.NumGoroutine()}, err
}

// machineBusy is the time that the machine's cores have worked, for all programs.
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

// wantedFiles are enough open files for a process with half of 5,000 agents and the
// targets of 1,000 dials.
const wantedFiles = 16 << 10

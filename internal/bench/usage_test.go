package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// childrenUsage returns the usage of processes with their descendants. Memory that
// they share counts once for each process in the peak, and in parts in the resident
// memory.
func childrenUsage(pids []int) (rig.Usage, error) {
	var sum rig.Usage
	for _, pid := range pids {
		u, err := processUsage(pid)
		if err != nil {
			return rig.Usage{}, err
		}
		below, err := childPIDs(pid)
		if err != nil {
			return rig.Usage{}, err
		}
		rest, err := childrenUsage(below)
		if err != nil {
			return rig.Usage{}, err
		}
		sum = sum.Plus(u).Plus(rest)
	}
	return sum, nil
}

func processUsage(pid int) (rig.Usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	u, err := rig.Status(filepath.Join(dir, "status"))
	if err != nil {
		return rig.Usage{}, err
	}
	// schedstat counts nanoseconds, where stat counts hundredths of a second;
	// it is a thread's, and these programs have one.
	sched, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	if err != nil {
		return rig.Usage{}, err
	}
	ns, err := strconv.ParseInt(string(bytes.Fields(sched)[0]), 10, 64)
	if err != nil {
		return rig.Usage{}, err
	}
	u.CPU = time.Duration(ns)
	if rollup, err := os.ReadFile(filepath.Join(dir, "smaps_rollup")); err == nil {
		u.RSS, err = rig.Field(rollup, "Pss:")
		return u, err
	}
	return u, nil
}

func childPIDs(pid int) ([]int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it has ended
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, s := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil, err
		}
		pids = append(pids, n)
	}
	return pids, nil
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// A result is what all phases gave. Durations are nanoseconds.
type result struct {
	Conditions conditions
	Load       []machineLoad
	Enrol      []enrolment `json:",omitempty"`
	Idle       []idle      `json:",omitempty"`
	Dials      *dialling   `json:",omitempty"`
	Restarts   []*restart  `json:",omitempty"`
	Soak       *soak       `json:",omitempty"`
}

type conditions struct {
	Command string
	rig.Conditions
}

// machineLoad is what the machine did in a phase: the load average before and
// after, and the cores that were busy, for the fleet and for whatever else.
type machineLoad struct {
	Phase         string
	Before, After string
	Own, Others   float64
}

// meter is the beginning of a phase.
type meter struct {
	fleet     *fleet
	began     time.Time
	busy, own time.Duration
	load      string
}

func (f *fleet) startMeter(ctx context.Context) (m meter, err error) {
	m = meter{fleet: f, began: time.Now(), load: loadAverage()}
	if m.busy, err = machineBusy(); err == nil {
		m.own, err = f.ownTime(ctx)
	}
	return m, err
}

func (m meter) read(ctx context.Context) (machineLoad, error) {
	now, err := m.fleet.startMeter(ctx)
	took := now.began.Sub(m.began).Seconds()
	own := (now.own - m.own).Seconds() / took
	return machineLoad{Before: m.load, After: now.load, Own: own, Others: max((now.busy-m.busy).Seconds()/took-own, 0)}, err
}

// ownTime is the CPU time of this process and of all that it has started.
func (f *fleet) ownTime(ctx context.Context) (time.Duration, error) {
	u, err := f.sumUsage(ctx, false)
	sum := u[0].CPU + u[1].CPU
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} { // the latter: children that have ended
		var r syscall.Rusage
		if e := syscall.Getrusage(who, &r); e != nil {
			return 0, e
		}
		sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return sum, err
}

// dialling is many dials a second.
type dialling struct {
	Asked, Rate float64 // a second
	dialCount
	P50, P99 time.Duration
}

// percentile returns the value that p percent of values are below, or zero without
// values. It does not change their order.
func percentile[T cmp.Ordered](values []T, p int) (v T) {
	if len(values) == 0 {
		return v
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

// write leaves two files in a folder, which it makes if need be.
func (r *result) write(dir string) error {
	if err := rig.Write(dir, r, map[string]string{"table.txt": r.table()}); err != nil {
		return fmt.Errorf("scale: %w", err)
	}
	return nil
}

package mux

import (
	"sync"
	"time"
)

// deadline is guarded by the lock of the Cond that it wakes.
type deadline struct {
	passed bool
	timer  *time.Timer
}

// set makes t the deadline, zero: none. Nothing runs for an operation, only
// for a deadline.
func (d *deadline) set(t time.Time, wake *sync.Cond) {
	d.stop()
	d.passed = false
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		wake.Broadcast()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		wake.L.Lock()
		defer wake.L.Unlock()
		if d.timer == timer { // and no other was set meanwhile
			d.passed = true
			wake.Broadcast()
		}
	})
	d.timer = timer
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

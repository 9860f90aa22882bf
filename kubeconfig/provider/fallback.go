package provider

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const maxHoldOff = 24 * time.Hour

// rollBack switches to the previous route if AnnotationRollback asks for it, and that is not done yet.
func (d *decider) rollBack(r route) bool {
	if !d.rollback || !d.managed || d.rolledBack() {
		return false
	}
	before := d.routesToFallBackTo(r)
	if len(before) == 0 {
		return false
	}
	value, err := d.base.withRoute(before[0])
	if err != nil {
		return false
	}
	d.records.applied, d.records.previous, d.records.State, d.records.Inputs = &before[0], []route{r}, StateRolledBack, ""
	d.tell(corev1.EventTypeNormal, ReasonRolledBack, "the previous route is in use again, as the annotation "+AnnotationRollback+" asks for")
	d.write(value)
	return true
}

// routesToFallBackTo returns the previous routes, the newest first, without those that
// would lead directly where r does not. A secondary Secret takes its server from the first.
func (d *decider) routesToFallBackTo(r route) []route {
	var before []route
	for _, previous := range d.records.previous {
		if previous.leadsThrough() || !r.leadsThrough() {
			if d.follows {
				previous = d.withServer(previous, d.base.current)
			}
			before = append(before, previous)
		}
	}
	return before
}

// watchGrace checks a new route, and falls back to the previous one if it fails. It
// returns true if that ends the plan.
func (d *decider) watchGrace(r route) bool {
	if d.records.State != StateGrace {
		return false
	}
	left := d.records.Since.Add(d.settings.Grace).Sub(d.config.Now)
	if d.settings.NoProbe || len(d.records.previous) == 0 {
		d.records.State = StateReady
		return false
	}
	result, ok := d.resultInUse()
	switch {
	case !ok:
		return true
	case result.Report.OK():
		if d.healthy = true; left <= 0 {
			d.records.State = StateReady
		} else {
			d.scheduleAfter(left)
		}
		return false
	case result.Failures < failureThreshold:
		return false
	}
	if d.fallBackFrom(r, result) {
		return true
	}
	if result.extended && left <= 0 {
		d.records.State = StateReady
	}
	return false
}

// fallBackFrom switches to the newest previous route that works. It returns false if none
// does: the API server is down, or the network here.
func (d *decider) fallBackFrom(r route, failed outcome) bool {
	pending := false
	before := d.routesToFallBackTo(r)
	for i, previous := range before {
		value, err := d.base.withRoute(previous)
		if err != nil {
			continue
		}
		result, ok := d.probeResult(Candidate{Key: d.base.probeKey(previous)}, d.graceResultLifetime, func() ([]byte, error) { return value, nil })
		switch {
		case !ok:
			pending = true
		case result.Report.OK() && !pending:
			d.records.applied, d.records.previous = &previous, before[i+1:]
			d.fallBack(r, value, failed)
			return true
		}
	}
	return pending
}

// fallBack writes value. r is the route that failed.
func (d *decider) fallBack(r route, value []byte, result outcome) {
	if name := routeDigest(r); d.records.Failed != name {
		d.records.Failed, d.records.Failures = name, 0
	}
	hold := min(d.settings.Grace<<min(d.records.Failures, 20), maxHoldOff)
	if hold <= 0 {
		hold = maxHoldOff
	}
	d.records.Failures++
	d.records.RetryAt = d.config.Now.Add(hold).UTC().Truncate(timeUnit)
	d.records.State, d.records.Inputs = StateFellBack, ""
	d.say(notReady(ReasonFellBack, "the configured route failed within its grace period, and the previous one is in use. "+
		"It is tried again later, or when the configuration changes. It failed with: "+d.routeVerdict(result).message))
	d.write(value)
}

// inHoldOff reports whether the route fell back and must not be tried yet.
func (d *decider) inHoldOff(desired route) bool {
	left := d.records.RetryAt.Sub(d.config.Now)
	if d.records.Failed != routeDigest(desired) || left <= 0 {
		return false
	}
	d.scheduleAfter(left)
	v := notReady(ReasonFellBack, "the configured route failed within its grace period, and the previous one is in use")
	if c := d.records.condition; c != nil && c.Reason == ReasonFellBack {
		v.message = c.Message
	}
	d.say(v)
	return true
}

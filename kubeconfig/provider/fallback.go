package provider

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const maxHoldOff = 24 * time.Hour

// rollBack switches to the previous route if AnnotationRollback asks for it. It sets
// hold while that route is in use.
func (p *planner) rollBack(r route, hold *bool) bool {
	if _, asked := p.cluster.Annotations[AnnotationRollback]; !asked || !p.managed {
		return false
	}
	if p.records.State == StateRolledBack {
		*hold = true
		return false
	}
	before := p.routesToFallBackTo(r)
	if len(before) == 0 {
		return false
	}
	value, err := p.base.withRoute(before[0])
	if err != nil {
		return false
	}
	p.records.applied, p.records.previous, p.records.State, p.records.Inputs = &before[0], []route{r}, StateRolledBack, ""
	p.addEvent(corev1.EventTypeNormal, ReasonRolledBack, "the previous route is in use again, as the annotation "+AnnotationRollback+" asks for")
	p.updateTarget(value)
	return true
}

// routesToFallBackTo returns the previous routes, the newest first, without those that
// would lead directly where r does not. A secondary Secret takes its server from the first.
func (p *planner) routesToFallBackTo(r route) []route {
	var before []route
	for _, previous := range p.records.previous {
		if previous.leadsThrough() || !r.leadsThrough() {
			if p.follows {
				previous = p.withServer(previous, p.base.current)
			}
			before = append(before, previous)
		}
	}
	return before
}

// watchGrace checks a new route, and falls back to the previous one if it fails. It
// returns true if that ends the plan.
func (p *planner) watchGrace(r route) bool {
	if p.records.State != StateGrace {
		return false
	}
	left := p.records.Since.Add(p.settings.Grace).Sub(p.config.Now)
	if p.settings.NoProbe || len(p.records.previous) == 0 {
		p.records.State = StateReady
		return false
	}
	result, ok := p.resultInUse()
	switch {
	case !ok:
		return true
	case result.Report.OK():
		if p.healthy = true; left <= 0 {
			p.records.State = StateReady
		} else {
			p.scheduleAfter(left)
		}
		return false
	case result.Failures < failureThreshold:
		return false
	}
	if p.fallBackFrom(r, result) {
		return true
	}
	if result.extended && left <= 0 {
		p.records.State = StateReady
	}
	return false
}

// fallBackFrom switches to the newest previous route that works. It returns false if none
// does: the API server is down, or the network here.
func (p *planner) fallBackFrom(r route, failed outcome) bool {
	pending := false
	before := p.routesToFallBackTo(r)
	for i, previous := range before {
		value, err := p.base.withRoute(previous)
		if err != nil {
			continue
		}
		result, ok := p.probeResult(Candidate{Key: p.base.probeKey(previous)}, p.graceResultLifetime, func() ([]byte, error) { return value, nil })
		switch {
		case !ok:
			pending = true
		case result.Report.OK() && !pending:
			p.records.applied, p.records.previous = &previous, before[i+1:]
			p.fallBack(r, value, failed)
			return true
		}
	}
	return pending
}

// fallBack writes value. r is the route that failed.
func (p *planner) fallBack(r route, value []byte, result outcome) {
	if name := routeDigest(r); p.records.Failed != name {
		p.records.Failed, p.records.Failures = name, 0
	}
	hold := min(p.settings.Grace<<min(p.records.Failures, 20), maxHoldOff)
	if hold <= 0 {
		hold = maxHoldOff
	}
	p.records.Failures++
	p.records.RetryAt = p.config.Now.Add(hold).UTC().Truncate(timeUnit)
	p.records.State, p.records.Inputs = StateFellBack, ""
	p.setCondition(notReady(ReasonFellBack, "the configured route failed within its grace period, and the previous one is in use. "+
		"It is tried again later, or when the configuration changes. It failed with: "+p.routeVerdict(result).message))
	p.updateTarget(value)
}

// inHoldOff reports whether the route fell back and must not be tried yet.
func (p *planner) inHoldOff(desired route) bool {
	left := p.records.RetryAt.Sub(p.config.Now)
	if p.records.Failed != routeDigest(desired) || left <= 0 {
		return false
	}
	p.scheduleAfter(left)
	v := notReady(ReasonFellBack, "the configured route failed within its grace period, and the previous one is in use")
	if c := p.records.condition; c != nil && c.Reason == ReasonFellBack {
		v.message = c.Message
	}
	p.setCondition(v)
	return true
}

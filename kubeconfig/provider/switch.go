package provider

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// attempt is a kubeconfig that may replace the present one.
type attempt struct {
	route    route
	identity identity
}

// attemptValue returns the kubeconfig. Each call signs new credentials if it needs
// them.
func (d *decider) attemptValue(a attempt) ([]byte, error) {
	value, err := d.base.withRoute(a.route)
	if err != nil || !a.identity.needed {
		return value, err
	}
	return d.replaceIdentity(value, a.identity)
}

// tryAttempts switches to the configured route and CA once their probe has passed. It
// returns false if nothing is to be done now. If the CA changed too, but the API server
// doesn't use the new one yet, the route need not wait for it.
func (d *decider) tryAttempts(r, desired route) bool {
	if !desired.sameEntry(r) && d.inHoldOff(desired) {
		desired = r
	}
	var attempts []attempt // the best first
	if id := d.identityChange(); id.needed {
		attempts = append(attempts, attempt{desired, id})
	}
	if !desired.sameEntry(r) {
		attempts = append(attempts, attempt{desired, identity{}})
	}
	// The first route of a Cluster that only agents lead to is not probed: the direct one leads
	// nowhere, and no agent may be there yet.
	leavesDirect := d.cluster.Tunnel && !r.leadsThrough() && desired.leadsThrough()
	pending := false
	var last outcome
	for _, a := range attempts {
		if d.settings.NoProbe || leavesDirect {
			return d.switchTo(r, a, nil)
		}
		key := d.base.probeKey(a.route)
		if a.identity.needed {
			key = hashParts([]byte(key), a.identity.ca, []byte(fmt.Sprint(a.identity.sign)))
		}
		result, ok := d.probeRoute(a.route, key, d.resultLifetime, func() ([]byte, error) { return d.attemptValue(a) })
		accepted := ok && result.Report.OK()
		if ok && result.extended { // it may replace only one that is down for a plain client-go
			var present outcome
			present, ok = d.resultInUse()
			accepted = ok && !present.Report.OK() && present.Failures >= failureThreshold
		}
		switch {
		case !ok:
			pending = true
		case accepted && !pending:
			return d.switchTo(r, a, &result)
		}
		last = result
	}
	if pending {
		return true
	}
	if !desired.sameEntry(r) {
		v := d.routeVerdict(last)
		v.message = "the configured route is not in use yet, since it failed the probe: " + v.message
		d.say(v)
		d.shown = StateProbing
	}
	return false
}

// switchTo writes the attempt. result is nil if it was not probed.
func (d *decider) switchTo(r route, a attempt, result *outcome) bool {
	value, err := d.attemptValue(a)
	if err != nil {
		d.say(notReady(ReasonNoCA, err.Error()))
		return false
	}
	desired, moved := a.route, !a.route.sameEntry(r)
	if d.acceptRoute(desired); moved {
		d.records.Inputs = d.inputs
		d.recordSwitch(r, desired, result != nil)
	}
	if a.identity.needed {
		d.tell(corev1.EventTypeNormal, ReasonRotated, "the CA of the Secret "+d.target.name+" is that of "+d.cluster.Name+"-ca now")
	}
	if result != nil {
		d.say(d.refineVerdict(d.routeVerdict(*result)))
	}
	d.write(value)
	return true
}

// recordSwitch keeps the routes to fall back to.
func (d *decider) recordSwitch(r, desired route, probed bool) {
	if d.records.Failed != routeDigest(desired) {
		d.records.Failed, d.records.Failures, d.records.RetryAt = "", 0, time.Time{}
	}
	message := "the route is " + desired.String()
	if probed {
		message += ", and passed the probe"
	}
	d.tell(corev1.EventTypeNormal, ReasonSwitched, message)
	if r.withoutUser().sameEntry(desired.withoutUser()) {
		if d.records.State != StateGrace {
			d.records.State = StateReady
		}
		return
	}
	d.records.previous = d.routesBefore(r, desired)
	d.records.State, d.records.Since = StateReady, time.Time{}
	if probed {
		d.records.State, d.records.Since = StateGrace, d.config.Now.UTC().Truncate(timeUnit)
	}
}

// maxPrevious is how many routes the Secret keeps to fall back to.
const maxPrevious = 3

// routesBefore returns the routes to fall back to, the newest first, after a switch from r
// to desired. A route that is still in its grace period is one of them if it works, and
// those before it stay.
func (d *decider) routesBefore(r, desired route) []route {
	before := []route{r}
	if d.records.State == StateGrace {
		before = slices.Concat(before, d.records.previous)
		if !d.healthy {
			before = before[1:]
		}
	}
	before = slices.DeleteFunc(before, desired.sameEntry)
	return before[:min(len(before), maxPrevious)]
}

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
		if !previous.losesWay(r) {
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

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

// listAttempts returns what to try for the configured route, the best first. If the
// CA changed too, but the API server doesn't use the new one yet, the route need not
// wait for it.
func (d *decider) listAttempts(r, desired route) []attempt {
	var all []attempt
	id := d.identityChange()
	if id.needed {
		all = append(all, attempt{desired, id})
	}
	if !desired.sameEntry(r) {
		all = append(all, attempt{desired, identity{}})
	}
	return all
}

// tryAttempts switches to the configured route and CA once their probe has passed. It
// returns false if nothing is to be done now.
func (d *decider) tryAttempts(r, desired route) bool {
	if !desired.sameEntry(r) && d.inHoldOff(desired) {
		desired = r
	}
	pending := false
	var last outcome
	for _, a := range d.listAttempts(r, desired) {
		if d.settings.NoProbe || d.leavesDirect(r, a.route) {
			return d.switchTo(r, a, nil)
		}
		key := d.base.probeKey(a.route)
		if a.identity.needed {
			key = hashParts([]byte(key), a.identity.ca, []byte(fmt.Sprint(a.identity.sign)))
		}
		result, ok := d.probeRoute(a.route, key, d.resultLifetime, func() ([]byte, error) { return d.attemptValue(a) })
		accepted := ok && result.Report.OK()
		if ok && result.extended {
			accepted, ok = d.routeIsDown()
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

// leavesDirect reports whether a Cluster that only agents lead to gets its first route. It
// is not probed before: the direct one leads nowhere, and no agent may be there yet.
func (d *decider) leavesDirect(r, desired route) bool {
	return d.cluster.Tunnel && !r.leadsThrough() && desired.leadsThrough()
}

// routeIsDown reports whether the route in use fails for a plain client-go. Only then it
// may be replaced by one that only our own clients can take.
func (d *decider) routeIsDown() (down, ok bool) {
	result, ok := d.resultInUse()
	return ok && !result.Report.OK() && result.Failures >= failureThreshold, ok
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

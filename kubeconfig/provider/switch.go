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
func (p *planner) attemptValue(a attempt) ([]byte, error) {
	value, err := p.base.withRoute(a.route)
	if err != nil || !a.identity.needed {
		return value, err
	}
	return p.replaceIdentity(value, a.identity)
}

// listAttempts returns what to try for the configured route, the best first. If the
// CA changed too, but the API server doesn't use the new one yet, the route need not
// wait for it.
func (p *planner) listAttempts(r, desired route) []attempt {
	var all []attempt
	id := p.identityChange()
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
func (p *planner) tryAttempts(r, desired route) bool {
	if !desired.sameEntry(r) && p.inHoldOff(desired) {
		desired = r
	}
	pending := false
	var last outcome
	for _, a := range p.listAttempts(r, desired) {
		if p.settings.NoProbe || p.leavesDirect(r, a.route) {
			return p.switchTo(r, a, nil)
		}
		key := p.base.probeKey(a.route)
		if a.identity.needed {
			key = hashParts([]byte(key), a.identity.ca, []byte(fmt.Sprint(a.identity.sign)))
		}
		result, ok := p.probeRoute(a.route, key, p.resultLifetime, func() ([]byte, error) { return p.attemptValue(a) })
		accepted := ok && result.Report.OK()
		if ok && result.extended {
			accepted, ok = p.routeIsDown()
		}
		switch {
		case !ok:
			pending = true
		case accepted && !pending:
			return p.switchTo(r, a, &result)
		}
		last = result
	}
	if pending {
		return true
	}
	if !desired.sameEntry(r) {
		v := p.routeVerdict(last)
		v.message = "the configured route is not in use yet, since it failed the probe: " + v.message
		p.setCondition(v)
		p.shown = StateProbing
	}
	return false
}

// leavesDirect reports whether a Cluster that only agents lead to gets its first route. It
// is not probed before: the direct one leads nowhere, and no agent may be there yet.
func (p *planner) leavesDirect(r, desired route) bool {
	return p.cluster.Tunnel && !r.leadsThrough() && desired.leadsThrough()
}

// routeIsDown reports whether the route in use fails for a plain client-go. Only then it
// may be replaced by one that only our own clients can take.
func (p *planner) routeIsDown() (down, ok bool) {
	result, ok := p.resultInUse()
	return ok && !result.Report.OK() && result.Failures >= failureThreshold, ok
}

// switchTo writes the attempt. result is nil if it was not probed.
func (p *planner) switchTo(r route, a attempt, result *outcome) bool {
	value, err := p.attemptValue(a)
	if err != nil {
		p.setCondition(notReady(ReasonNoCA, err.Error()))
		return false
	}
	desired, moved := a.route, !a.route.sameEntry(r)
	if p.acceptRoute(desired); moved {
		p.records.Inputs = p.inputs
		p.recordSwitch(r, desired, result != nil)
	}
	if a.identity.needed {
		p.addEvent(corev1.EventTypeNormal, ReasonRotated, "the CA of the Secret "+p.target.Name+" is that of "+p.cluster.Name+"-ca now")
	}
	if result != nil {
		p.setCondition(p.refineVerdict(p.routeVerdict(*result)))
	}
	p.updateTarget(value)
	return true
}

// recordSwitch keeps the routes to fall back to.
func (p *planner) recordSwitch(r, desired route, probed bool) {
	if p.records.Failed != routeDigest(desired) {
		p.records.Failed, p.records.Failures, p.records.RetryAt = "", 0, time.Time{}
	}
	message := "the route is " + desired.String()
	if probed {
		message += ", and passed the probe"
	}
	p.addEvent(corev1.EventTypeNormal, ReasonSwitched, message)
	if r.withoutUser().sameEntry(desired.withoutUser()) {
		if p.records.State != StateGrace {
			p.records.State = StateReady
		}
		return
	}
	p.records.previous = p.routesBefore(r, desired)
	p.records.State, p.records.Since = StateReady, time.Time{}
	if probed {
		p.records.State, p.records.Since = StateGrace, p.config.Now.UTC().Truncate(timeUnit)
	}
}

// maxPrevious is how many routes the Secret keeps to fall back to.
const maxPrevious = 3

// routesBefore returns the routes to fall back to, the newest first, after a switch from r
// to desired. A route that is still in its grace period is one of them if it works, and
// those before it stay.
func (p *planner) routesBefore(r, desired route) []route {
	before := []route{r}
	if p.records.State == StateGrace {
		before = slices.Concat(before, p.records.previous)
		if !p.healthy {
			before = before[1:]
		}
	}
	before = slices.DeleteFunc(before, desired.sameEntry)
	return before[:min(len(before), maxPrevious)]
}

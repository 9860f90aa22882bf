package provider

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// attempt is a kubeconfig that may take the place of the one in use.
type attempt struct {
	route    route
	identity identity
}

// value is the kubeconfig; new credentials are made for it at each call.
func (p *planner) value(a attempt) ([]byte, error) {
	value, err := p.base.with(a.route)
	if err != nil || !a.identity.needed {
		return value, err
	}
	return p.replace(value, a.identity)
}

// key names the attempt, whatever credentials are made for it.
func (p *planner) key(a attempt) (string, error) {
	value, err := p.base.with(a.route)
	if err != nil || !a.identity.needed {
		return digest(value), err
	}
	return digest(value, a.identity.ca, []byte(fmt.Sprint(a.identity.sign))), nil
}

// attempts are the ways to what is configured, the best one first. Where the
// CA changed too, and the API server does not know of it yet, the route need
// not wait for it.
func (p *planner) attempts(r, desired route) []attempt {
	var all []attempt
	id := p.identity()
	if id.needed {
		all = append(all, attempt{desired, id})
	}
	if !desired.same(r) {
		all = append(all, attempt{desired, identity{}})
	}
	return all
}

// advance leads to the configured route and the CA. It returns false if there
// is nothing to do now.
func (p *planner) advance(r, desired route) bool {
	if !desired.same(r) && p.heldOff(desired) {
		desired = r
	}
	pending := false
	var last Result
	for _, a := range p.attempts(r, desired) {
		if p.settings.NoProbe {
			return p.switchTo(r, a, nil)
		}
		key, err := p.key(a)
		if err != nil {
			last = broken(err)
			continue
		}
		result, ok := p.ask(key, p.retry, func() ([]byte, error) { return p.value(a) })
		switch {
		case !ok:
			pending = true
		case result.Report.OK() && !pending:
			return p.switchTo(r, a, &result)
		}
		last = result
	}
	if pending {
		return true
	}
	if !desired.same(r) {
		v := judge(last)
		v.message = "the configured route is not in use yet, since it failed the probe: " + v.message
		p.say(v)
		p.shown = StateProbing
	}
	return false
}

// switchTo writes the attempt. result is nil if nothing was asked.
func (p *planner) switchTo(r route, a attempt, result *Result) bool {
	value, err := p.value(a)
	if err != nil {
		p.say(waiting(ReasonNoCA, err.Error()))
		return false
	}
	desired, moved := a.route, !a.route.same(r)
	if p.remember(desired); moved {
		p.records.Inputs = p.inputs
		p.moved(r, desired, result != nil)
	}
	if a.identity.needed {
		p.event(corev1.EventTypeNormal, ReasonRotated, "the CA of the Secret "+p.target.Name+" is that of "+p.cluster.Name+"-ca now")
	}
	if result != nil {
		p.say(p.remark(judge(*result)))
	}
	p.write(value)
	return true
}

// moved keeps the route r before desired. One that is still on trial is none
// to go back to.
func (p *planner) moved(r, desired route, probed bool) {
	if p.records.Failed != digestOf(desired) {
		p.records.Failed, p.records.Failures, p.records.RetryAt = "", 0, time.Time{}
	}
	message := "the route is " + p.route.String()
	if probed {
		message += ", and passed the probe"
	}
	p.event(corev1.EventTypeNormal, ReasonSwitched, message)
	if r.withoutUser().same(desired.withoutUser()) {
		if p.records.State != StateGrace {
			p.records.State = StateReady
		}
		return
	}
	if p.records.State != StateGrace || p.records.previous == nil || p.records.previous.same(desired) {
		p.records.previous = &r
	}
	p.records.State, p.records.Since = StateReady, time.Time{}
	if probed {
		p.records.State, p.records.Since = StateGrace, p.config.Now.UTC().Truncate(timeUnit)
	}
}

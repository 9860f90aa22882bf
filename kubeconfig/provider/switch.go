package provider

import (
	"bytes"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/kubeconfig"
)

const (
	// often is how many probes a route gets in an interval, in its grace period
	// and after a failure.
	often = 6
	// failuresToFall in a row end a route's grace period, and its condition's
	// True.
	failuresToFall = 2
	maxHoldOff     = 24 * time.Hour
)

// restored is the route that was accepted last, on the server that is there:
// of what others write, the server stays unless it is rewritten.
func (p *planner) restored() route {
	current := p.base.current
	current.Endpoint = p.endpointOf(current.Server)
	a := p.records.applied
	if a == nil {
		return current
	}
	return p.onServer(*a, current)
}

func (p *planner) onServer(r, current route) route {
	switch {
	case r.Server == current.Server:
	case r.Natural == "":
		r.Server, r.Endpoint = current.Server, current.Endpoint
	default:
		r.Natural, r.Endpoint = current.Server, current.Endpoint
	}
	return r
}

// restore writes at once what needs no probe: the accepted route where it was
// lost, credentials past half of their life, the mark of adoption.
func (p *planner) restore(r route) bool {
	value, err := p.base.with(r)
	adopt := p.settings.Mode == Own && !p.managed
	rotate := err == nil && p.rotationDue()
	if rotate {
		value, err = p.renew(value)
	}
	if err != nil {
		p.say(waiting(ReasonCorrupted, err.Error()))
		return true
	}
	if !adopt && !rotate && bytes.Equal(value, p.target.Data[kubeconfig.SecretKey]) {
		return false
	}
	if adopt {
		p.remember(r)
		p.event(corev1.EventTypeNormal, ReasonAdopted, "the Secret "+p.target.Name+" is kept up to date from now on")
	}
	if rotate {
		p.event(corev1.EventTypeNormal, ReasonRotated, "the client certificate in the Secret "+p.target.Name+" was renewed")
	}
	if !p.follows && !p.base.current.same(r) {
		p.event(corev1.EventTypeNormal, ReasonReapplied, "the Secret "+p.target.Name+" had lost the route, and has it again")
	}
	p.write(value)
	return true
}

// remember makes r the accepted route, and the first one the original.
func (p *planner) remember(r route) {
	if p.records.original == nil && !p.records.Created && !p.follows {
		original := p.base.current
		original.Endpoint = p.endpointOf(original.Server)
		p.records.original = &original
	}
	if p.records.applied = &r; p.records.Phase == "" {
		p.records.Phase = PhaseReady
	}
}

// rollBack does what AnnotationRollback asks for, and holds the route then.
func (p *planner) rollBack(r route, hold *bool) bool {
	if _, asked := p.cluster.Annotations[AnnotationRollback]; !asked || !p.managed {
		return false
	}
	if p.records.Phase == PhaseRolledBack {
		*hold = true
		return false
	}
	if p.records.previous == nil {
		return false
	}
	previous := p.before()
	value, err := p.base.with(previous)
	if err != nil {
		return false
	}
	p.records.applied, p.records.previous, p.records.Phase, p.records.Inputs = &previous, &r, PhaseRolledBack, ""
	p.event(corev1.EventTypeNormal, ReasonRolledBack, "the previous route is in use again, as the annotation "+AnnotationRollback+" asks for")
	p.write(value)
	return true
}

// before is the previous route. A second Secret's server is that of the first.
func (p *planner) before() route {
	r := *p.records.previous
	if p.follows {
		r = p.onServer(r, p.base.current)
	}
	return r
}

// inGrace watches a new route, and falls back from it.
func (p *planner) inGrace(r route) bool {
	if p.records.Phase != PhaseGrace {
		return false
	}
	left := p.records.Since.Add(p.settings.Grace).Sub(p.config.Now)
	if p.settings.NoProbe || p.records.previous == nil {
		p.records.Phase = PhaseReady
		return false
	}
	result, ok := p.inUse()
	switch {
	case !ok:
		return true
	case result.Report.OK():
		if left <= 0 {
			p.records.Phase = PhaseReady
		} else {
			p.after(left)
		}
		return false
	case result.Failures < failuresToFall:
		return false
	}
	previous := p.before()
	value, err := p.base.with(previous)
	if err != nil {
		return false
	}
	other, ok := p.ask(digest(value), p.often, func() ([]byte, error) { return value, nil })
	switch {
	case !ok:
		return true
	case !other.Report.OK():
		return false // the API server is down, or the network here
	}
	p.fallBack(r, previous, value, result)
	return true
}

func (p *planner) fallBack(r, previous route, value []byte, result Result) {
	if name := digestOf(r); p.records.Failed != name {
		p.records.Failed, p.records.Failures = name, 0
	}
	hold := min(p.settings.Grace<<min(p.records.Failures, 20), maxHoldOff)
	if hold <= 0 {
		hold = maxHoldOff
	}
	p.records.Failures++
	p.records.RetryAt = p.config.Now.Add(hold).UTC().Truncate(timeUnit)
	p.records.applied, p.records.previous = &previous, nil
	p.records.Phase, p.records.Inputs = PhaseFellBack, ""
	p.say(waiting(ReasonFellBack, "the configured route failed within its grace period, and the previous one is in use. "+
		"It is tried again later, or when the configuration changes. It failed with: "+judge(result).message))
	p.write(value)
}

// digestOf names a route by what the entry has of it.
func digestOf(r route) string {
	return digest([]byte(r.Server), []byte(r.ProxyURL), []byte(r.TLSServerName), r.Extension)
}

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
		p.shown = PhaseProbing
	}
	return false
}

// heldOff says whether the route fell back, and is not to be tried now.
func (p *planner) heldOff(desired route) bool {
	left := p.records.RetryAt.Sub(p.config.Now)
	if p.records.Failed != digestOf(desired) || left <= 0 {
		return false
	}
	p.after(left)
	v := waiting(ReasonFellBack, "the configured route failed within its grace period, and the previous one is in use")
	if c := p.records.condition; c != nil && c.Reason == ReasonFellBack {
		v.message = c.Message
	}
	p.say(v)
	return true
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
		if p.records.Phase != PhaseGrace {
			p.records.Phase = PhaseReady
		}
		return
	}
	if p.records.Phase != PhaseGrace || p.records.previous == nil || p.records.previous.same(desired) {
		p.records.previous = &r
	}
	p.records.Phase, p.records.Since = PhaseReady, time.Time{}
	if probed {
		p.records.Phase, p.records.Since = PhaseGrace, p.config.Now.UTC().Truncate(timeUnit)
	}
}

// ask returns the answer for a kubeconfig, or has it probed. age is how long an
// answer is good.
func (p *planner) ask(key string, age func(Result) time.Duration, value func() ([]byte, error)) (Result, bool) {
	if r, ok := p.config.Results[key]; ok {
		if left := r.At.Add(age(r)).Sub(p.config.Now); left > 0 {
			p.after(left)
			return r, true
		}
	}
	text, err := value()
	if err != nil {
		p.after(p.config.interval())
		return broken(err), true
	}
	config, err := clientcmd.Load(text)
	if err != nil { // which quotes
		p.after(p.config.interval())
		return broken(errNotYAML), true
	}
	p.action.Probe = append(p.action.Probe, Candidate{Key: key, Config: config})
	return Result{}, false
}

// broken is the answer for a kubeconfig that is none.
func broken(err error) Result {
	return Result{Failures: failuresToFall, Report: kubeconfig.Report{
		Steps: []kubeconfig.Step{{Phase: kubeconfig.PhaseConfig, Cause: err.Error(), Err: err}},
	}}
}

// retry is how long an answer is good: one that was bad shorter, at first.
func (p *planner) retry(r Result) time.Duration {
	if r.Report.OK() {
		return p.config.interval()
	}
	return p.config.interval() / often * time.Duration(min(max(r.Failures, 1), often))
}

func (p *planner) often(Result) time.Duration { return p.config.interval() / often }

// inUse is the answer for what is in the Secret.
func (p *planner) inUse() (Result, bool) {
	age := p.retry
	if p.records.Phase == PhaseGrace {
		age = p.often
	}
	value := p.target.Data[kubeconfig.SecretKey]
	return p.ask(digest(value), age, func() ([]byte, error) { return value, nil })
}

// health is what is to be said of the route in use; false if it is being
// probed. One failure does not make it bad.
func (p *planner) health() (verdict, bool) {
	if p.settings.NoProbe {
		return verdict{metav1.ConditionUnknown, ReasonNotProbed, "the annotation " + AnnotationProbe + " is off"}, true
	}
	result, ok := p.inUse()
	if !ok {
		return verdict{}, false
	}
	v, before := judge(result), p.records.condition
	if before == nil {
		before = p.cluster.Condition
	}
	if v.status == metav1.ConditionFalse && result.Failures < failuresToFall && before != nil && before.Status == metav1.ConditionTrue {
		v = verdict{before.Status, before.Reason, before.Message}
	}
	return v, true
}

// withoutUser is the route without its credentials.
func (r route) withoutUser() route {
	if u, err := url.Parse(r.ProxyURL); err == nil {
		u.User = nil
		r.ProxyURL = u.String()
	}
	return r
}

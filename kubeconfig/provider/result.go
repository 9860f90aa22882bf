package provider

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

const (
	// probesPerInterval is how many probes a route gets in an interval: in its grace
	// period, and after a failure.
	probesPerInterval = 6
	// failureThreshold is how many failures in a row make a route fall back within
	// its grace period, or make its condition False.
	failureThreshold = 2
)

// probeResult returns the result for a kubeconfig. Without a fresh one, it asks for a
// probe and returns false. age is how long a result is valid.
func (p *planner) probeResult(c Candidate, age func(Result) time.Duration, value func() ([]byte, error)) (Result, bool) {
	if r, ok := p.config.Results[c.Key]; ok {
		if left := r.At.Add(age(r)).Sub(p.config.Now); left > 0 {
			p.scheduleAfter(left)
			return r, true
		}
	}
	text, err := value()
	if err != nil {
		p.scheduleAfter(p.config.probeInterval())
		return invalidResult(err), true
	}
	if c.Config, _, err = entry.LoadForeignRoute(text, c.Extension); err != nil {
		var invalid *kubeconfig.FieldError
		if !errors.As(err, &invalid) {
			err = fmt.Errorf("the kubeconfig %w", err)
		}
		p.scheduleAfter(p.config.probeInterval())
		return invalidResult(err), true
	}
	p.action.Probe = append(p.action.Probe, c)
	return Result{}, false
}

// outcome is the answer to what is asked of a route.
type outcome struct {
	Result          // of a plain client-go
	extended bool   // it fails, and our own clients get to the API server by the extension
	refused  string // it fails, and why our own clients can't take the extension
}

// probeRoute is probeResult for a kubeconfig with the route r. Only if a plain client-go fails
// does it ask for the way that the extension shows.
func (p *planner) probeRoute(r route, key string, age func(Result) time.Duration, value func() ([]byte, error)) (outcome, bool) {
	plain, ok := p.probeResult(Candidate{Key: key}, age, value)
	if !ok || plain.Report.OK() || len(r.Extension) == 0 {
		return outcome{Result: plain}, ok
	}
	own, ok := p.probeResult(Candidate{Key: hashParts([]byte(key), []byte("extension")), Extension: true, Secret: p.secretFor(r)}, age, value)
	o := outcome{Result: plain, extended: ok && own.Report.OK()}
	if step := own.Report.Failed(); ok && step != nil && step.Phase == probe.PhaseConfig {
		o.refused = step.Cause
	}
	return o, ok
}

// invalidResult is the result for a kubeconfig that can't be read.
func invalidResult(err error) Result {
	return Result{Failures: failureThreshold, Report: probe.Report{
		Steps: []probe.Step{{Phase: probe.PhaseConfig, Cause: err.Error(), Err: err}},
	}}
}

// resultLifetime returns how long a result is valid. The first failures are valid for
// a shorter time than a success.
func (p *planner) resultLifetime(r Result) time.Duration {
	if r.Report.OK() {
		return p.config.probeInterval()
	}
	return p.config.probeInterval() / probesPerInterval * time.Duration(min(max(r.Failures, 1), probesPerInterval))
}

func (p *planner) graceResultLifetime(Result) time.Duration {
	return p.config.probeInterval() / probesPerInterval
}

// resultInUse returns the result for the Secret's kubeconfig.
func (p *planner) resultInUse() (outcome, bool) {
	age := p.resultLifetime
	if p.records.State == StateGrace {
		age = p.graceResultLifetime
	}
	held := p.heldRoute(p.base.current)
	return p.probeRoute(held, p.base.probeKey(held), age, func() ([]byte, error) { return p.target.Data[kubeconfig.SecretKey], nil })
}

// routeHealth returns the condition of the route in use; false while it is being
// probed. One failure does not make it False.
func (p *planner) routeHealth() (verdict, bool) {
	if p.settings.NoProbe {
		return verdict{metav1.ConditionUnknown, ReasonNotProbed, p.settings.layers.errorf(AnnotationProbe, "the probes are off").Error()}, true
	}
	result, ok := p.resultInUse()
	if !ok {
		return verdict{}, false
	}
	v, before := p.routeVerdict(result), cmp.Or(p.records.condition, p.cluster.Condition)
	if !result.Report.OK() && result.Failures < failureThreshold && before != nil && before.Status == metav1.ConditionTrue {
		v = verdict{before.Status, before.Reason, before.Message}
	}
	return v, true
}

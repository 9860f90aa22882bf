package provider

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

const (
	// probesPerInterval is how many probes a route gets in an interval, in its grace period
	// and after a failure.
	probesPerInterval = 6
	// failureThreshold in a row end a route's grace period, and its condition's
	// True.
	failureThreshold = 2
)

// probeResult returns the answer for a kubeconfig, or has it probed. age is how long an
// answer is good.
func (p *planner) probeResult(key string, age func(Result) time.Duration, value func() ([]byte, error)) (Result, bool) {
	if r, ok := p.config.Results[key]; ok {
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
	config, err := clientcmd.Load(text)
	if err != nil { // which quotes
		p.scheduleAfter(p.config.probeInterval())
		return invalidResult(errNotYAML), true
	}
	p.action.Probe = append(p.action.Probe, Candidate{Key: key, Config: config})
	return Result{}, false
}

// invalidResult is the answer for a kubeconfig that is none.
func invalidResult(err error) Result {
	return Result{Failures: failureThreshold, Report: probe.Report{
		Steps: []probe.Step{{Phase: probe.PhaseConfig, Cause: err.Error(), Err: err}},
	}}
}

// resultLifetime is how long an answer is good: one that was bad shorter, at first.
func (p *planner) resultLifetime(r Result) time.Duration {
	if r.Report.OK() {
		return p.config.probeInterval()
	}
	return p.config.probeInterval() / probesPerInterval * time.Duration(min(max(r.Failures, 1), probesPerInterval))
}

func (p *planner) graceResultLifetime(Result) time.Duration {
	return p.config.probeInterval() / probesPerInterval
}

// resultInUse is the answer for what is in the Secret.
func (p *planner) resultInUse() (Result, bool) {
	age := p.resultLifetime
	if p.records.State == StateGrace {
		age = p.graceResultLifetime
	}
	value := p.target.Data[kubeconfig.SecretKey]
	return p.probeResult(hashParts(value), age, func() ([]byte, error) { return value, nil })
}

// routeHealth is what is to be said of the route in use; false if it is being
// probed. One failure does not make it bad.
func (p *planner) routeHealth() (verdict, bool) {
	if p.settings.NoProbe {
		return verdict{metav1.ConditionUnknown, ReasonNotProbed, "the annotation " + AnnotationProbe + " is off"}, true
	}
	result, ok := p.resultInUse()
	if !ok {
		return verdict{}, false
	}
	v, before := probeVerdict(result), p.records.condition
	if before == nil {
		before = p.cluster.Condition
	}
	if v.status == metav1.ConditionFalse && result.Failures < failureThreshold && before != nil && before.Status == metav1.ConditionTrue {
		v = verdict{before.Status, before.Reason, before.Message}
	}
	return v, true
}

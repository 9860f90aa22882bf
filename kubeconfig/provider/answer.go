package provider

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

const (
	// often is how many probes a route gets in an interval, in its grace period
	// and after a failure.
	often = 6
	// failuresToFall in a row end a route's grace period, and its condition's
	// True.
	failuresToFall = 2
)

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
	return Result{Failures: failuresToFall, Report: probe.Report{
		Steps: []probe.Step{{Phase: probe.PhaseConfig, Cause: err.Error(), Err: err}},
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
	if p.records.State == StateGrace {
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

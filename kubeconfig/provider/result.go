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
func (d *decider) probeResult(c Candidate, age func(Result) time.Duration, value func() ([]byte, error)) (Result, bool) {
	if r, ok := d.config.Results[c.Key]; ok {
		if left := r.At.Add(age(r)).Sub(d.config.Now); left > 0 {
			d.scheduleAfter(left)
			return r, true
		}
	}
	text, err := value()
	if err != nil {
		d.scheduleAfter(d.config.probeInterval())
		return invalidResult(err), true
	}
	if c.Config, _, err = entry.LoadForeignRoute(text, c.Extension); err != nil {
		var invalid *kubeconfig.FieldError
		if !errors.As(err, &invalid) {
			err = fmt.Errorf("the kubeconfig %w", err)
		}
		d.scheduleAfter(d.config.probeInterval())
		return invalidResult(err), true
	}
	d.probes = append(d.probes, c)
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
func (d *decider) probeRoute(r route, key string, age func(Result) time.Duration, value func() ([]byte, error)) (outcome, bool) {
	plain, ok := d.probeResult(Candidate{Key: key}, age, value)
	if !ok || plain.Report.OK() || len(r.Extension) == 0 {
		return outcome{Result: plain}, ok
	}
	own, ok := d.probeResult(Candidate{Key: hashParts([]byte(key), []byte("extension")), Extension: true, Secret: d.secretFor(r)}, age, value)
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
func (d *decider) resultLifetime(r Result) time.Duration {
	if r.Report.OK() {
		return max(d.config.probeInterval(), minLifetime)
	}
	return max(d.config.probeInterval()/probesPerInterval*time.Duration(min(max(r.Failures, 1), probesPerInterval)), minLifetime)
}

// minLifetime is how long a result is valid at least: an object that changes all the time is planned once
// in a second, and must find the answer that it has asked for.
const minLifetime = 3 * time.Second

func (d *decider) graceResultLifetime(Result) time.Duration {
	return max(d.config.probeInterval()/probesPerInterval, minLifetime)
}

// resultInUse returns the result for the Secret's kubeconfig.
func (d *decider) resultInUse() (outcome, bool) {
	age := d.resultLifetime
	if d.records.State == StateGrace {
		age = d.graceResultLifetime
	}
	held := d.heldRoute(d.base.current)
	return d.probeRoute(held, d.base.probeKey(held), age, func() ([]byte, error) { return d.target.value(), nil })
}

// routeHealth returns the condition of the route in use; false while it is being
// probed. One failure does not make it False.
func (d *decider) routeHealth() (verdict, bool) {
	if d.settings.NoProbe {
		return verdict{metav1.ConditionUnknown, ReasonNotProbed, d.settings.layers.errorf(AnnotationProbe, "the probes are off").Error()}, true
	}
	result, ok := d.resultInUse()
	if !ok {
		return verdict{}, false
	}
	v, before := d.routeVerdict(result), cmp.Or(d.records.condition, d.cluster.Condition)
	if !result.Report.OK() && result.Failures < failureThreshold && before != nil && before.Status == metav1.ConditionTrue {
		v = verdict{before.Status, before.Reason, before.Message}
	}
	return v, true
}

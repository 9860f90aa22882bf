package provider

import (
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// ConditionRoute is the type of Action.Condition, and of the one in a Secret's
// [AnnotationConditions]: whether the configured route is in use, and reaches
// the API server. It is Unknown if nothing was probed.
const ConditionRoute = "RouteReady"

// Reasons of the condition, and of Events. Where a probe failed, the reason is
// its phase: DNSFailed, TCPFailed, ProxyTLSFailed, ProxyAuthFailed,
// ConnectFailed, TLSFailed, AuthFailed, ReadyzFailed, ConfigFailed.
const (
	ReasonReady           = "Ready"
	ReasonRolledBack      = "RolledBack"             // AnnotationRollback: the route in use is the one before
	ReasonCausewayOnly    = "ReadyForCausewayOnly"   // a plain client-go fails, and our own clients get there by the kubeconfig's extension
	ReasonKept            = "RouteKept"              // nothing names a route any more, and the last one stays
	ReasonFellBack        = "FellBack"               // the configured route failed within its grace period
	ReasonNotProbed       = "NotProbed"              // AnnotationProbe is "off"
	ReasonInvalidSettings = "InvalidSettings"        // an annotation, or the Secret that route-secret names
	ReasonSecretRefused   = "RouteSecretRefused"     // the Secret that route-secret names is for another proxy, or another Cluster
	ReasonSecretUnbound   = "RouteSecretUnbound"     // that Secret doesn't say what proxy it is for, and is used for now
	ReasonManagedByOther  = "ManagedByOther"         // the Secret has another's AnnotationManager
	ReasonNotOurs         = "NotOurs"                // the Secret is a user's
	ReasonNoEndpoint      = "WaitingForEndpoint"     // the Cluster has no endpoint yet
	ReasonNoSecret        = "WaitingForSecret"       // the control plane makes it, or the tunnel's server
	ReasonNoControlPlane  = "WaitingForControlPlane" // a ClusterClass makes it, and it makes the Secret
	ReasonNoCA            = "CAMissing"              // there is no <cluster>-ca, or no key in it, to make credentials with
	ReasonCorrupted       = "Corrupted"              // the kubeconfig can't be read
	ReasonNoPrevious      = "NoPreviousRoute"        // AnnotationRollback, and nothing to roll back to
	ReasonOff             = "Off"
	ReasonDeleting        = "Deleting"    // nothing is made for a Cluster that goes away
	ReasonWriteFailed     = "WriteFailed" // the Secret could not be written, see WriteFailed
	ReasonRivalWriter     = "RivalWriter" // another program drops the route again and again

	ReasonCreated    = "KubeconfigCreated"
	ReasonAdopted    = "KubeconfigAdopted"
	ReasonRebuilt    = "KubeconfigRebuilt"
	ReasonRotated    = "KubeconfigRotated"
	ReasonSwitched   = "RouteSwitched"
	ReasonReapplied  = "RouteReapplied"
	ReasonHandedBack = "HandedBack"
	ReasonDeleted    = "SecondaryDeleted"
)

const keptMessage = "No annotation or flag names the route any more, and the last one is kept. " +
	"To have the API server reached directly, set " + AnnotationProxyURL + " to " + Direct + ", or " + AnnotationMode + " to off"

// reasonOf returns the phase in the form of a condition's reason.
func reasonOf(phase probe.Phase) string {
	reason := ""
	for word := range strings.FieldsSeq(string(phase)) {
		capitals := 1
		if len(word) == 3 { // DNS, TCP, TLS
			capitals = 3
		}
		reason += strings.ToUpper(word[:capitals]) + word[capitals:]
	}
	return reason + "Failed"
}

// verdict is a condition without its time.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// Error makes a verdict the error that leads to it.
func (v verdict) Error() string { return v.message }

// notReady returns a condition that is False.
func notReady(reason, message string) verdict {
	return verdict{metav1.ConditionFalse, reason, message}
}

// probeVerdict turns the result of a probe into a condition.
func probeVerdict(r Result) verdict {
	step := r.Report.Failed()
	switch {
	case r.Report.OK():
		return verdict{metav1.ConditionTrue, ReasonReady, "the API server is reached by the route"}
	case step == nil:
		return verdict{metav1.ConditionUnknown, ReasonNotProbed, "the probe gave no answer"}
	}
	message := step.Cause
	if step.Advice != "" {
		message = addSentence(message, step.Advice)
	}
	return verdict{metav1.ConditionFalse, reasonOf(step.Phase), message}
}

// addSentence appends more to a message, which may end with a full stop.
func addSentence(message, more string) string {
	return strings.TrimSuffix(message, ".") + ". " + more
}

// routeVerdict turns the outcome of a route into a condition.
func (d *decider) routeVerdict(o outcome) verdict {
	v := probeVerdict(o.Result)
	if local, program := d.base.localUser(); local != "" && (o.Report.OK() || v.reason == reasonOf(probe.PhaseAuth)) {
		v.message = addSentence(v.message, "The probe asked without credentials: "+local+" names a ")
		if !program {
			v.message += "file, which is not used here"
		} else if v.message += "program, which Cluster API's controllers refuse, too: want a token, or client-certificate-data and client-key-data"; o.Report.OK() {
			v.status, v.reason = metav1.ConditionFalse, reasonOf(probe.PhaseConfig)
		}
	}
	if o.refused != "" {
		v.message = addSentence(v.message, "Nor can programs that use package connect take the route: "+o.refused)
	}
	if o.extended {
		v.reason = ReasonCausewayOnly
		v.message = "only programs that use package connect reach the API server by this route; kubectl and Cluster API's controllers fail: " + v.message
	}
	return v
}

var numbers = regexp.MustCompile(`\p{Nd}+`)

// withoutNumbers replaces each number by one #.
func withoutNumbers(text string) string { return numbers.ReplaceAllString(text, "#") }

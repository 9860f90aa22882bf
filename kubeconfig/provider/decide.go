package provider

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/owner"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
)

// decision is what is to be done, and why. The zero value is nothing.
type decision struct {
	deed    deed
	about   *stored    // the Secret that is written
	value   []byte     // its kubeconfig
	records records    // what to remember about it
	shown   RouteState // for AnnotationPhase; records.State if empty
	verdict *verdict   // for the condition; nil if there is nothing to say
	events  []Event
	probes  []Candidate // a write comes before them
	after   time.Duration
}

// deed is what to do with a Secret.
type deed int

const (
	deedNone     deed = iota
	deedWrite         // the kubeconfig and the memory; the Secret is created if there is none
	deedRemember      // the memory alone
	deedHandBack      // the Secret is another's again
	deedForget        // the memory of a Secret that nobody manages any more
	deedTakeOver      // what a restore has left
	deedDelete
)

// decider makes a decision.
type decider struct {
	*state
	decision

	target  *stored   // the Secret to write
	managed bool      // it is this provider's
	fault   error     // in the settings, or in the Secret that they name
	base    *document // has the credentials and the natural server
	follows bool      // base is the kubeconfig of another Secret

	inputs  string // the configured route's, see inputsOf
	direct  bool   // the settings say that the API server is reached directly
	kept    bool   // the settings name no route any more, and the accepted one stays
	cleared bool   // the records had credentials of a Secret that is refused
	healthy bool   // in the grace period: the route works
}

func decide(s *state) decision {
	d := &decider{state: s}
	switch mode := s.settings.Mode; {
	case mode == Off: // one Secret in each plan
		if !d.handBack(&d.first) && !d.dropSecondary() && d.cluster.Condition != nil {
			d.say(verdict{metav1.ConditionUnknown, ReasonOff, "the mode is off"})
		}
	case s.invalid == nil && mode == Secondary && s.replaces(&s.second, &s.first) && d.handBack(&s.first):
	case s.invalid == nil && mode != Secondary && (s.replaces(&s.first, &s.second) || !s.settings.namesRoute()) && d.dropSecondary():
	default:
		d.decideRoute()
		return d.guarded()
	}
	return d.decision
}

// errReplaced is why nothing but the accepted route is written into a Secret.
var errReplaced = errors.New("another Secret is to have the route")

// guarded is the decision while one Secret is to take the other's place: until it does, the other keeps its
// route, and comes first.
func (d *decider) guarded() decision {
	other, mode := &d.first, Decorate
	if d.settings.Mode != Secondary {
		other, mode = &d.second, Secondary
	}
	if !d.hasAccepted(other) {
		return d.decision
	}
	s := *d.state
	s.invalid, s.settings.Mode = cmp.Or(s.invalid, errReplaced), mode
	g := &decider{state: &s}
	g.decideRoute()
	rival := g.verdict != nil && g.verdict.reason == ReasonRivalWriter
	switch {
	case g.deed == deedWrite && !bytes.Equal(g.value, other.value()):
		if !rival {
			g.verdict = d.verdict
		}
		return g.decision
	case rival:
		d.say(*g.verdict)
		d.scheduleAfter(g.after)
	}
	return d.decision
}

func (d *decider) decideRoute() {
	d.target = &d.first
	if d.settings.Mode == Secondary {
		d.target = &d.second
	}
	d.records, d.managed, d.fault = d.target.records, d.isOurs(d.target), cmp.Or(d.invalid, d.routeErr)
	err := d.checkTarget()
	if err == nil {
		d.clearRefused()
		if err = d.fault; err == nil || d.managed {
			err = d.decideManaged()
		}
	}
	if err != nil {
		d.say(verdictOf(err))
	}
}

// say makes v the condition. What is said last counts.
func (d *decider) say(v verdict) { d.verdict = &v }

func (d *decider) tell(kind, reason, message string) {
	d.events = append(d.events, Event{Type: kind, Reason: reason, Message: message})
}

// checkTarget refuses a Secret that must not be changed.
func (d *decider) checkTarget() error {
	name, secret := d.target.name, d.target.secret
	switch {
	case d.target.taken:
		return notReady(ReasonNotOurs, "the Secret "+RecordsName(name)+" is there, and is not this Cluster's: if no other Cluster's is in use by that name, delete it; or name another Secret in "+AnnotationSecondary)
	case secret == nil || d.managed:
		return nil
	case d.target.manager != "":
		return notReady(ReasonManagedByOther, "the Secret "+name+" is managed by another provider: see the annotation "+AnnotationManager+", its own or that of the Secret "+RecordsName(name))
	case d.settings.Mode == Secondary:
		return notReady(ReasonNotOurs, "the Secret "+name+" is there, and was not made by this provider: name another one in "+AnnotationSecondary)
	case d.settings.Mode == Own && !d.settings.explicit && secret.Type == corev1.SecretTypeOpaque && !d.records.Created:
		return notReady(ReasonNotOurs, "the Secret "+name+" is a user's (type Opaque): to have it adopted, set "+AnnotationMode+" to own")
	}
	return nil
}

// decideManaged finds the kubeconfig to work on. Without one it creates the Secret, or says
// what is missing for that.
func (d *decider) decideManaged() error {
	source := d.target
	if d.settings.Mode == Secondary && d.first.secret != nil {
		source, d.follows = &d.first, true
		if d.isOurs(source) { // until there is a second Secret; then the first is handed back
			source = d.handedBack()
		}
	}
	d.base = source.doc
	switch {
	case source.err == nil && (d.base == nil || d.target.secret == nil):
		return d.createSecret()
	case source.err == nil:
		return d.reconcileRoute()
	// What client-go reads is kept. A text that is too large was not looked at: it may be good.
	case d.managed && !d.follows && !errors.Is(source.err, entry.ErrText) && !isReadable(source.value()):
		return d.rebuildKubeconfig(source.err)
	}
	return fmt.Errorf("%s: %w", source.name, source.err)
}

// isReadable reports whether client-go makes something of the kubeconfig.
func isReadable(value []byte) bool {
	config, err := entry.Load(value)
	if err == nil {
		_, err = entry.FollowContext(config)
	}
	return err == nil
}

// scheduleAfter asks for the next plan after t at the latest.
func (d *decider) scheduleAfter(t time.Duration) {
	if t = max(t, timeUnit); d.after == 0 || t < d.after {
		d.after = t
	}
}

// write has the kubeconfig and the memory written, if that changes them.
func (d *decider) write(value []byte) {
	deed := deedWrite
	switch {
	case !bytes.Equal(value, d.target.value()):
		if !d.mayRepair() {
			return
		}
	case d.managed && managerOf(d.target.secret) == "": // another program takes the annotations
		if left := d.records.RepairedAt.Add(repairReset).Sub(d.config.Now); left > 0 {
			d.scheduleAfter(left)
			deed = deedRemember
		} else {
			d.records.Repairs, d.records.RepairedAt = 0, d.config.Now.UTC()
		}
	}
	d.deed, d.about, d.value = deed, d.target, value
}

// reconcileRoute keeps the accepted route in the Secret, and then moves on to the
// configured one. The first step that has something to do ends the plan.
func (d *decider) reconcileRoute() error {
	desired, err := d.desiredRoute()
	d.fault = cmp.Or(d.fault, err)
	restored := d.acceptedRoute()
	if d.fault == nil && (desired.leadsThrough() && !desired.losesWay(restored) || d.direct) && d.usesConfigured() && d.heldRoute(d.base.current).sameEntry(desired) {
		restored = desired // whatever the records say
	}
	if done, err := d.restoreRoute(restored); done || err != nil {
		return err
	}
	if d.records.Repaired == noVersion { // it was made anew
		d.records.Repaired = ""
		d.write(d.target.value())
		return nil
	}
	if d.fault == nil && desired.losesWay(restored) && !d.direct {
		desired, d.kept, d.inputs = restored, true, ""
	}
	if d.rollBack(restored) || d.watchGrace(restored) {
		return nil
	}
	if d.fault != nil || d.managed && d.rolledBack() {
		desired = restored
	}
	if !d.tryAttempts(restored, desired) {
		d.settle(restored, desired)
	}
	return nil
}

// settle says how the route is, and remembers it: it needs no change.
func (d *decider) settle(restored, desired route) {
	switch {
	case d.verdict != nil:
	case d.fault != nil:
		d.say(verdictOf(d.fault))
	default:
		v, ok := d.routeHealth()
		if !ok {
			return
		}
		d.say(d.refineVerdict(v))
	}
	if !d.managed {
		return
	}
	if desired.sameEntry(restored) && d.fault == nil && !d.rolledBack() {
		if d.records.State != StateGrace {
			d.records.State = StateReady
			d.records.Failed, d.records.Failures, d.records.RetryAt = "", 0, time.Time{}
		}
		restored, d.records.Inputs = desired, d.inputs
	}
	d.records.applied = &restored
	d.write(d.target.value())
}

// usesConfigured reports whether the configured route was accepted, or none was yet.
func (d *decider) usesConfigured() bool {
	return !d.rollback && d.records.State != StateFellBack && d.records.State != StateRolledBack
}

// rolledBack reports whether AnnotationRollback is set and the previous route is in
// use.
func (d *decider) rolledBack() bool { return d.rollback && d.records.State == StateRolledBack }

// refineVerdict replaces a good verdict with more important news: a rollback, or a
// certificate that can't be renewed.
func (d *decider) refineVerdict(v verdict) verdict {
	switch {
	case v.status == metav1.ConditionFalse && d.kept:
		v.message = addSentence(v.message, keptMessage)
	case v.status == metav1.ConditionFalse:
	case d.records.Repairs > 1 && d.repairDelay() > 0: // it may be lost again
		d.scheduleAfter(d.repairDelay())
		if v = d.rivalVerdict(); d.records.condition != nil && d.records.condition.Reason == v.reason {
			v.message = d.records.condition.Message
		}
	case d.rolledBack():
		v.reason, v.message = ReasonRolledBack, "the previous route is in use for as long as the Cluster has the annotation "+AnnotationRollback
	case d.rollback:
		v.reason, v.message = ReasonNoPrevious, AnnotationRollback+" asks for the previous route, and there is none"
	case d.kept:
		v.reason, v.message = ReasonKept, keptMessage
	case d.unbound:
		v.reason, v.message = ReasonSecretUnbound, "the Secret "+d.settings.RouteSecret+" doesn't say what proxy it is for, and the next minor version will refuse it: "+bindAdvice
	case len(d.ca.key) == 0 && d.renewalDue():
		v.reason, v.message = ReasonNoCA, "the client certificate is past half of its life, and there is no key in "+d.cluster.Name+"-ca to make another with"
	}
	return v
}

// handBack takes away what the provider added, and restores the route from before the first decoration.
// A Secret that the provider made has no such route: its kubeconfig stays, without a proxy. It returns
// false if there is nothing to do.
func (d *decider) handBack(t *stored) bool {
	if !d.isOurs(t) {
		return d.forget(t)
	}
	d.deed, d.about, d.value, d.records = deedHandBack, t, t.value(), t.records
	if t.doc != nil {
		d.value = d.withoutRoute(t)
	}
	d.tell(corev1.EventTypeNormal, ReasonHandedBack, "the Secret "+t.name+" is handed back")
	return true
}

// withoutRoute returns the kubeconfig as it is handed back; as it is if that is not known.
func (s *state) withoutRoute(t *stored) []byte {
	d := &decider{state: s, decision: decision{records: t.records}, base: t.doc}
	r := d.originalRoute()
	r.Server, _ = d.naturalServer()
	if value, err := t.doc.withRoute(r); err == nil {
		return value
	}
	return t.value()
}

// handedBack returns the first Secret as it is going to be.
func (s *state) handedBack() *stored {
	first := s.first
	if first.doc != nil {
		first.doc, first.err = parseDocument(s.withoutRoute(&first))
	}
	return &first
}

// forget deletes the memory about a Secret that nobody manages any more.
func (d *decider) forget(t *stored) bool {
	m := t.memory
	if managerOf(m) != d.config.providerName() || managerOf(t.secret) != "" || m.DeletionTimestamp != nil || !owner.Owns(d.cluster.ownerReference(), m.OwnerReferences) {
		return false
	}
	d.deed, d.about = deedForget, t
	return true
}

// dropSecondary deletes the second Secret, if it is the provider's, and then what it remembers about
// it. One that a restore has left is taken over first: it is deleted by the UID of its owner only.
func (d *decider) dropSecondary() bool {
	t := &d.second
	switch {
	case t.name == d.first.name || t.secret != nil && t.secret.DeletionTimestamp != nil:
		return false
	case !d.isOurs(t):
		return d.forget(t)
	}
	if d.deed, d.about = deedDelete, t; !owner.Owns(d.cluster.ownerReference(), t.secret.OwnerReferences) {
		d.deed = deedTakeOver
		return true
	}
	d.tell(corev1.EventTypeNormal, ReasonDeleted, "the Secret "+t.name+" is not wanted any more")
	return true
}

package provider

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/owner"
)

// handBackAll hands back the Secrets, one in each plan.
func (d *decider) handBackAll() {
	if !d.handBack(&d.first) && !d.dropSecondary() && d.cluster.Condition != nil {
		d.say(verdict{metav1.ConditionUnknown, ReasonOff, "the mode is off"})
	}
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
		d.base = t.doc
		r := d.originalRoute()
		r.Server, _ = d.naturalServer()
		if value, err := t.doc.withRoute(r); err == nil {
			d.value = value
		}
	}
	d.tell(corev1.EventTypeNormal, ReasonHandedBack, "the Secret "+t.name+" is handed back")
	return true
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

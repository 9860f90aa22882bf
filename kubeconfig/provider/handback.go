package provider

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/owner"
	"github.com/causewayproject/causeway/kubeconfig"
)

// handBackAll hands back the Secrets, one in each plan.
func (p *planner) handBackAll() {
	if p.handBackSecret(p.secrets.Kubeconfig) || p.dropSecondary() || p.cluster.Condition == nil {
		return
	}
	p.setCondition(verdict{metav1.ConditionUnknown, ReasonOff, "the mode is off"})
}

// handBackSecret removes the provider's keys and annotations from the Secret, and
// restores the route from before the first decoration. A Secret that the provider made
// has no such route: its kubeconfig stays, without a proxy, and so does the record that
// the provider made it. It returns false if the provider doesn't manage the Secret.
func (p *planner) handBackSecret(s *corev1.Secret) bool {
	if managerOf(s) != p.config.providerName() {
		return false
	}
	update := s.DeepCopy()
	removeRecords(update)
	p.records = readRecords(s)
	if p.records.Created {
		update.Data[DataState] = encodeJSON(secretState{Created: true})
	}
	if base, err := parseDocument(s.Data[kubeconfig.SecretKey]); err == nil {
		p.base = base
		r := p.originalRoute()
		r.Server, _ = p.naturalServer()
		if value, err := base.withRoute(r); err == nil {
			update.Data[kubeconfig.SecretKey] = value
		}
	}
	p.records = records{}
	p.addEvent(corev1.EventTypeNormal, ReasonHandedBack, "the Secret "+s.Name+" is handed back")
	p.action.Update = update
	return true
}

// dropSecondary deletes the second Secret, if it is the provider's. One that a restore has
// left is taken over first: it is deleted by the UID of its owner only.
func (p *planner) dropSecondary() bool {
	s := p.secrets.Secondary
	if p.managerOf(s) != p.config.providerName() || s.Name == p.cluster.Name+kubeconfigSuffix || s.DeletionTimestamp != nil {
		return false
	}
	if !owner.Owns(p.cluster.ownerReference(), s.OwnerReferences) {
		p.action.Update = s.DeepCopy()
		p.takeOver(p.action.Update)
		return true
	}
	p.addEvent(corev1.EventTypeNormal, ReasonDeleted, "the Secret "+s.Name+" is not wanted any more")
	p.action.Delete = s.DeepCopy()
	return true
}

package provider

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

// handBackSecret removes the provider's annotations from the Secret, and restores the route from
// before the first decoration. A Secret that the provider made has no such route: its kubeconfig
// stays, without a proxy, and so does the mark that the provider made it. The number of another route
// stays, too, by which the webhook knows the write for the provider's own, until the next plan; then
// the memory goes. It returns false if there is nothing to do.
func (p *planner) handBackSecret(s *corev1.Secret) bool {
	m := p.memoryOf(p.kubeconfigName())
	if p.managerOf(s) != p.config.providerName() {
		return p.dropMemory(s, m)
	}
	update := s.DeepCopy()
	removeRecords(update)
	p.records = readRecords(s, m)
	if base, err := parseDocument(s.Data[kubeconfig.SecretKey]); err == nil {
		p.base = base
		r := p.originalRoute()
		r.Server, _ = p.naturalServer()
		if value, err := base.withRoute(r); err == nil {
			update.Data[kubeconfig.SecretKey] = value
		}
	}
	if m != nil {
		setRevision(update, p.records.Revision+1)
	}
	p.records = records{}
	p.addEvent(corev1.EventTypeNormal, ReasonHandedBack, "the Secret "+s.Name+" is handed back")
	if !equality.Semantic.DeepEqual(s, update) {
		p.action.Update = update
	}
	if m != nil && memoryManager(m) != "" {
		p.action.Records = m.DeepCopy()
		p.action.Records.Annotations[AnnotationPhase] = string(stateHandedBack)
		p.action.Records.OwnerReferences = owner.With(p.cluster.ownerReference(), m.OwnerReferences)
	}
	return true
}

// dropMemory deletes the memory about a Secret that nobody manages any more.
func (p *planner) dropMemory(s, memory *corev1.Secret) bool {
	if managerOf(memory) != p.config.providerName() || managerOf(s) != "" || memory.DeletionTimestamp != nil || !owner.Owns(p.cluster.ownerReference(), memory.OwnerReferences) {
		return false
	}
	if s != nil && s.Annotations[AnnotationRecords] != "" {
		p.action.Update = s.DeepCopy()
		delete(p.action.Update.Annotations, AnnotationRecords)
		return true
	}
	p.action.Delete = memory.DeepCopy()
	return true
}

// dropSecondary deletes the second Secret, if it is the provider's, and then what it remembers about
// it. One that a restore has left is taken over first: it is deleted by the UID of its owner only.
func (p *planner) dropSecondary() bool {
	s := p.secrets.Secondary
	switch {
	case p.settings.SecondaryName == p.kubeconfigName() || s != nil && s.DeletionTimestamp != nil:
		return false
	case p.managerOf(s) != p.config.providerName():
		return p.dropMemory(s, p.memoryOf(p.settings.SecondaryName))
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

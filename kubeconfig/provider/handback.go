package provider

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig"
)

// off hands back what there is, one Secret at a time.
func (p *planner) off() {
	if p.handBack(p.secrets.Kubeconfig) || p.dropSecondary() || p.cluster.Condition == nil {
		return
	}
	p.say(verdict{metav1.ConditionUnknown, ReasonOff, "the mode is off"})
}

// handBack takes the provider's own out of the Secret: the route is the one
// before the first decoration. One that the provider made stays as it is. It
// returns false where there is nothing to do.
func (p *planner) handBack(s *corev1.Secret) bool {
	if manager(s) != p.config.name() {
		return false
	}
	update := s.DeepCopy()
	forget(update)
	p.records = readRecords(s)
	base, err := parseDocument(s.Data[kubeconfig.SecretKey])
	if original := p.records.original; err == nil && original != nil {
		r := *original
		p.base = base
		if natural, _ := p.natural(); p.cluster.Endpoint != (kubeconfig.Endpoint{}) {
			r.Server = natural
		}
		if value, err := base.with(r); err == nil {
			update.Data[kubeconfig.SecretKey] = value
		}
	}
	p.records = records{}
	p.event(corev1.EventTypeNormal, ReasonHandedBack, "the Secret "+s.Name+" is handed back")
	p.action.Update = update
	return true
}

// dropSecondary deletes the second Secret, if it is the provider's.
func (p *planner) dropSecondary() bool {
	s := p.secrets.Secondary
	if manager(s) != p.config.name() || s.Name == p.cluster.Name+kubeconfigSuffix || s.DeletionTimestamp != nil {
		return false
	}
	p.event(corev1.EventTypeNormal, ReasonDeleted, "the Secret "+s.Name+" is not wanted any more")
	p.action.Delete = s.DeepCopy()
	return true
}

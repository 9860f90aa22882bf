package propagate

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PlanEnv says what is to be written for the Secret of a namespace in the
// management cluster itself: [proxyconfig.Options] refers to it, and it has what
// [proxyconfig.Config.EnvSecretData] returns. Its other keys are kept. held is what
// the API server holds, nil for nothing. The errors are as those of [Plan].
func PlanEnv(namespace, name string, installation, held *corev1.Secret, config Config) (Action, error) {
	c, err := config.ReadInstallation(installation)
	if err != nil {
		return Action{}, err
	}
	p := &planner{config: config}
	data := c.EnvSecretData()
	if held == nil {
		p.action.Writes = []Object{{Secret: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: config.Labels()},
			Type:       corev1.SecretTypeOpaque, Data: data,
		}}}
		return p.action, nil
	}
	if p.isOurs(Object{Secret: held}, held.Immutable) {
		next := held.DeepCopy()
		for _, key := range []string{KeyHTTPProxy, KeyHTTPSProxy, KeyNoProxy} {
			delete(next.Data, key)
		}
		next.Data = mergeMap(next.Data, data)
		if !equality.Semantic.DeepEqual(held, next) {
			p.action.Writes = []Object{{Secret: next}}
		}
	}
	return p.action, errors.Join(p.errs...)
}

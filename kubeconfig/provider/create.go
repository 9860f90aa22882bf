package provider

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/kubeconfig"
)

// create makes the Secret, or says what is missing. A first route is not
// probed: there is none to lose, and the API server may not be there yet.
func (p *planner) create() {
	switch {
	case p.cluster.Deleting:
		p.say(waiting(ReasonDeleting, "the Cluster goes away: nothing is made for it"))
		return
	case p.settings.Mode == Decorate || p.settings.Mode == Rewrite:
		p.say(waiting(ReasonNoSecret, "the control plane has not made the Secret "+p.cluster.Name+kubeconfigSuffix+" yet"))
		return
	case p.follows: // p.base is the first Secret's
	case !p.build():
		return
	}
	desired, err := p.desired()
	if err != nil {
		p.say(p.faulty(err))
		return
	}
	value, err := p.base.with(desired)
	if err != nil {
		p.say(waiting(ReasonCorrupted, err.Error()))
		return
	}
	s := p.newSecret(value)
	p.remember(desired)
	p.records.Inputs = p.inputs
	p.keep(s)
	p.event(corev1.EventTypeNormal, ReasonCreated, "made the Secret "+s.Name+"; the route is "+p.route.String())
	p.action.Create = s
}

func (p *planner) newSecret(value []byte) *corev1.Secret {
	name := p.cluster.Name + kubeconfigSuffix
	if p.settings.Mode == Secondary {
		name = p.settings.SecondaryName
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.cluster.Namespace, Name: name,
			Labels:          map[string]string{kubeconfig.ClusterNameLabel: p.cluster.Name},
			OwnerReferences: []metav1.OwnerReference{*p.cluster.owner()},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{kubeconfig.SecretKey: value},
	}
}

// build makes a kubeconfig without a route with the key of <cluster>-ca, or
// says what is missing.
func (p *planner) build() bool {
	cert, key := p.ca()
	name := p.cluster.Name + "-ca"
	switch {
	case p.secrets.CA == nil:
		p.say(waiting(ReasonNoCA, fmt.Sprintf("there is no Secret %s: provide it with tls.crt and tls.key, the cluster's CA", name)))
		return false
	case len(cert) == 0 || len(key) == 0:
		p.say(waiting(ReasonNoCA, fmt.Sprintf("the Secret %s lacks tls.crt or tls.key, without which no credentials can be made: provide both, or the Secret %s", name, p.cluster.Name+kubeconfigSuffix)))
		return false
	}
	config, err := p.plain().Build()
	if err != nil {
		p.say(waiting(ReasonNoCA, fmt.Sprintf("with the Secret %s: %v", name, err)))
		return false
	}
	value, err := clientcmd.Write(*config)
	if err == nil {
		p.base, err = parseDocument(value)
	}
	if err != nil {
		p.say(waiting(ReasonCorrupted, err.Error()))
		return false
	}
	p.records.Created = p.target == nil
	return true
}

// rebuild replaces a kubeconfig that can't be read by one with the route that
// was accepted. The control plane would only fail on it, for ever.
func (p *planner) rebuild(why error) {
	created := p.records.Created
	if !p.build() {
		c := p.action.Condition
		p.action = Action{}
		p.say(waiting(ReasonCorrupted, p.target.Name+": "+why.Error()+"; it can't be made anew: "+c.Message))
		return
	}
	p.records.Created = created
	r := p.base.current
	r.Endpoint = p.endpointOf(r.Server)
	if a := p.records.applied; a != nil {
		r = p.onServer(*a, r)
	}
	value, err := p.base.with(r)
	if err != nil {
		p.say(waiting(ReasonCorrupted, err.Error()))
		return
	}
	p.remember(r)
	p.event(corev1.EventTypeWarning, ReasonRebuilt, p.target.Name+": "+why.Error()+"; it was made anew")
	p.write(value)
}

// faulty is what is to be said of an error.
func (p *planner) faulty(err error) verdict {
	var setting *SettingError
	if errors.As(err, &setting) {
		return waiting(ReasonInvalidSettings, err.Error())
	}
	return waiting(ReasonCorrupted, err.Error())
}

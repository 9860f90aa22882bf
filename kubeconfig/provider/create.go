package provider

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/secretname"
	"github.com/causewayproject/causeway/kubeconfig"
)

// createSecret makes the Secret, or says what is missing. A first route is not
// probed: it replaces no other route, and the API server may not run yet.
func (p *planner) createSecret() {
	switch {
	case p.cluster.Deleting:
		p.setCondition(notReady(ReasonDeleting, "the Cluster goes away: nothing is made for it"))
		return
	case !p.follows && p.lacksEndpoint():
		return
	case p.settings.Mode == Decorate && !p.settings.explicit && !p.cluster.HasControlPlane:
		p.setCondition(notReady(ReasonNoControlPlane, "spec.topology is set, and there is no spec.controlPlaneRef yet: its control plane makes the Secret "+p.cluster.Name+kubeconfigSuffix))
		return
	case p.settings.Mode == Decorate || p.settings.Mode == Rewrite:
		p.setCondition(notReady(ReasonNoSecret, p.missingSecret(p.cluster.Namespace+"/"+p.cluster.Name+kubeconfigSuffix, kubeconfig.ClusterNameLabel+"="+p.cluster.Name, "the control plane has not made the Secret "+p.cluster.Name+kubeconfigSuffix+" yet")))
		return
	case p.refuseName():
		return
	case p.follows: // p.base is the first Secret's
	case !p.buildBase():
		return
	}
	desired, err := p.desiredRoute()
	if accepted, ok := p.keptRoute(desired); ok {
		desired, err = accepted, nil
	} else {
		p.records.Inputs = p.inputs
	}
	if err != nil {
		p.setCondition(p.faultVerdict(err))
		return
	}
	value, err := p.base.withRoute(desired)
	if err != nil {
		p.setCondition(notReady(ReasonCorrupted, err.Error()))
		return
	}
	if !p.mayRepair() {
		return
	}
	s := p.newSecret(p.targetName(), map[string][]byte{kubeconfig.SecretKey: value})
	if p.records.Created {
		s.Data[DataState] = encodeJSON(secretState{Created: true})
	}
	p.acceptRoute(desired)
	p.writeRecords(s)
	p.addEvent(corev1.EventTypeNormal, ReasonCreated, "made the Secret "+s.Name+"; the route is "+desired.String())
	p.action.Create = s
}

// lacksEndpoint returns true if nothing says yet where the API server is, and sets the condition that
// says so. Only a new kubeconfig needs to know.
func (p *planner) lacksEndpoint() bool {
	if p.cluster.Endpoint != (kubeconfig.Endpoint{}) {
		return false
	}
	v := notReady(ReasonNoEndpoint, "the Cluster has no spec.controlPlaneEndpoint yet that can be used")
	if p.cluster.Infrastructure != "" {
		v.message += ". The infrastructure object " + p.cluster.Infrastructure + " says whether it is ready"
	}
	p.setCondition(v)
	return true
}

// refuseName returns true if another program would take a new Secret of the name for its own,
// and sets the condition that says so. One that exists is kept current.
func (p *planner) refuseName() bool {
	taken := secretname.Taken(p.settings.SecondaryName)
	if p.settings.Mode != Secondary || taken == "" {
		return false
	}
	p.setCondition(p.faultVerdict(p.settings.layers.errorf(AnnotationSecondary,
		"has %s, by which Kubernetes, Cluster API or another of our programs takes the Secret for one of its own: name another one", taken)))
	return true
}

// missingSecret returns what to tell of a Secret that was not found: otherwise, unless it is there and
// lacks the label.
func (p *planner) missingSecret(name, label, otherwise string) string {
	if slices.Contains(p.secrets.Unlabelled, name) {
		return "the Secret " + name + " is there, and lacks the label " + label + ": set it"
	}
	return otherwise
}

func (p *planner) newSecret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.cluster.Namespace, Name: name,
			Labels:          map[string]string{kubeconfig.ClusterNameLabel: p.cluster.Name},
			OwnerReferences: []metav1.OwnerReference{p.cluster.ownerReference()},
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}
}

// buildBase makes a kubeconfig without a route, and signs its credentials with the
// key of <cluster>-ca. If the key is missing, it says so and returns false.
func (p *planner) buildBase() bool {
	cert, key := p.clusterCA()
	name := p.cluster.Name + "-ca"
	switch {
	case p.lacksEndpoint():
		return false
	case p.secrets.CA == nil:
		p.setCondition(notReady(ReasonNoCA, p.missingSecret(p.cluster.Namespace+"/"+name, kubeconfig.ClusterNameLabel+"="+p.cluster.Name, "there is no Secret "+name+" with the label "+kubeconfig.ClusterNameLabel+": provide it with tls.crt and tls.key, the cluster's CA")))
		return false
	case len(cert) == 0 || len(key) == 0:
		p.setCondition(notReady(ReasonNoCA, fmt.Sprintf("the Secret %s lacks tls.crt or tls.key, without which no credentials can be made: provide both, or the Secret %s", name, p.cluster.Name+kubeconfigSuffix)))
		return false
	}
	config, err := p.plainSpec().Build()
	if err != nil {
		p.setCondition(notReady(ReasonNoCA, fmt.Sprintf("with the Secret %s: %v", name, err)))
		return false
	}
	value, err := clientcmd.Write(*config)
	if err == nil {
		p.base, err = parseDocument(value)
	}
	if err != nil {
		p.setCondition(notReady(ReasonCorrupted, err.Error()))
		return false
	}
	p.records.Created = p.target == nil
	return true
}

// rebuildKubeconfig replaces a kubeconfig that can't be read with a new one that has
// the accepted route. The control plane would fail on the old one for ever.
func (p *planner) rebuildKubeconfig(why error) {
	created := p.records.Created
	if !p.buildBase() {
		c := p.action.Condition
		p.action = Action{}
		p.setCondition(notReady(ReasonCorrupted, p.target.Name+": "+why.Error()+"; it can't be made anew: "+c.Message))
		return
	}
	p.records.Created = created
	r, err := p.routeToRebuild()
	if err != nil {
		p.setCondition(p.faultVerdict(err))
		return
	}
	value, err := p.base.withRoute(r)
	if err != nil {
		p.setCondition(notReady(ReasonCorrupted, err.Error()))
		return
	}
	p.acceptRoute(r)
	p.addEvent(corev1.EventTypeWarning, ReasonRebuilt, p.target.Name+": "+why.Error()+"; it was made anew")
	p.updateTarget(value)
}

// routeToRebuild returns the accepted route, or the configured one if the records can't be
// read, too.
func (p *planner) routeToRebuild() (route, error) {
	desired, err := p.desiredRoute()
	accepted, ok := p.keptRoute(desired)
	switch {
	case ok:
		return accepted, nil
	case p.fault != nil:
		return route{}, p.fault
	case err != nil:
		return route{}, err
	case !p.direct && !p.settings.namesRoute():
		return route{}, errors.New(p.target.Name + ": neither the kubeconfig nor the route that it had can be read: set " + AnnotationProxyURL + ", to " + Direct + " for none")
	}
	return desired, nil
}

// keptRoute returns the accepted route for a kubeconfig that is made, unless there is none, or a
// better one.
func (p *planner) keptRoute(desired route) (route, bool) {
	current, a := p.base.current, p.records.applied
	if a == nil || !a.leadsThrough() && desired.leadsThrough() {
		return route{}, false
	}
	current.Endpoint = p.endpointOf(current.Server)
	return p.withServer(*a, current), true
}

// faultVerdict turns an error into a condition.
func (p *planner) faultVerdict(err error) verdict {
	if errors.As(err, new(*refusedSecret)) {
		return notReady(ReasonSecretRefused, err.Error())
	}
	if errors.Is(err, errNoTicket) {
		return notReady(ReasonNoSecret, err.Error())
	}
	if errors.As(err, new(*SettingError)) {
		return notReady(ReasonInvalidSettings, err.Error())
	}
	return notReady(ReasonCorrupted, err.Error())
}

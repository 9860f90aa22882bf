package provider

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/secretname"
	"github.com/causewayproject/causeway/kubeconfig"
)

// createSecret makes the Secret, or says what is missing. A first route is not
// probed: it replaces no other route, and the API server may not run yet.
func (d *decider) createSecret() {
	switch {
	case d.cluster.Deleting:
		d.say(notReady(ReasonDeleting, "the Cluster goes away: nothing is made for it"))
		return
	case !d.follows && d.lacksEndpoint():
		return
	case d.settings.Mode == Decorate && !d.settings.explicit && !d.cluster.HasControlPlane:
		d.say(notReady(ReasonNoControlPlane, "spec.topology is set, and there is no spec.controlPlaneRef yet: its control plane makes the Secret "+d.first.name))
		return
	case d.settings.Mode == Decorate || d.settings.Mode == Rewrite:
		d.say(notReady(ReasonNoSecret, d.missingSecret(d.cluster.Namespace+"/"+d.first.name, kubeconfig.ClusterNameLabel+"="+d.cluster.Name, "the control plane has not made the Secret "+d.first.name+" yet")))
		return
	case d.refuseName():
		return
	case d.follows: // d.base is the first Secret's
	case !d.buildBase():
		return
	}
	desired, err := d.desiredRoute()
	if accepted, ok := d.keptRoute(desired); ok {
		desired, err = accepted, nil
	} else {
		d.records.Inputs = d.inputs
	}
	if err != nil {
		d.say(faultVerdict(err))
		return
	}
	value, err := d.base.withRoute(desired)
	if err != nil {
		d.say(notReady(ReasonCorrupted, err.Error()))
		return
	}
	if d.mayRepair() {
		d.acceptRoute(desired)
		d.tell(corev1.EventTypeNormal, ReasonCreated, "made the Secret "+d.target.name+"; the route is "+desired.String())
		d.deed, d.about, d.value = deedWrite, d.target, value
	}
}

// lacksEndpoint returns true if nothing says yet where the API server is, and sets the condition that
// says so. Only a new kubeconfig needs to know.
func (d *decider) lacksEndpoint() bool {
	if d.cluster.Endpoint != (kubeconfig.Endpoint{}) {
		return false
	}
	v := notReady(ReasonNoEndpoint, "the Cluster has no spec.controlPlaneEndpoint yet that can be used")
	if d.cluster.Infrastructure != "" {
		v.message += ". The infrastructure object " + d.cluster.Infrastructure + " says whether it is ready"
	}
	d.say(v)
	return true
}

// refuseName returns true if another program would take a new Secret of the name for its own,
// and sets the condition that says so. One that exists is kept current.
func (d *decider) refuseName() bool {
	taken := secretname.Taken(d.settings.SecondaryName)
	if d.settings.Mode != Secondary || taken == "" {
		return false
	}
	d.say(faultVerdict(d.settings.layers.errorf(AnnotationSecondary,
		"has %s, by which Kubernetes, Cluster API or another of our programs takes the Secret for one of its own: name another one", taken)))
	return true
}

// missingSecret returns what to tell of a Secret that was not found: otherwise, unless it is there and
// lacks the label.
func (s *state) missingSecret(name, label, otherwise string) string {
	if slices.Contains(s.secrets.Unlabelled, name) {
		return "the Secret " + name + " is there, and lacks the label " + label + ": set it"
	}
	return otherwise
}

// buildBase makes a kubeconfig without a route, and signs its credentials with the
// key of <cluster>-ca. If the key is missing, it says so and returns false.
func (d *decider) buildBase() bool {
	name := d.cluster.Name + "-ca"
	switch {
	case d.lacksEndpoint():
		return false
	case d.secrets.CA == nil:
		d.say(notReady(ReasonNoCA, d.missingSecret(d.cluster.Namespace+"/"+name, kubeconfig.ClusterNameLabel+"="+d.cluster.Name, "there is no Secret "+name+" with the label "+kubeconfig.ClusterNameLabel+": provide it with tls.crt and tls.key, the cluster's CA")))
		return false
	case len(d.ca.pem) == 0 || len(d.ca.key) == 0:
		d.say(notReady(ReasonNoCA, fmt.Sprintf("the Secret %s lacks tls.crt or tls.key, without which no credentials can be made: provide both, or the Secret %s", name, d.first.name)))
		return false
	}
	config, err := d.plainSpec().Build()
	if err != nil {
		d.say(notReady(ReasonNoCA, fmt.Sprintf("with the Secret %s: %v", name, err)))
		return false
	}
	value, err := clientcmd.Write(*config)
	if err == nil {
		d.base, err = parseDocument(value)
	}
	if err != nil {
		d.say(notReady(ReasonCorrupted, err.Error()))
		return false
	}
	d.records.Created = d.target.secret == nil
	return true
}

// rebuildKubeconfig replaces a kubeconfig that can't be read with a new one that has
// the accepted route. The control plane would fail on the old one for ever.
func (d *decider) rebuildKubeconfig(why error) {
	created := d.records.Created
	if !d.buildBase() {
		d.say(notReady(ReasonCorrupted, d.target.name+": "+why.Error()+"; it can't be made anew: "+d.verdict.message))
		return
	}
	d.records.Created = created
	r, err := d.routeToRebuild()
	if err != nil {
		d.say(faultVerdict(err))
		return
	}
	value, err := d.base.withRoute(r)
	if err != nil {
		d.say(notReady(ReasonCorrupted, err.Error()))
		return
	}
	d.acceptRoute(r)
	d.tell(corev1.EventTypeWarning, ReasonRebuilt, d.target.name+": "+why.Error()+"; it was made anew")
	d.write(value)
}

// routeToRebuild returns the accepted route, or the configured one if the records can't be
// read, too.
func (d *decider) routeToRebuild() (route, error) {
	desired, err := d.desiredRoute()
	accepted, ok := d.keptRoute(desired)
	switch {
	case ok:
		return accepted, nil
	case d.fault != nil:
		return route{}, d.fault
	case err != nil:
		return route{}, err
	case !d.direct && !d.settings.namesRoute():
		return route{}, errors.New(d.target.name + ": neither the kubeconfig nor the route that it had can be read: set " + AnnotationProxyURL + ", to " + Direct + " for none")
	}
	return desired, nil
}

// keptRoute returns the accepted route for a kubeconfig that is made, unless there is none, or a
// better one.
func (d *decider) keptRoute(desired route) (route, bool) {
	current, a := d.base.current, d.records.applied
	if a == nil || !a.leadsThrough() && desired.leadsThrough() {
		return route{}, false
	}
	current.Endpoint = d.endpointOf(current.Server)
	return d.withServer(*a, current), true
}

// faultVerdict turns an error into a condition.
func faultVerdict(err error) verdict {
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

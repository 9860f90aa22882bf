package provider

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/secretname"
	"github.com/causewayproject/causeway/kubeconfig"
)

// createSecret makes the Secret, or says what is missing. A first route is not
// probed: it replaces no other route, and the API server may not run yet.
func (d *decider) createSecret() error {
	switch mode := d.settings.Mode; {
	case d.cluster.Deleting:
		return notReady(ReasonDeleting, "the Cluster goes away: nothing is made for it")
	case !d.follows && d.cluster.Endpoint == (kubeconfig.Endpoint{}):
		return d.noEndpoint()
	case mode == Decorate && !d.settings.explicit && !d.cluster.HasControlPlane:
		return notReady(ReasonNoControlPlane, "spec.topology is set, and there is no spec.controlPlaneRef yet: its control plane makes the Secret "+d.first.name)
	case mode == Decorate || mode == Rewrite:
		return notReady(ReasonNoSecret, d.missingSecret(d.cluster.Namespace+"/"+d.first.name, kubeconfig.ClusterNameLabel+"="+d.cluster.Name, "the control plane has not made the Secret "+d.first.name+" yet"))
	}
	// A name that another program would take for its own. A Secret that exists is kept current.
	if taken := secretname.Taken(d.settings.SecondaryName); d.settings.Mode == Secondary && taken != "" {
		return d.settings.layers.errorf(AnnotationSecondary,
			"has %s, by which Kubernetes, Cluster API or another of our programs takes the Secret for one of its own: name another one", taken)
	}
	if !d.follows { // else the base is the first Secret's
		if err := d.buildBase(); err != nil {
			return err
		}
	}
	if !d.follows && d.hasAccepted(&d.second) {
		d.records.applied = cmp.Or(d.records.applied, d.second.records.applied) // until the configured one is probed
	}
	desired, err := d.desiredRoute()
	if accepted, ok := d.keptRoute(desired); ok {
		desired, err = accepted, nil
	} else {
		d.records.Inputs = d.inputs
	}
	if err != nil {
		return err
	}
	value, err := d.base.withRoute(desired)
	if err == nil && d.mayRepair() {
		d.acceptRoute(desired)
		d.tell(corev1.EventTypeNormal, ReasonCreated, "made the Secret "+d.target.name+"; the route is "+desired.String())
		d.deed, d.about, d.value = deedWrite, d.target, value
	}
	return err
}

// noEndpoint says that nothing tells yet where the API server is. Only a new kubeconfig needs to know.
func (d *decider) noEndpoint() error {
	v := notReady(ReasonNoEndpoint, "the Cluster has no spec.controlPlaneEndpoint yet that can be used")
	if err := d.cluster.endpointErr; err != nil {
		v.message = addSentence(v.message, strings.TrimPrefix(err.Error(), "provider: "))
	}
	if d.cluster.Infrastructure != "" {
		v.message += ". The infrastructure object " + d.cluster.Infrastructure + " says whether it is ready"
	}
	return v
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
// key of <cluster>-ca.
func (d *decider) buildBase() error {
	name := d.cluster.Name + "-ca"
	switch {
	case d.cluster.Endpoint == (kubeconfig.Endpoint{}):
		return d.noEndpoint()
	case d.secrets.CA == nil:
		return notReady(ReasonNoCA, d.missingSecret(d.cluster.Namespace+"/"+name, kubeconfig.ClusterNameLabel+"="+d.cluster.Name, "there is no Secret "+name+" with the label "+kubeconfig.ClusterNameLabel+": provide it with tls.crt and tls.key, the cluster's CA"))
	case len(d.ca.pem) == 0 || len(d.ca.key) == 0:
		return notReady(ReasonNoCA, fmt.Sprintf("the Secret %s lacks tls.crt or tls.key, without which no credentials can be made: provide both, or the Secret %s", name, d.first.name))
	}
	config, err := d.plainSpec().Build()
	if err != nil {
		return notReady(ReasonNoCA, fmt.Sprintf("with the Secret %s: %v", name, err))
	}
	value, err := clientcmd.Write(*config)
	if err == nil {
		d.base, err = parseDocument(value)
	}
	d.records.Created = d.target.secret == nil
	return err
}

// rebuildKubeconfig replaces a kubeconfig that can't be read with a new one that has
// the accepted route, or the configured one if the records can't be read, too. The control plane
// would fail on the old one for ever.
func (d *decider) rebuildKubeconfig(why error) error {
	created := d.records.Created
	if err := d.buildBase(); err != nil {
		return fmt.Errorf("%s: %w; it can't be made anew: %v", d.target.name, why, err)
	}
	d.records.Created = created
	desired, err := d.desiredRoute()
	err = cmp.Or(d.fault, err)
	r, ok := d.keptRoute(desired)
	switch {
	case ok:
	case err != nil:
		return err
	case !d.direct && !d.settings.namesRoute():
		return errors.New(d.target.name + ": neither the kubeconfig nor the route that it had can be read: set " + AnnotationProxyURL + ", to " + Direct + " for none")
	default:
		r = desired
	}
	value, err := d.base.withRoute(r)
	if err == nil {
		d.acceptRoute(r)
		d.tell(corev1.EventTypeWarning, ReasonRebuilt, d.target.name+": "+why.Error()+"; it was made anew")
		d.write(value)
	}
	return err
}

// keptRoute returns the accepted route for a kubeconfig that is made, unless there is none, or a
// better one.
func (d *decider) keptRoute(desired route) (route, bool) {
	current, a := d.base.current, d.records.applied
	if a == nil || a.losesWay(desired) {
		return route{}, false
	}
	current.Endpoint = d.endpointOf(current.Server)
	return d.withServer(*a, current), true
}

// verdictOf turns an error into a condition.
func verdictOf(err error) verdict {
	v, ok := errors.AsType[verdict](err)
	switch {
	case ok:
		return v
	case errors.As(err, new(*refusedSecret)):
		return notReady(ReasonSecretRefused, err.Error())
	case errors.Is(err, errNoTicket):
		return notReady(ReasonNoSecret, err.Error())
	case errors.As(err, new(*SettingError)):
		return notReady(ReasonInvalidSettings, err.Error())
	}
	return notReady(ReasonCorrupted, err.Error())
}

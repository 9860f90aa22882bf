package provider

import (
	"cmp"
	"crypto/x509"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/internal/owner"
	"github.com/causewayproject/causeway/kubeconfig"
)

const timeUnit = time.Second // for the times that are written

// Plan says what is to be done next for a Cluster. It is called again after
// each Action, and whenever something changed: it looks at the present state, not
// at what happened. It only reads its arguments, dials nothing, and knows no time but
// config.Now. Nothing but the keys that it makes differs from call to call.
//
// Action.Condition tells of a wrong configuration or object. An error is a mistake of
// the caller: a Cluster without a name, a Config without Now.
func Plan(cluster Cluster, secrets Secrets, config Config) (Action, error) {
	switch {
	case cluster.Name == "" || cluster.Namespace == "":
		return Action{}, errors.New("provider: Cluster.Name and Namespace are required")
	case config.Now.IsZero():
		return Action{}, errors.New("provider: Config.Now is required")
	case cluster.Paused:
		return Action{}, nil
	}
	s := read(cluster, secrets, config)
	return s.render(decide(s)), nil
}

// state is what a plan looks at, each text parsed once. Once it is read, it does not change.
type state struct {
	cluster       Cluster
	secrets       Secrets
	config        Config
	settings      resolved         // Mode is the one to work in
	invalid       error            // in the settings
	route         kubeconfig.Route // the configured one
	routeErr      error            // why the Secret that the settings name can't be used
	unbound       bool             // that Secret doesn't say what proxy it is for, and is used for now
	rollback      bool             // AnnotationRollback
	first, second stored           // <cluster>-kubeconfig, and the one for Secondary
	ca            clusterCA
}

// stored is a kubeconfig Secret of the Cluster, and what is remembered about it.
type stored struct {
	name    string
	secret  *corev1.Secret // nil if there is none
	memory  *corev1.Secret // nil if there is none
	taken   bool           // there is a Secret of the memory's name that is not ours
	records records        // what the memory says
	manager string         // the provider that manages it for this Cluster; empty without one
	doc     *document      // nil if it can't be read
	err     error          // why
}

// clusterCA is what <cluster>-ca has; each part is empty if it is missing.
type clusterCA struct {
	pem, key []byte
	certs    []*x509.Certificate
}

func read(cluster Cluster, secrets Secrets, config Config) *state {
	s := &state{cluster: cluster, secrets: secrets, config: config}
	_, s.rollback = cluster.Annotations[AnnotationRollback]
	s.settings, s.invalid = resolveSettings(cluster, config)
	s.first = s.readStored(cluster.Name+kubeconfigSuffix, secrets.Kubeconfig)
	s.second = s.readStored(s.settings.SecondaryName, secrets.Secondary)
	s.settings.Mode = s.workMode()
	if s.invalid == nil {
		s.route, s.routeErr = s.readRoute()
	}
	if ca := secrets.CA; ca != nil {
		s.ca.pem, s.ca.key = ca.Data[corev1.TLSCertKey], ca.Data[corev1.TLSPrivateKeyKey]
		s.ca.certs = parseCertificates(s.ca.pem)
	}
	return s
}

// readStored reads a Secret. <cluster>-kubeconfig is the Cluster's by its name, as for Cluster API. Any
// other name is one that the Cluster's author chose, so that the Cluster must own the Secret; or it may
// be what a restore has left. If another program has taken the Secret's annotations, its memory says
// who manages it.
func (s *state) readStored(name string, secret *corev1.Secret) stored {
	t := stored{name: name, secret: secret}
	for _, m := range []*corev1.Secret{s.secrets.Records, s.secrets.SecondaryRecords} {
		if m != nil && m.Name == RecordsName(name) {
			if t.taken = !s.mayBeOurs(m); !t.taken {
				t.memory = m
			}
		}
	}
	if t.records = readRecords(secret, t.memory); secret == nil {
		return t
	}
	if name == s.cluster.Name+kubeconfigSuffix || s.mayBeOurs(secret) {
		t.manager = cmp.Or(managerOf(secret), memoryManager(t.memory))
	}
	t.doc, t.err = parseDocument(secret.Data[kubeconfig.SecretKey])
	return t
}

// mayBeOurs reports whether the Secret is one that the provider has made for the Cluster, or what
// a restore has left of it.
func (s *state) mayBeOurs(secret *corev1.Secret) bool {
	return secret.Labels[kubeconfig.ClusterNameLabel] == s.cluster.Name && secret.Type == corev1.SecretTypeOpaque && owner.MayAdopt(s.cluster.ownerReference(), secret.OwnerReferences)
}

// value returns the kubeconfig; nil without one.
func (t *stored) value() []byte {
	return orEmpty(t.secret).Data[kubeconfig.SecretKey]
}

// version returns the Secret's resourceVersion.
func (t *stored) version() string { return cmp.Or(orEmpty(t.secret).ResourceVersion, noVersion) }

// noVersion is the version of a Secret that is not there.
const noVersion = "none"

var noSecret = &corev1.Secret{}

// orEmpty returns s, or a Secret without anything if it is nil. It is only read.
func orEmpty(s *corev1.Secret) *corev1.Secret { return cmp.Or(s, noSecret) }

// isOurs reports whether this provider manages the Secret.
func (s *state) isOurs(t *stored) bool { return t.manager == s.config.providerName() }

// hasAccepted reports whether it manages the Secret, which has had a route that was accepted.
func (s *state) hasAccepted(t *stored) bool { return s.isOurs(t) && t.records.applied != nil }

// replaces reports whether t has a route in place of that of old: the configured one, or one that is no less.
func (s *state) replaces(t, old *stored) bool {
	return s.hasAccepted(t) && (t.records.Inputs != "" || old.records.applied == nil || !t.records.applied.losesWay(*old.records.applied))
}

// workMode returns the mode to work in. One that can't be read is that of the Secret which is there. A mode
// may have vanished along with a route: then the Secret with that route is neither handed back nor deleted.
func (s *state) workMode() Mode {
	isLed := func(t *stored) bool {
		return s.hasAccepted(t) && t.records.applied.leadsThrough()
	}
	mode, vanished := s.settings.Mode, s.invalid == nil && !s.settings.namesRoute() && s.settings.ProxyURL != Direct
	switch {
	case mode == Auto && s.first.manager == "" && s.second.manager != "":
		return Secondary
	case mode == Auto, mode == Secondary && vanished && isLed(&s.first):
		return Decorate
	case mode != Secondary && mode != Off && vanished && !s.settings.explicit && isLed(&s.second):
		return Secondary
	}
	return mode
}

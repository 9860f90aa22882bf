package provider

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/owner"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
)

const timeUnit = time.Second // for the times that are written

// Plan says what is to be done next for a Cluster. It is called again after
// each Action, and whenever something changed: it looks at the present state, not
// at what happened. It only reads its arguments, dials nothing, and knows no time but
// config.Now. The only exceptions are the keys and certificates that it makes: these
// differ in each call, and take their time from the clock.
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
	p := &planner{cluster: cluster, secrets: secrets, config: config}
	p.settings, p.fault = resolveSettings(cluster, config)
	p.makePlan()
	if len(p.action.Probe) > 0 {
		return Action{Probe: p.action.Probe}, nil
	}
	p.action.Managed = p.managesKubeconfig()
	return p.action, nil
}

// managesKubeconfig reports whether <cluster>-kubeconfig is this provider's, or becomes so
// by the Action.
func (p *planner) managesKubeconfig() bool {
	for _, s := range []*corev1.Secret{p.secrets.Kubeconfig, p.action.Create, p.action.Update} {
		if s != nil && s.Name == p.kubeconfigName() && p.managerOf(s) == p.config.providerName() {
			return true
		}
	}
	return false
}

// planner is one call of Plan.
type planner struct {
	cluster  Cluster
	secrets  Secrets
	config   Config
	settings resolved
	fault    error            // in the settings, or in the Secret that they name
	route    kubeconfig.Route // the configured one

	target  *corev1.Secret // the Secret to write; nil if it does not exist
	memory  *corev1.Secret // what is remembered about it; nil if there is none
	records records        // what the memory says
	managed bool           // the target is this provider's
	shown   RouteState     // for AnnotationPhase; records.State if empty
	base    *document      // has the credentials and the natural server
	follows bool           // base is the kubeconfig of another Secret

	inputs  string // the configured route's, see inputsOf
	direct  bool   // the settings say that the API server is reached directly
	kept    bool   // the settings name no route any more, and the accepted one stays
	unbound bool   // the route Secret doesn't say what proxy it is for, and is used for now
	cleared bool   // the records had credentials of a Secret that is refused
	healthy bool   // in the grace period: the route works

	action Action
}

func (p *planner) makePlan() {
	switch {
	case p.settings.Mode == Auto: // it could not be read, and the Secret that there is keeps its route
		p.settings.Mode = Decorate
		if p.managerOf(p.secrets.Kubeconfig) == "" && p.managerOf(p.secrets.Secondary) != "" {
			p.settings.Mode = Secondary
		}
	case p.settings.Mode == Off:
		p.handBackAll()
		return
	}
	p.keepMode()
	switch {
	case p.fault != nil:
	case p.settings.Mode == Secondary && p.handBackSecret(p.secrets.Kubeconfig):
		return
	case p.settings.Mode != Secondary && p.dropSecondary():
		return
	}
	p.target = p.secrets.Kubeconfig
	if p.settings.Mode == Secondary {
		p.target = p.secrets.Secondary
	}
	p.memory = p.memoryOf(p.targetName())
	if p.records = readRecords(p.target, p.memory); p.refuseTarget() {
		return
	}
	if p.fault == nil {
		p.fault = p.checkRoute()
		p.clearRefused()
	}
	switch {
	case p.fault != nil && !p.managed:
		p.setCondition(p.faultVerdict(p.fault))
	case p.readBase():
		p.reconcileRoute()
	}
}

// refuseTarget returns true if the Secret must not be changed, and sets the condition
// that says why.
func (p *planner) refuseTarget() bool {
	name := p.managerOf(p.target)
	p.managed = name == p.config.providerName()
	for _, m := range p.secrets.memories() {
		if p.memory == nil && m.Name == RecordsName(p.targetName()) {
			p.setCondition(notReady(ReasonNotOurs, "the Secret "+m.Name+" is there, and is not this Cluster's: delete it"))
			return true
		}
	}
	switch {
	case p.target == nil || p.managed:
		return false
	case name != "":
		p.setCondition(notReady(ReasonManagedByOther, "the Secret "+p.target.Name+" is managed by another provider: see the annotation "+AnnotationManager+", its own or that of the Secret "+RecordsName(p.target.Name)))
	case p.settings.Mode == Secondary:
		p.setCondition(notReady(ReasonNotOurs, "the Secret "+p.target.Name+" is there, and was not made by this provider: name another one in "+AnnotationSecondary))
	case p.settings.Mode == Own && !p.settings.explicit && p.target.Type == corev1.SecretTypeOpaque && !p.records.Created:
		p.setCondition(notReady(ReasonNotOurs, "the Secret "+p.target.Name+" is a user's (type Opaque): to have it adopted, set "+AnnotationMode+" to own"))
	default:
		return false
	}
	return true
}

// managerOf returns the name of the provider that manages the Secret for this Cluster; empty
// without one. If another program has taken the Secret's annotations, its memory says it.
// <cluster>-kubeconfig is the Cluster's by its name, as for Cluster API. Any other name is one that
// the Cluster's author chose, so that the Cluster must own the Secret; or it may be what a restore
// has left.
func (p *planner) managerOf(s *corev1.Secret) string {
	if s == nil || s.Name != p.kubeconfigName() && !p.mayBeOurs(s) {
		return ""
	}
	return cmp.Or(managerOf(s), memoryManager(p.memoryOf(s.Name)))
}

// mayBeOurs reports whether the Secret is one that the provider has made for the Cluster, or what
// a restore has left of it.
func (p *planner) mayBeOurs(s *corev1.Secret) bool {
	return s.Labels[kubeconfig.ClusterNameLabel] == p.cluster.Name && s.Type == corev1.SecretTypeOpaque && owner.MayAdopt(p.cluster.ownerReference(), s.OwnerReferences)
}

// memoryOf returns the memory about the Secret of that name; nil if there is none.
func (p *planner) memoryOf(name string) *corev1.Secret {
	for _, m := range p.secrets.memories() {
		if m.Name == RecordsName(name) && p.mayBeOurs(m) {
			return m
		}
	}
	return nil
}

func (p *planner) kubeconfigName() string { return p.cluster.Name + kubeconfigSuffix }

// targetName returns the name of the Secret to write.
func (p *planner) targetName() string {
	if p.settings.Mode == Secondary {
		return p.settings.SecondaryName
	}
	return p.kubeconfigName()
}

// keepOwner makes the Cluster the owner of a Secret that the provider has made, and that has
// lost it.
func (p *planner) keepOwner(s *corev1.Secret) {
	ours := p.cluster.ownerReference()
	made := p.settings.Mode == Secondary || decodeRecords(s).Created
	if !made || owner.Owns(ours, s.OwnerReferences) || !owner.MayAdopt(ours, s.OwnerReferences) {
		return
	}
	p.takeOver(s)
}

// takeOver makes the Cluster the owner of what a restore has left. s must be a copy.
func (p *planner) takeOver(s *corev1.Secret) {
	s.OwnerReferences = owner.With(p.cluster.ownerReference(), s.OwnerReferences)
	p.addEvent(corev1.EventTypeNormal, ReasonAdopted, "the Secret "+s.Name+" is taken over: it has the name and the marks of ours, and no owner that is there")
}

// isOthers reports whether the Secret belongs to another Cluster. A Cluster's annotation can
// name any Secret of its namespace.
func (p *planner) isOthers(s *corev1.Secret) bool {
	owner := s.Labels[kubeconfig.ClusterNameLabel]
	return owner != "" && owner != p.cluster.Name
}

// readBase finds the kubeconfig to work on. Without one it creates the Secret, or says
// what is missing for that, and returns false.
func (p *planner) readBase() bool {
	source := p.target
	if p.settings.Mode == Secondary && p.secrets.Kubeconfig != nil {
		source, p.follows = p.secrets.Kubeconfig, true
	}
	if source == nil {
		p.createSecret()
		return false
	}
	base, err := parseDocument(source.Data[kubeconfig.SecretKey])
	if err == nil {
		p.base = base
		if p.target == nil {
			p.createSecret()
		}
		return p.target != nil
	}
	// What client-go reads is kept. A text that is too large was not looked at: it may be good.
	if p.managed && !p.follows && !errors.Is(err, entry.ErrText) && !isReadable(source.Data[kubeconfig.SecretKey]) {
		p.rebuildKubeconfig(err)
	} else {
		p.setCondition(notReady(ReasonCorrupted, source.Name+": "+err.Error()))
	}
	return false
}

// isReadable reports whether client-go makes something of the kubeconfig.
func isReadable(value []byte) bool {
	config, err := entry.Load(value)
	if err == nil {
		_, err = entry.FollowContext(config)
	}
	return err == nil
}

// scheduleAfter asks for the next plan after d at the latest.
func (p *planner) scheduleAfter(d time.Duration) {
	if d = max(d, timeUnit); p.action.After == 0 || d < p.action.After {
		p.action.After = d
	}
}

// updateTarget updates the target and its memory if that changes them. A write comes before the
// probes that the plan has asked for.
func (p *planner) updateTarget(value []byte) {
	switch {
	case !bytes.Equal(value, p.target.Data[kubeconfig.SecretKey]):
		if !p.mayRepair() {
			return
		}
	case p.managed && managerOf(p.target) == "": // another program takes the annotations
		if left := p.records.RepairedAt.Add(repairReset).Sub(p.config.Now); left > 0 {
			p.scheduleAfter(left)
			p.writeMemory()
			return
		}
		p.records.Repairs, p.records.RepairedAt = 0, p.config.Now.UTC()
	}
	s := p.target.DeepCopy()
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	s.Data[kubeconfig.SecretKey] = value
	p.keepOwner(s)
	p.writeRecords(s)
	if !equality.Semantic.DeepEqual(p.target, s) {
		p.action.Update = s
	}
	if p.action.Update != nil || p.action.Records != nil {
		p.action.Probe = nil
	}
}

// writeRecords writes the memory, and what readers see of it into s, which must be a copy.
func (p *planner) writeRecords(s *corev1.Secret) {
	if c := p.action.Condition; c != nil {
		p.records.condition = c.DeepCopy()
		p.records.condition.ObservedGeneration = 0 // the Secret does not change with each generation
	}
	p.writeMemory()
	removeRecords(s)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, AnnotationManager, p.config.providerName())
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, AnnotationPhase, string(cmp.Or(p.shown, p.records.State)))
	setRevision(s, p.records.Revision)
	if p.records.condition != nil {
		s.Annotations[AnnotationConditions] = string(encodeJSON([]metav1.Condition{*p.records.condition}))
	}
}

// writeMemory has the memory written if that changes it.
func (p *planner) writeMemory() {
	last := p.acceptsStored()
	if !last {
		p.records.Revision++
	}
	m := p.newSecret(RecordsName(p.targetName()), p.records.encode())
	if p.memory != nil {
		data := m.Data
		m = p.memory.DeepCopy()
		m.Data, m.OwnerReferences = data, owner.With(p.cluster.ownerReference(), m.OwnerReferences)
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, AnnotationManager, p.config.providerName())
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, AnnotationPhase, string(p.records.State))
	if p.memory == nil || !equality.Semantic.DeepEqual(p.memory, m) {
		p.action.Records, p.action.RecordsLast = m, last
	}
}

// acceptsStored reports whether the route that is accepted now is the one that the memory has.
func (p *planner) acceptsStored() bool {
	r := p.records
	return r.stored != nil && r.applied != nil && r.applied.sameEntry(*r.stored)
}

// reconcileRoute keeps the accepted route in the Secret, and then moves on to the
// configured one. The first step that has something to do ends the plan.
func (p *planner) reconcileRoute() {
	desired, err := p.desiredRoute()
	if err != nil && p.fault == nil {
		p.fault = err
	}
	restored := p.acceptedRoute()
	if p.fault == nil && (desired.leadsThrough() || p.direct) && p.usesConfigured() && p.heldRoute(p.base.current).sameEntry(desired) {
		restored = desired // whatever the records say
	}
	if p.restoreRoute(restored) {
		return
	}
	if p.fault == nil && restored.leadsThrough() && !desired.leadsThrough() && !p.direct {
		desired, p.kept, p.inputs = restored, true, ""
	}
	hold := p.fault != nil
	if done := p.rollBack(restored, &hold); done {
		return
	}
	if p.watchGrace(restored) {
		return
	}
	if hold {
		desired = restored
	}
	if p.tryAttempts(restored, desired) {
		return
	}
	p.finishPlan(restored, desired)
}

// finishPlan runs when the route needs no change: it sets the condition and updates the
// records.
func (p *planner) finishPlan(restored, desired route) {
	switch {
	case p.action.Condition != nil:
	case p.fault != nil:
		p.setCondition(p.faultVerdict(p.fault))
	default:
		v, ok := p.routeHealth()
		if !ok {
			return
		}
		p.setCondition(p.refineVerdict(v))
	}
	if !p.managed {
		return
	}
	if desired.sameEntry(restored) && p.fault == nil && !p.rollbackActive() {
		if p.records.State != StateGrace {
			p.records.State = StateReady
			p.records.Failed, p.records.Failures, p.records.RetryAt = "", 0, time.Time{}
		}
		restored, p.records.Inputs = desired, p.inputs
	}
	if p.records.applied == nil || !p.records.applied.equal(restored) {
		p.records.applied = &restored
	}
	p.updateTarget(p.target.Data[kubeconfig.SecretKey])
}

// keepMode keeps the mode as long as it may have vanished along with a route: the Secret
// with that route is neither handed back nor deleted.
func (p *planner) keepMode() {
	if p.fault != nil || p.settings.namesRoute() || p.settings.ProxyURL == Direct {
		return
	}
	has := func(s *corev1.Secret) bool {
		if p.managerOf(s) != p.config.providerName() {
			return false
		}
		a := readRecords(s, p.memoryOf(s.Name)).applied
		return a != nil && a.leadsThrough()
	}
	switch {
	case p.settings.Mode == Secondary && has(p.secrets.Kubeconfig):
		p.settings.Mode = Decorate
	case p.settings.Mode != Secondary && !p.settings.explicit && has(p.secrets.Secondary):
		p.settings.Mode = Secondary
	}
}

// usesConfigured reports whether the configured route was accepted, or none was yet.
func (p *planner) usesConfigured() bool {
	_, asked := p.cluster.Annotations[AnnotationRollback]
	return !asked && p.records.State != StateFellBack && p.records.State != StateRolledBack
}

// rollbackActive reports whether AnnotationRollback is set and the previous route is in
// use.
func (p *planner) rollbackActive() bool {
	_, asked := p.cluster.Annotations[AnnotationRollback]
	return asked && p.records.State == StateRolledBack
}

// refineVerdict replaces a good verdict with more important news: a rollback, or a
// certificate that can't be renewed.
func (p *planner) refineVerdict(v verdict) verdict {
	_, asked := p.cluster.Annotations[AnnotationRollback]
	switch {
	case v.status == metav1.ConditionFalse && p.kept:
		v.message = addSentence(v.message, keptMessage)
	case v.status == metav1.ConditionFalse:
	case p.records.Repairs > 1 && p.repairDelay() > 0: // it may be lost again
		p.scheduleAfter(p.repairDelay())
		if v = p.rivalVerdict(); p.records.condition != nil && p.records.condition.Reason == v.reason {
			v.message = p.records.condition.Message
		}
	case p.rollbackActive():
		v.reason, v.message = ReasonRolledBack, "the previous route is in use for as long as the Cluster has the annotation "+AnnotationRollback
	case asked:
		v.reason, v.message = ReasonNoPrevious, AnnotationRollback+" asks for the previous route, and there is none"
	case p.kept:
		v.reason, v.message = ReasonKept, keptMessage
	case p.unbound:
		v.reason, v.message = ReasonSecretUnbound, "the Secret "+p.settings.RouteSecret+" doesn't say what proxy it is for, and the next minor version will refuse it: "+bindAdvice
	case p.rotationBlocked():
		v.reason, v.message = ReasonNoCA, "the client certificate is past half of its life, and there is no key in "+p.cluster.Name+"-ca to make another with"
	}
	return v
}

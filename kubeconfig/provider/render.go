package provider

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/owner"
	"github.com/causewayproject/causeway/kubeconfig"
)

// render makes the objects that a decision asks for.
func (s *state) render(d decision) Action {
	a := Action{Events: d.events, After: d.after, Managed: s.isOurs(&s.first) || d.deed == deedWrite && d.about == &s.first}
	s.renderCondition(&a, d)
	if t := d.about; t != nil && t.secret != nil {
		a.Update = t.secret.DeepCopy()
	}
	switch d.deed {
	case deedWrite, deedRemember:
		s.renderWrite(&a, d)
	case deedHandBack:
		s.renderHandBack(&a, d)
	case deedForget:
		if a.Update == nil || a.Update.Annotations[AnnotationRecords] == "" {
			a.Delete, a.Update = d.about.memory.DeepCopy(), nil
			break
		}
		delete(a.Update.Annotations, AnnotationRecords)
	case deedTakeOver:
		s.takeOver(&a)
	case deedDelete:
		a.Delete, a.Update = a.Update, nil
	}
	if a.Update != nil && equality.Semantic.DeepEqual(a.Update, d.about.secret) {
		a.Update = nil
	}
	if len(d.probes) > 0 && a.Create == nil && a.Update == nil && a.Delete == nil && a.Records == nil {
		return Action{Probe: d.probes}
	}
	return a
}

func (a *Action) addEvent(kind, reason, message string) {
	a.Events = append(a.Events, Event{Type: kind, Reason: reason, Message: message})
}

// renderWrite makes the memory, and the Secret with what readers see of it.
func (s *state) renderWrite(a *Action, d decision) {
	t, r := d.about, d.records
	if a.Condition != nil {
		r.condition = a.Condition.DeepCopy()
		r.condition.ObservedGeneration = 0 // the Secret does not change with each generation
	}
	if !r.acceptsStored() {
		r.Revision++
	}
	// A repair counts before it is made: a rival is not answered again because no memory could be written.
	a.RecordsLast = r.acceptsStored() && !t.isRepaired(r)
	m := s.newSecret(RecordsName(t.name), r.encode())
	if t.memory != nil {
		data := m.Data
		m = t.memory.DeepCopy()
		for key, value := range m.Data { // a policy may forbid to drop another writer's
			if !isRecord(key) {
				data[key] = value
			}
		}
		m.Data = data
		m.OwnerReferences = owner.With(s.cluster.ownerReference(), m.OwnerReferences)
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, AnnotationManager, s.config.providerName())
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, AnnotationPhase, string(r.State))
	if a.Records = m; equality.Semantic.DeepEqual(t.memory, m) {
		a.Records, a.RecordsLast = nil, false
	}
	if d.deed == deedRemember {
		a.Update = nil
		return
	}
	secret := a.Update
	if secret == nil {
		secret = s.newSecret(t.name, map[string][]byte{})
		if a.Create = secret; r.Created {
			secret.Data[DataState] = encodeJSON(secretState{Created: true})
		}
	} else if made := t.name != s.first.name || decodeRecords(secret).Created; made && owner.MayAdopt(s.cluster.ownerReference(), secret.OwnerReferences) {
		s.takeOver(a)
	}
	removeRecords(secret)
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[kubeconfig.SecretKey] = d.value
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, AnnotationManager, s.config.providerName())
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, AnnotationPhase, string(cmp.Or(d.shown, r.State)))
	setRevision(secret, r.Revision)
	if r.condition != nil {
		secret.Annotations[AnnotationConditions] = string(encodeJSON([]metav1.Condition{*r.condition}))
	}
}

// renderHandBack takes away the provider's annotations, but for the mark of who made the Secret, and the
// number of another route: by that the webhook knows the write for the provider's own, until the next
// plan. Then the memory goes.
func (s *state) renderHandBack(a *Action, d decision) {
	removeRecords(a.Update)
	if d.value != nil {
		a.Update.Data[kubeconfig.SecretKey] = d.value
	}
	m := d.about.memory
	if m == nil {
		return
	}
	setRevision(a.Update, d.records.Revision+1)
	if memoryManager(m) != "" {
		a.Records = m.DeepCopy()
		a.Records.Annotations[AnnotationPhase] = string(stateHandedBack)
		a.Records.OwnerReferences = owner.With(s.cluster.ownerReference(), m.OwnerReferences)
	}
}

// takeOver makes the Cluster the owner of what a restore has left.
func (s *state) takeOver(a *Action) {
	if ours := s.cluster.ownerReference(); !owner.Owns(ours, a.Update.OwnerReferences) {
		a.Update.OwnerReferences = owner.With(ours, a.Update.OwnerReferences)
		a.addEvent(corev1.EventTypeNormal, ReasonAdopted, "the Secret "+a.Update.Name+" is taken over: it has the name and the marks of ours, and no owner that is there")
	}
}

func (s *state) newSecret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.cluster.Namespace, Name: name,
			Labels:          map[string]string{kubeconfig.ClusterNameLabel: s.cluster.Name},
			OwnerReferences: []metav1.OwnerReference{s.cluster.ownerReference()},
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}
}

// renderCondition makes the verdict a condition. If the one before says the same, its time stays; so does its
// message if the two differ only in numbers, since ports and addresses may change at each probe. There
// is an Event unless the Cluster or the Secret has this status and reason.
func (s *state) renderCondition(a *Action, d decision) {
	v, before := d.verdict, d.records.condition
	if v == nil {
		return
	}
	if before == nil || v.isTold(s.cluster.Condition) && !v.isTold(before) {
		before = s.cluster.Condition
	}
	c := &metav1.Condition{
		Type: ConditionRoute, Status: v.status, Reason: v.reason, Message: v.message,
		LastTransitionTime: metav1.Time{Time: s.config.Now.UTC().Truncate(timeUnit)}, ObservedGeneration: s.cluster.Generation,
	}
	a.Condition = c
	if before != nil && before.Status == c.Status {
		c.LastTransitionTime = before.LastTransitionTime
	}
	if before != nil && before.Reason == c.Reason && withoutNumbers(before.Message) == withoutNumbers(c.Message) {
		c.Message = before.Message
	}
	switch {
	case v.isTold(before):
	case v.reason == ReasonNoSecret && (before == nil || before.Status != metav1.ConditionTrue): // another is about to make it
	case v.status == metav1.ConditionFalse, v.reason == ReasonSecretUnbound:
		a.addEvent(corev1.EventTypeWarning, c.Reason, c.Message)
	case v.status == metav1.ConditionTrue && before != nil:
		a.addEvent(corev1.EventTypeNormal, c.Reason, c.Message)
	}
}

// isTold reports whether c has the status and the reason.
func (v *verdict) isTold(c *metav1.Condition) bool {
	return c != nil && c.Status == v.status && c.Reason == v.reason
}

// WriteFailed returns what to tell if the write of an Action failed with err: the
// condition that says so, and one Event unless the Cluster has that condition already.
// The Action that it returns writes no Secret. Only config.Name and Now are read.
//
// A conflict, and a Secret to update or delete that is gone, are no failures: the plan that
// follows sees the newer objects. A Secret to create that exists is one, unless the cache
// was only late: the caller looks for that.
func WriteFailed(cluster Cluster, failed Action, config Config, err error) Action {
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && failed.Create == nil {
		return Action{}
	}
	s := &state{cluster: cluster, config: config}
	name := cluster.Name + kubeconfigSuffix
	for _, secret := range []*corev1.Secret{failed.Records, failed.Create, failed.Update, failed.Delete} {
		if secret != nil {
			name = secret.Name
		}
	}
	v := notReady(ReasonWriteFailed, fmt.Sprintf("the Secret %s can't be written: %v. %s", name, err, writeAdvice(err)))
	a := s.render(decision{verdict: &v})
	a.Managed = failed.Managed
	return a
}

// writeAdvice says what to do about a write that failed.
func writeAdvice(err error) string {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "Give the provider the right to get, list, watch, create, update and delete Secrets there, or look at the admission policy that the message names"
	case apierrors.IsAlreadyExists(err):
		return "The Secret that is there lacks the label " + kubeconfig.ClusterNameLabel + ": set it, or delete the Secret"
	case apierrors.IsInvalid(err):
		return "If the Secret is immutable, delete it: it is made again, by the control plane or by the provider"
	}
	return "It is tried again, less and less often"
}

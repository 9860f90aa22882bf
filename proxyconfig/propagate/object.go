package propagate

import (
	"fmt"
	"io"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/internal/owner"
)

// LabelManagedBy is the label by whose value an object says whose it is.
const LabelManagedBy = "giantswarm.io/managed-by"

const (
	kindSecret    = "Secret"
	kindConfigMap = "ConfigMap"

	clusterNameLabel = clusterapi.Group + "/cluster-name"
)

// SuffixOverride is behind the Cluster's name in that of the Secret that people write.
// [Config.Suffixes] has those of what is written.
const SuffixOverride = "-proxy-override"

// Object is one that is to be written: one of the fields is set. It is created
// where it has no resourceVersion, and updated with the one that was read.
type Object struct {
	Secret    *corev1.Secret
	ConfigMap *corev1.ConfigMap
}

func (o Object) objectParts() (kind string, meta *metav1.ObjectMeta, immutable *bool) {
	if o.Secret != nil {
		return kindSecret, &o.Secret.ObjectMeta, o.Secret.Immutable
	}
	return kindConfigMap, &o.ConfigMap.ObjectMeta, o.ConfigMap.Immutable
}

// String is the kind and the name of the object.
func (o Object) String() string {
	if o == (Object{}) {
		return "nothing"
	}
	kind, meta, _ := o.objectParts()
	return kind + " " + meta.Namespace + "/" + meta.Name
}

// Format writes String, whatever the verb.
func (o Object) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, o.String()) }

// MarshalText returns String.
func (o Object) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// NotOursError says that an object is in the way: it has another's label
// giantswarm.io/managed-by, or none, or the label and something else that ours do not
// have, or can't be changed. It is left as it is.
type NotOursError struct {
	Object    string // kind namespace/name
	Want      string // Config.ManagedBy
	ManagedBy string // the label's value; "" without the label
	Immutable bool   // it is ours
	Foreign   string // with our label: what ours do not have; "" for nothing
}

// Error says what to do about it.
func (e *NotOursError) Error() string {
	switch {
	case e.Immutable:
		return fmt.Sprintf("propagate: %s is immutable: delete it, and it is made anew", e.Object)
	case e.Foreign != "":
		return fmt.Sprintf("propagate: %s has our label, but is not ours, and is left as it is: it has %s: delete it, and it is made anew", e.Object, e.Foreign)
	case e.ManagedBy == "":
		return fmt.Sprintf("propagate: %s has no label %s, and is left as it is: delete it, or set the label to %s", e.Object, LabelManagedBy, e.Want)
	}
	return fmt.Sprintf("propagate: %s is managed by %s, and is left as it is: give ours another name by ValuesName or SystemdName (--values-name, --systemd-name), "+
		"or set its label %s to %s, and its values give way to ours", e.Object, e.ManagedBy, LabelManagedBy, e.Want)
}

// isOurs reports whether a held object may be written, and says so if not. By the label a
// person says that it may. That is no proof: beside a Cluster, the Cluster owns it, or it may
// be what a restore has left, which is taken over.
func (p *planner) isOurs(held Object) bool {
	_, meta, immutable := held.objectParts()
	e := NotOursError{Object: held.String(), Want: p.config.managedBy(), ManagedBy: meta.Labels[LabelManagedBy]}
	if e.ManagedBy == e.Want {
		e.Immutable = immutable != nil && *immutable
		e.Foreign = p.foreignPart(held, meta)
		if !e.Immutable && e.Foreign == "" {
			return true
		}
	}
	p.errs = append(p.errs, &e)
	p.action.Events = append(p.action.Events, warningEvent(ReasonNotOurs, &e))
	p.action.After = recheck
	return false
}

// foreignPart returns what an object with our label has and ours do not; "" for nothing.
func (p *planner) foreignPart(held Object, meta *metav1.ObjectMeta) string {
	if s := held.Secret; s != nil && s.Type != "" && s.Type != corev1.SecretTypeOpaque {
		return "the type " + string(s.Type)
	}
	if p.cluster.UID != "" && !owner.MayAdopt(p.cluster.ownerReference(), meta.OwnerReferences) {
		return "another owner than the Cluster"
	}
	return ""
}

// tellAdopted tells of an object that the Cluster did not own yet.
func (p *planner) tellAdopted(held Object) {
	if _, meta, _ := held.objectParts(); !owner.Owns(p.cluster.ownerReference(), meta.OwnerReferences) {
		p.action.Events = append(p.action.Events, Event{corev1.EventTypeNormal, ReasonAdopted,
			held.String() + " is taken over: it has the name and the label of ours, and no owner that is there"})
	}
}

// planObject creates or updates an object.
func (p *planner) planObject(held, want Object) {
	if held == (Object{}) {
		_, meta, _ := want.objectParts()
		meta.OwnerReferences = owner.With(p.cluster.ownerReference(), nil)
		p.action.Writes = append(p.action.Writes, want)
		return
	}
	if !p.isOurs(held) {
		return
	}
	p.tellAdopted(held)
	next := Object{held.Secret.DeepCopy(), held.ConfigMap.DeepCopy()}
	if s := next.Secret; s != nil {
		s.Data = mergeMap(s.Data, want.Secret.Data)
		p.mergeMetadata(&s.ObjectMeta, want.Secret.ObjectMeta)
	} else {
		m := next.ConfigMap
		m.Data = mergeMap(m.Data, want.ConfigMap.Data)
		for key := range want.ConfigMap.Data {
			delete(m.BinaryData, key) // no key may be in both
		}
		p.mergeMetadata(&m.ObjectMeta, want.ConfigMap.ObjectMeta)
	}
	if !equality.Semantic.DeepEqual(held, next) {
		p.action.Writes = append(p.action.Writes, next)
	}
}

// adoptOverride gives the override to the Cluster, so that clusterctl move and backups take
// it along. What another controller made stays as it is.
func (p *planner) adoptOverride() {
	held, us := p.held.Override, p.cluster.ownerReference()
	if held == nil || held.Labels[clusterNameLabel] == us.Name && owner.Owns(us, held.OwnerReferences) || p.foreignPart(Object{Secret: held}, &held.ObjectMeta) != "" {
		return
	}
	next := held.DeepCopy()
	next.Labels = mergeMap(next.Labels, map[string]string{clusterNameLabel: us.Name})
	next.OwnerReferences = owner.With(us, next.OwnerReferences)
	p.action.Writes = append(p.action.Writes, Object{Secret: next})
}

func (p *planner) mergeMetadata(to *metav1.ObjectMeta, want metav1.ObjectMeta) {
	to.Labels = mergeMap(to.Labels, want.Labels)
	delete(to.Annotations, LabelOverride)
	to.Annotations = mergeMap(to.Annotations, want.Annotations)
	to.OwnerReferences = owner.With(p.cluster.ownerReference(), to.OwnerReferences)
}

// mergeMap keeps the keys that are not in want.
func mergeMap[V any](to, want map[string]V) map[string]V {
	if to == nil {
		to = map[string]V{}
	}
	maps.Copy(to, want)
	return to
}

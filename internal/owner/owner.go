// Package owner says by owner references whose an object is. A label, an annotation and a
// name are no proof: whoever may write to a namespace can set them.
package owner

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Owns reports whether one of the references is to the owner: the same group, kind, name and
// UID. Another version of the group is the same owner.
func Owns(owner metav1.OwnerReference, refs []metav1.OwnerReference) bool {
	for _, ref := range refs {
		if sameName(owner, ref) && ref.UID == owner.UID {
			return owner.UID != ""
		}
	}
	return false
}

// MayAdopt reports whether an object that the owner does not own can be what a restore has
// left of one that it did: without any reference, or with one to an owner of the same group,
// kind and name with another UID. The caller looks at the object's name and content, too.
func MayAdopt(owner metav1.OwnerReference, refs []metav1.OwnerReference) bool {
	for _, ref := range refs {
		if sameName(owner, ref) {
			return true
		}
	}
	return len(refs) == 0
}

// With returns the references with one to the owner, instead of those to an owner of the same
// group, kind and name with another UID, which is gone. It does not write to refs.
func With(owner metav1.OwnerReference, refs []metav1.OwnerReference) []metav1.OwnerReference {
	var kept []metav1.OwnerReference
	for _, ref := range refs {
		if !sameName(owner, ref) || ref.UID == owner.UID {
			kept = append(kept, ref)
		}
	}
	if !Owns(owner, kept) {
		kept = append(kept, owner)
	}
	return kept
}

func sameName(a, b metav1.OwnerReference) bool {
	ga, errA := schema.ParseGroupVersion(a.APIVersion)
	gb, errB := schema.ParseGroupVersion(b.APIVersion)
	return errA == nil && errB == nil && ga.Group == gb.Group && a.Kind == b.Kind && a.Name == b.Name
}

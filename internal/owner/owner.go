// Package owner says by owner references whose an object is. A label, an annotation and a
// name are no proof: whoever may write to a namespace can set them.
package owner

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Owns reports whether one of the references is to the owner: the same group, kind, name and
// UID. Another version of the group is the same owner.
func Owns(owner metav1.OwnerReference, refs []metav1.OwnerReference) bool {
	return owner.UID != "" && slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool {
		return sameName(owner, ref) && ref.UID == owner.UID
	})
}

// MayAdopt reports whether an object that the owner does not own can be what a restore has
// left of one that it did: without any reference, or with one to an owner of the same group,
// kind and name with another UID. The caller looks at the object's name and content, too.
func MayAdopt(owner metav1.OwnerReference, refs []metav1.OwnerReference) bool {
	return len(refs) == 0 || slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return sameName(owner, ref) })
}

// With returns the references with one to the owner, instead of those to an owner of the same
// group, kind and name with another UID, which is gone. It does not write to refs.
func With(owner metav1.OwnerReference, refs []metav1.OwnerReference) []metav1.OwnerReference {
	kept := slices.DeleteFunc(slices.Clone(refs), func(ref metav1.OwnerReference) bool {
		return sameName(owner, ref) && ref.UID != owner.UID
	})
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

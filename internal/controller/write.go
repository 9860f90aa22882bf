package controller

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// WriteError says which write failed, of what kind of object, and leaves out
// what an API server quotes of the object that it refuses. A nil err stays nil.
func (c *Controller) WriteError(verb, kind string, name types.NamespacedName, err error) error {
	if err == nil {
		return nil
	}
	if apierrors.IsInvalid(err) {
		return fmt.Errorf("%s: %s %s %s: the API server finds it invalid (%s)", c.Name, verb, kind, name, apierrors.ReasonForError(err))
	}
	return fmt.Errorf("%s: %s %s %s: %w", c.Name, verb, kind, name, err)
}

// Older says whether resourceVersion a is before b. What can't be compared is
// not.
func Older(a, b string) bool {
	n, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && n < 0
}

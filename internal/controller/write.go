package controller

import (
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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

// Older reports whether resourceVersion a is before b. It is false if one of
// them is not a number. (apimachinery compares them since 0.35.)
func Older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}

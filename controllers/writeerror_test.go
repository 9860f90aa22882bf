package controllers_test

import (
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/controllers"
)

// TestPolicyRefusal: an admission policy's text reaches people, a validation's does not.
func TestPolicyRefusal(t *testing.T) {
	const policy = `secrets "a" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: `
	tests := []struct {
		name, message, field string
		want                 string
	}{
		{"a policy", policy + "no labels", "", "create Secret org/a: forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no labels"},
		{"control characters", policy + "a\nb\x1b", "", "create Secret org/a: forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: a b?"},
		{"a validation", `Secret "a" is invalid: data: Invalid value: "hunter2"`, "data", "create Secret org/a: the API server finds it invalid: data Invalid"},
		{"a validation that quotes a policy", policy + "hunter2", "data", "create Secret org/a: the API server finds it invalid: data Invalid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
				Message: tt.message, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "FieldValueInvalid", Message: tt.message, Field: tt.field}}}}}
			got := controllers.WriteError("create", "Secret", types.NamespacedName{Namespace: "org", Name: "a"}, err)
			if got == nil || got.Error() != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
	long := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Details: &metav1.StatusDetails{}, Message: policy + strings.Repeat("x", 10000)}}
	if got := controllers.WriteError("create", "Secret", types.NamespacedName{}, long); len(got.Error()) > 1000 {
		t.Errorf("got %d bytes, want at most 1000", len(got.Error()))
	}
}

func TestWriteShown(t *testing.T) {
	for _, tt := range []struct {
		name, written string
		deleted       bool
		cached        string
		want          bool
	}{
		{"written, not there yet", "9", false, "", false},
		{"written, an older one", "10", false, "9", false},
		{"written", "10", false, "10", true},
		{"written, a newer one", "10", false, "11", true},
		{"deleted, still there", "10", true, "10", false},
		{"deleted", "10", true, "", true},
		{"deleted, and made again", "10", true, "11", true},
	} {
		if got := controllers.WriteShown(tt.written, tt.deleted, tt.cached); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}

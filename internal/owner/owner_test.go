package owner_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/owner"
)

type refs = []metav1.OwnerReference

func ref(apiVersion, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid}
}

// What somebody can write as owners, and whether it makes an object the Cluster's.
func TestReferences(t *testing.T) {
	const v1beta2, v1beta1 = "cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1"
	ours := ref(v1beta2, "Cluster", "one", "a")
	tests := []struct {
		name        string
		refs        refs
		owns, adopt bool
		with        refs
	}{
		{"none", nil, false, true, refs{ours}},
		{"ours", refs{ours}, true, true, refs{ours}},
		{"ours in another version", refs{ref(v1beta1, "Cluster", "one", "a")}, true, true, refs{ref(v1beta1, "Cluster", "one", "a")}},
		{"a UID that is gone, or made up", refs{ref(v1beta1, "Cluster", "one", "b")}, false, true, refs{ours}},
		{"the UID with another name", refs{ref(v1beta2, "Cluster", "two", "a")}, false, false, refs{ref(v1beta2, "Cluster", "two", "a"), ours}},
		{"the UID with another kind", refs{ref(v1beta2, "Machine", "one", "a")}, false, false, refs{ref(v1beta2, "Machine", "one", "a"), ours}},
		{"the UID with another group", refs{ref("x/v1beta2", "Cluster", "one", "a")}, false, false, refs{ref("x/v1beta2", "Cluster", "one", "a"), ours}},
		{"another's beside ours", refs{ref("v1", "ConfigMap", "x", "x"), ours}, true, true, refs{ref("v1", "ConfigMap", "x", "x"), ours}},
		{"another's beside one that is gone", refs{ref("v1", "ConfigMap", "x", "x"), ref(v1beta2, "Cluster", "one", "b")}, false, true, refs{ref("v1", "ConfigMap", "x", "x"), ours}},
		{"no version", refs{ref("a/b/c", "Cluster", "one", "a")}, false, false, refs{ref("a/b/c", "Cluster", "one", "a"), ours}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if owns, adopt := owner.Owns(ours, tt.refs), owner.MayAdopt(ours, tt.refs); owns != tt.owns || adopt != tt.adopt {
				t.Errorf("got %t, %t, want %t, %t", owns, adopt, tt.owns, tt.adopt)
			}
			if diff := cmp.Diff(tt.with, owner.With(ours, tt.refs)); diff != "" {
				t.Errorf("With (-want +got):\n%s", diff)
			}
		})
	}
	if unknown := ref(v1beta2, "Cluster", "one", ""); owner.Owns(unknown, refs{unknown}) {
		t.Error("a Cluster without a UID owns something")
	}
}

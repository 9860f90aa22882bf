package proxyconfig

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// LabelInject is the label of a pod, or of a namespace, that decides about it:
// "false" keeps the variables out of it, "true" puts them in where a namespace
// is left out. Any other value says nothing.
const LabelInject = "causewayproject.github.io/inject-proxy"

// A Scope says which pods get the proxy's variables. The first of these rules that
// applies counts:
//
//   - A mirror pod does not: the kubelet runs what its file
//     says, so that it would only seem to have them.
//   - The pod's label LabelInject.
//   - A rule of Always gets it.
//   - The namespace's label LabelInject.
//   - A namespace of Skip does not.
//   - All others do.
type Scope struct {
	// Skip are the names of namespaces whose pods are left out. If nil,
	// kube-system; if empty but not nil, none.
	Skip []string
	// Always are pods of namespaces that are left out: cert-manager in
	// kube-system, for one, has to reach its certificate authority.
	Always []Rule
}

// A Rule selects pods.
type Rule struct {
	// Namespace is the name of their namespace. Empty for any.
	Namespace string
	// Pods selects them by label. If nil, all.
	Pods *metav1.LabelSelector
}

// A Namespace is what Wants knows of the pod's.
type Namespace struct {
	// Name is required: a pod may lack its namespace before it is created.
	Name string
	// Labels may be nil where they are not known: LabelInject counts for nothing
	// then.
	Labels map[string]string
}

type scope struct {
	skip   []string
	always []rule
}

type rule struct {
	namespace string
	pods      labels.Selector
}

func (r rule) covers(ns Namespace) bool { return r.namespace == "" || r.namespace == ns.Name }

func (s *Scope) compile() (scope, error) {
	c := scope{skip: slices.Clone(s.Skip)}
	if s.Skip == nil {
		c.skip = []string{metav1.NamespaceSystem}
	}
	for _, r := range s.Always {
		pods, err := metav1.LabelSelectorAsSelector(cmp.Or(r.Pods, &metav1.LabelSelector{})) // which selects all
		if err != nil {
			return c, fieldError("Scope.Always", err)
		}
		c.always = append(c.always, rule{r.Namespace, pods})
	}
	return c, nil
}

// A Reason is why a pod gets the variables or not.
type Reason string

// The Reasons, in the order in which they count.
const (
	MirrorPod        Reason = "mirror pod"
	PodLabel         Reason = "label of the pod"
	AlwaysRule       Reason = "rule"
	NamespaceLabel   Reason = "label of the namespace"
	NamespaceSkipped Reason = "namespace is left out"
	Default          Reason = "default"
)

// Wants reports whether a pod is in the Scope, and what decided.
func (i *Injector) Wants(ns Namespace, pod *metav1.ObjectMeta) (bool, Reason) {
	s := &i.scope
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false, MirrorPod
	}
	if said, wanted := injectLabel(pod.Labels); said {
		return wanted, PodLabel
	}
	if slices.ContainsFunc(s.always, func(r rule) bool { return r.covers(ns) && r.pods.Matches(labels.Set(pod.Labels)) }) {
		return true, AlwaysRule
	}
	if said, wanted := injectLabel(ns.Labels); said {
		return wanted, NamespaceLabel
	}
	if slices.Contains(s.skip, ns.Name) {
		return false, NamespaceSkipped
	}
	return true, Default
}

// WantsNamespace reports whether the Scope has pods of the namespace, by a rule or
// without labels of their own: there the Secret of Options has to be. Pods whose own
// label takes them in elsewhere don't count.
func (i *Injector) WantsNamespace(ns Namespace) bool {
	if slices.ContainsFunc(i.scope.always, func(r rule) bool { return r.covers(ns) }) {
		return true
	}
	wanted, _ := i.Wants(ns, &metav1.ObjectMeta{})
	return wanted
}

func injectLabel(l map[string]string) (said, wanted bool) {
	value := l[LabelInject]
	return value == "true" || value == "false", value == "true"
}

package proxyconfig_test

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/proxyconfig"
)

func TestScope(t *testing.T) {
	inject := func(value string) map[string]string { return map[string]string{proxyconfig.LabelInject: value} }
	mirror := metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.mirror": "x"}, Labels: inject("true")}
	certManager := metav1.ObjectMeta{Labels: map[string]string{"app": "cert-manager"}}
	always := proxyconfig.Scope{Always: []proxyconfig.Rule{{Namespace: "kube-system", Pods: &metav1.LabelSelector{MatchLabels: certManager.Labels}}}}
	system := proxyconfig.Namespace{Name: "kube-system"}
	for _, tt := range []struct {
		name  string
		scope proxyconfig.Scope
		ns    proxyconfig.Namespace
		pod   metav1.ObjectMeta
		want  bool
		why   proxyconfig.Reason
	}{
		{"default", proxyconfig.Scope{}, proxyconfig.Namespace{Name: "a"}, metav1.ObjectMeta{}, true, proxyconfig.Default},
		{"kube-system", proxyconfig.Scope{}, system, metav1.ObjectMeta{}, false, proxyconfig.NamespaceSkipped},
		{"kube-system, configured", proxyconfig.Scope{Skip: []string{}}, system, metav1.ObjectMeta{}, true, proxyconfig.Default},
		{"another is skipped", proxyconfig.Scope{Skip: []string{"a"}}, proxyconfig.Namespace{Name: "a"}, metav1.ObjectMeta{}, false, proxyconfig.NamespaceSkipped},
		{"mirror pod", always, proxyconfig.Namespace{Name: "a"}, mirror, false, proxyconfig.MirrorPod},
		{"opted out", proxyconfig.Scope{}, proxyconfig.Namespace{Name: "a"}, metav1.ObjectMeta{Labels: inject("false")}, false, proxyconfig.PodLabel},
		{"opted in", proxyconfig.Scope{}, system, metav1.ObjectMeta{Labels: inject("true")}, true, proxyconfig.PodLabel},
		{"a word that says nothing", proxyconfig.Scope{}, proxyconfig.Namespace{Name: "a"}, metav1.ObjectMeta{Labels: inject("no")}, true, proxyconfig.Default},
		{"cert-manager's rule", always, system, certManager, true, proxyconfig.AlwaysRule},
		{"its neighbour", always, system, metav1.ObjectMeta{}, false, proxyconfig.NamespaceSkipped},
		{"its namesake elsewhere", always, proxyconfig.Namespace{Name: "b", Labels: inject("false")}, certManager, false, proxyconfig.NamespaceLabel},
		{"a rule for any namespace", proxyconfig.Scope{Always: []proxyconfig.Rule{{}}}, system, metav1.ObjectMeta{}, true, proxyconfig.AlwaysRule},
		{"a pod counts more than a rule", always, system, metav1.ObjectMeta{Labels: map[string]string{"app": "cert-manager", proxyconfig.LabelInject: "false"}}, false, proxyconfig.PodLabel},
		{"namespace opted out", proxyconfig.Scope{}, proxyconfig.Namespace{Name: "a", Labels: inject("false")}, metav1.ObjectMeta{}, false, proxyconfig.NamespaceLabel},
		{"namespace opted in", proxyconfig.Scope{}, proxyconfig.Namespace{Name: "kube-system", Labels: inject("true")}, metav1.ObjectMeta{}, true, proxyconfig.NamespaceLabel},
		{"a pod counts more than its namespace", proxyconfig.Scope{}, proxyconfig.Namespace{Name: "a", Labels: inject("false")}, metav1.ObjectMeta{Labels: inject("true")}, true, proxyconfig.PodLabel},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := newInjector(t, proxyconfig.Options{Config: openConfig, Scope: tt.scope})
			if got, why := i.Wants(tt.ns, &tt.pod); got != tt.want || why != tt.why {
				t.Errorf("got %t because of %q, want %t because of %q", got, why, tt.want, tt.why)
			}
		})
	}
}

func TestScopeRefuses(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "like"}}}
	for field, scope := range map[string]proxyconfig.Scope{
		"Scope.Always": {Always: []proxyconfig.Rule{{Pods: bad}}},
	} {
		_, err := proxyconfig.NewInjector(proxyconfig.Options{Scope: scope})
		var got *proxyconfig.FieldError
		if !errors.As(err, &got) || got.Field != field {
			t.Errorf("got %v, want a FieldError of %s", err, field)
		}
	}
}

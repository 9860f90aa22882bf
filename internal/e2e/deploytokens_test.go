package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
)

// tokenAudience is the one of the component token-review.
const tokenAudience = "tunnel-server-gateway.tunnel-server.svc"

// reviewRights are those that the component gives.
var reviewRights = []string{
	"subjectaccessreviews.authorization.k8s.io [] [] [create]",
	"tokenreviews.authentication.k8s.io [] [] [create]",
}

// component applies a base with a component, as an overlay does.
func (d *deploying) component(base, component string) {
	d.t.Helper()
	examples, err := filepath.Abs("../../examples/deploy")
	if err == nil {
		examples, err = filepath.Rel(d.path(component), examples)
	}
	text := fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%[1]s/%[2]s]
components: [%[1]s/components/%[3]s]
`, examples, base, component)
	if err == nil {
		err = os.Mkdir(d.path(component), 0o755)
	}
	if err == nil {
		err = os.WriteFile(d.path(component, "kustomization.yaml"), []byte(text), 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.applyDir(base, d.path(component))
}

var ticketInURL = regexp.MustCompile(`proxy-url: http://[^@]*@`)

// reviewTokens: with the component, a replica lets ServiceAccounts in that RBAC
// lets connect, and nobody else; it has two rights more, and without it none are.
func (s *tunnelPods) reviewTokens(config string) {
	s.t.Helper()
	s.d.component(serverBase, "token-review")
	for _, tt := range rights {
		if tt.account == serverBase {
			s.gains(tt.namespace, slices.Sorted(slices.Values(slices.Concat(tt.want, reviewRights))))
		}
	}
	replica := s.restart()
	replica.ready(s.t)
	token := s.clients()
	annie := token("annie", tokenAudience)
	config = ticketInURL.ReplaceAllString(config, "proxy-url: http://default%2Fprod:"+annie+"@")
	s.reach(config, replica.address("connect"), "namespace/default\n")
	for _, tt := range []struct {
		name           string
		replica        *pod
		cluster, token string
		want           int
	}{
		{"the right", replica, workloadName, annie, 200},
		{"another cluster", replica, "default/other", annie, 403},
		{"no right", replica, workloadName, token("bob", tokenAudience), 403},
		{"for the API server", replica, workloadName, token("annie"), 407},
		{"changed", replica, workloadName, annie[:len(annie)-8] + "AAAAAAAA", 407},
		{"a replica without the component", s.pods[0], workloadName, annie, 407},
	} {
		if got := connectFrom(s.t, s.d.Node, tt.replica.address("connect"), tt.cluster, tt.token); got != tt.want {
			s.t.Errorf("%s: got status %d, want %d", tt.name, got, tt.want)
		}
	}
}

// gains waits until the server has these rights, which the API server learns of
// in a moment.
func (s *tunnelPods) gains(namespace string, want []string) {
	s.t.Helper()
	eventually(s.t, "the rights in "+namespace, func(context.Context) error {
		if got := s.d.rightsOf(s.t, serverBase, namespace); !slices.Equal(got, want) {
			return fmt.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

// clients makes the ServiceAccounts annie, who may connect to the workload cluster,
// and bob, and returns what gives them tokens.
func (s *tunnelPods) clients() (of func(account string, audiences ...string) string) {
	s.t.Helper()
	s.d.create(s.t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clientsNamespace}})
	for _, name := range []string{"annie", "bob"} {
		s.d.create(s.t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: clientsNamespace, Name: name}})
	}
	namespace, name, _ := strings.Cut(workloadName, "/")
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "tunnel-" + name}
	s.d.create(s.t, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{tunnelkube.AccessRule(name)}})
	s.d.create(s.t, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: clientsNamespace, Name: "annie"}}})
	admin, err := clientset.NewForConfig(s.d.Kube.Config())
	if err != nil {
		s.t.Fatal(err)
	}
	return func(account string, audiences ...string) string {
		s.t.Helper()
		return token(s.t, admin, clientsNamespace, account, audiences...)
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// A policyRow is a write that a program's account tries, and whether the policy refuses it.
type policyRow struct {
	name    string
	try     func(context.Context, client.Client) error
	refused string // a part of the policy's message; "" if it lets the write pass
}

// TestPolicies: with the token of a program nobody can write what the program does not,
// above all no Secret that makes a token; and the program can write what it does, also in
// another namespace than the base's. Accounts of the same name elsewhere are not narrowed.
func TestPolicies(t *testing.T) {
	t.Parallel() // waits much
	d := startEmpty(t, "policies")
	d.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "org"}})
	kcp := secretOf("two-kubeconfig", kubeconfig.SecretType, "value", "tls.crt")
	kcp.Labels = map[string]string{kubeconfig.ClusterNameLabel: "two"}
	foreign := secretOf("foreign", corev1.SecretTypeOpaque, "value", "values")
	foreign.Labels = map[string]string{kubeconfig.ClusterNameLabel: "one"}
	d.create(t, kcp)
	d.create(t, foreign)
	d.create(t, ofProvider(secretOf("one-kubeconfig", corev1.SecretTypeOpaque, "value")))
	d.create(t, ofProvider(secretOf("one-proxied", corev1.SecretTypeOpaque, "value")))
	d.create(t, ofPropagator(secretOf("one-systemd-proxy", corev1.SecretTypeOpaque, "containerdProxy", "theirs")))
	d.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "org", Name: "foreign"}})
	theirs := ofPropagator(secretOf("one-theirs", corev1.SecretTypeOpaque, "values"))
	theirs.Labels[propagate.LabelManagedBy] = "other"
	restored := ofPropagator(secretOf("one-restored", corev1.SecretTypeOpaque, "values"))
	others := ofServer(secretOf("two-tunnel-route", corev1.SecretTypeOpaque, "password"))
	others.Labels = nil
	users := ofProvider(secretOf("three-kubeconfig", corev1.SecretTypeOpaque, "value", "other"))
	users.Labels[kubeconfig.ClusterNameLabel] = "three"
	users.OwnerReferences, restored.OwnerReferences = nil, nil
	made := ofProvider(secretOf("four-kubeconfig", corev1.SecretTypeOpaque, "value"))
	made.Labels[kubeconfig.ClusterNameLabel], made.OwnerReferences = "four", nil
	made.Data[provider.DataState] = []byte(`{"phase":"Ready","created":true}`)
	second := made.DeepCopy()
	second.Name = "four-proxied"
	override := secretOf("one-proxy-override", corev1.SecretTypeOpaque, "values", "direct")
	override.Labels = map[string]string{propagate.LabelOverride: ""}
	owned := ofCluster(override.DeepCopy())
	owned.Name, owned.OwnerReferences[0].Name = "owned-proxy-override", "owned"
	for _, object := range []client.Object{override, owned, theirs, restored, others, users, made, second, ofServer(secretOf("one-tunnel-route", corev1.SecretTypeOpaque, "password")),
		ofPropagator(secretOf("proxy", corev1.SecretTypeOpaque, "HTTP_PROXY"))} {
		d.create(t, object)
	}
	one := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "org", Name: "one"},
		Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443}}}
	d.create(t, one)
	one.Status.Phase = string(clusterv1.ClusterPhaseProvisioned)
	for _, kind := range []string{"Available", provider.ConditionRoute, provider.ConditionTunnel} {
		one.Status.Conditions = append(one.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "X", LastTransitionTime: metav1.Now()})
	}
	if err := d.admin.Status().Update(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	for base, rows := range map[string]func(namespace string) []policyRow{"kubeconfig-provider": providerRows, "proxy-propagator": propagatorRows, "tunnel-server": serverRows, "proxy-injector": injectorRows} {
		for _, namespace := range []string{base, "renamed-" + base} {
			d.applyIn(base, namespace)
			account := d.accountClient(t, namespace, base)
			token := secretOf("token", corev1.SecretTypeServiceAccountToken)
			if base == "tunnel-server" { // it has other rights there
				token.Namespace = namespace
			}
			token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
			eventually(t, "the policy of "+base, func(ctx context.Context) error {
				if err := account.Create(ctx, token.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "of the type Opaque") {
					return fmt.Errorf("got %v of a ServiceAccount's token, want it refused", err)
				}
				return nil
			})
			for _, row := range append(rows(namespace), statusRows(base)...) {
				err := row.try(t.Context(), account)
				if (err == nil) != (row.refused == "") || err != nil && !strings.Contains(err.Error(), row.refused) {
					t.Errorf("%s in %s: %s: got %v, want %q", base, namespace, row.name, err, row.refused)
				}
			}
		}
		d.testUnnarrowed(t, base)
	}
}

// testUnnarrowed: others' accounts with the program's name do as RBAC lets them.
func (d *deploying) testUnnarrowed(t *testing.T, name string) {
	t.Helper()
	d.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-other"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}}}})
	for namespace, role := range map[string]string{"kube-system": "cluster-admin", "default": name + "-other"} {
		d.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}})
		account := d.accountClient(t, namespace, name)
		eventually(t, "what "+role+" may do", func(ctx context.Context) error {
			return account.Create(ctx, secretOf("anything", "helm.sh/release.v1", "release"), client.DryRunAll)
		})
	}
}

// applyIn applies a base in a namespace, as an overlay does.
func (d *deploying) applyIn(base, namespace string) {
	d.t.Helper()
	dir := d.path("in-" + namespace)
	from, err := filepath.Abs("../../examples/deploy/" + base)
	if err == nil {
		from, err = filepath.Rel(dir, from)
	}
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		text := fmt.Appendf(nil, "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: %s\nresources: [%s]\n", namespace, from)
		if component := narrowed[base]; component != "" {
			text = fmt.Appendf(text, "components: [%s]\n", filepath.Join(from, "../components", component))
		}
		err = os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.kubectl(d.t, "", "apply", "--server-side", "--validate=strict", "-k", dir)
}

// narrowed are the components whose policies are tested.
var narrowed = map[string]string{"tunnel-server": "cluster-agents", "proxy-injector": "pod-secrets"}

// accountClient acts as a ServiceAccount.
func (d *deploying) accountClient(t *testing.T, namespace, name string) client.Client {
	t.Helper()
	config := rest.CopyConfig(d.Kube.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func secretOf(name string, kind corev1.SecretType, keys ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "org", Name: name}, Type: kind, Data: map[string][]byte{}}
	for _, key := range keys {
		s.Data[key] = []byte("x")
	}
	return s
}

// ofCluster has the Cluster one own the Secret.
func ofCluster(s *corev1.Secret) *corev1.Secret {
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "one", UID: "uid"}}
	return s
}

func ofProvider(s *corev1.Secret) *corev1.Secret {
	s.Labels = map[string]string{kubeconfig.ClusterNameLabel: "one"}
	s.Annotations = map[string]string{provider.AnnotationManager: "causeway"}
	return ofCluster(s)
}

func ofPropagator(s *corev1.Secret) *corev1.Secret {
	s.Labels = map[string]string{propagate.LabelManagedBy: "causeway"}
	return ofCluster(s)
}

func ofServer(s *corev1.Secret) *corev1.Secret {
	s.Labels = map[string]string{kubeconfig.ClusterNameLabel: "one", provider.LabelTunnel: "true"}
	return ofCluster(s)
}

// metaRows are what no program does to a Secret of its own.
func metaRows(name string) []policyRow {
	update := func(change func(*corev1.Secret)) func(context.Context, client.Client) error {
		return tryUpdate(name, change)
	}
	immutable := true
	return []policyRow{
		{"another label", update(func(s *corev1.Secret) { s.Labels["argocd.argoproj.io/secret-type"] = "cluster" }), "sets no labels"},
		{"another annotation", update(func(s *corev1.Secret) { s.Annotations = map[string]string{"theirs": "x"} }), "sets no annotations"},
		{"another key", update(func(s *corev1.Secret) { s.Data["tls.key"] = []byte("x") }), "sets no keys"},
		{"immutable", update(func(s *corev1.Secret) { s.Immutable = &immutable }), "sets neither"},
		{"a finalizer", update(func(s *corev1.Secret) { s.Finalizers = []string{"example.com/x"} }), "sets neither"},
		{"a second Cluster", update(func(s *corev1.Secret) {
			s.OwnerReferences = append(s.OwnerReferences, ofCluster(&corev1.Secret{}).OwnerReferences...)
			s.OwnerReferences[len(s.OwnerReferences)-1].UID = "gone"
		}), "changes no owners"},
		{"another's owner", update(func(s *corev1.Secret) {
			s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"})
		}), "changes no owners"},
	}
}

func serverRows(string) []policyRow {
	route := func(name string, keys ...string) *corev1.Secret {
		return ofServer(secretOf(name, corev1.SecretTypeOpaque, keys...))
	}
	key := func(keys ...string) *corev1.Secret {
		s := ofServer(secretOf("key", corev1.SecretTypeSSHAuth, keys...))
		delete(s.Labels, provider.LabelTunnel)
		return s
	}
	labelled, unowned, alien := route("one-tunnel-agent", provider.KeyAgentUnit), key(corev1.SSHAuthPrivateKey), key(corev1.SSHAuthPrivateKey)
	labelled.Labels["argocd.argoproj.io/secret-type"] = "cluster"
	unowned.OwnerReferences = nil
	alien.Labels[kubeconfig.ClusterNameLabel] = "two"
	system := route("one-tunnel-agent", provider.KeyAgentUnit)
	system.Namespace = metav1.NamespaceSystem
	return append(metaRows("one-tunnel-route"), []policyRow{
		{"the agents'", tryCreate(route("one-tunnel-agent", provider.KeyAgentInvitation, provider.KeyAgentUnit, provider.KeyAgentPod)), ""},
		{"an SSH key", tryCreate(key(corev1.SSHAuthPrivateKey, provider.KeySSHPublic)), ""},
		{"its own", tryUpdate("one-tunnel-route", func(s *corev1.Secret) {
			s.Data[provider.KeyGateway] = []byte("x")
			s.Labels[provider.LabelRoute] = ""
			s.Annotations = map[string]string{provider.Prefix + "expires": "x"}
		}), ""},
		{"its own, restored", tryUpdate("one-tunnel-route", func(s *corev1.Secret) { s.OwnerReferences[0].UID = "other" }), ""},
		{"its own, deleted", tryDelete("one-tunnel-route"), ""},
		{"a label of Argo CD", tryCreate(labelled), "sets no labels"},
		{"keys of Argo CD", tryCreate(route("one-tunnel-agent", "server", "config")), "sets no keys"},
		{"an SSH key with others", tryCreate(key(corev1.SSHAuthPrivateKey, "url")), "sets no keys"},
		{"an SSH key without owner", tryCreate(unowned), "that the Cluster owns"},
		{"an SSH key of another Cluster", tryCreate(alien), "that the Cluster owns"},
		{"another Cluster's name", tryCreate(route("two-tunnel-agent", provider.KeyAgentUnit)), "that the Cluster owns"},
		{"another name", tryCreate(route("other", provider.KeyAgentUnit)), "<cluster>-tunnel-agent"},
		{"Kubernetes' namespace", tryCreate(system), "own namespaces"},
		{"another's", tryUpdate("two-tunnel-route", func(s *corev1.Secret) { *s = *route("two-tunnel-route", "password") }), "with the label"},
		{"another's, deleted", tryDelete("two-tunnel-route"), "with the label"},
	}...)
}

func injectorRows(string) []policyRow {
	made := func(keys ...string) *corev1.Secret {
		s := ofPropagator(secretOf("proxy", corev1.SecretTypeOpaque, keys...))
		s.OwnerReferences, s.Namespace = nil, "default"
		s.Annotations = map[string]string{propagate.AnnotationSource: "x"}
		return s
	}
	owned := ofCluster(made(propagate.KeyHTTPProxy))
	return append(metaRows("proxy"), []policyRow{
		{"its own", tryUpdate("proxy", func(s *corev1.Secret) {
			s.Data[propagate.KeyNoProxy] = nil
			s.Annotations = map[string]string{propagate.AnnotationSource: "x"}
		}), ""},
		{"a new one", tryCreate(made(propagate.KeyHTTPProxy, propagate.KeyHTTPSProxy, propagate.KeyNoProxy)), ""},
		{"a new one with an owner", tryCreate(owned), "changes no owners"},
		{"a new one with other keys", tryCreate(made("tls.key")), "sets no keys"},
	}...)
}

// statusRows are what a program does to a Cluster's status, and what it does not.
func statusRows(base string) []policyRow {
	own, others := provider.ConditionRoute, provider.ConditionTunnel
	switch base {
	case "tunnel-server":
		own, others = others, own
	case "kubeconfig-provider":
	default:
		return nil // it has no right
	}
	condition := func(kind string) string {
		return `{"type":"` + kind + `","status":"False","reason":"Y","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`
	}
	try := func(version string, as types.PatchType, status string) func(context.Context, client.Client) error {
		text := `{"apiVersion":"cluster.x-k8s.io/` + version + `","kind":"Cluster","metadata":{"namespace":"org","name":"one"},"status":` + status + `}`
		return func(ctx context.Context, c client.Client) error {
			u := &unstructured.Unstructured{}
			err := u.UnmarshalJSON([]byte(text))
			if err != nil {
				return err
			}
			opts := []client.SubResourcePatchOption{client.DryRunAll}
			if as == types.ApplyPatchType {
				opts = append(opts, client.FieldOwner("test"), client.ForceOwnership)
			}
			return c.Status().Patch(ctx, u, client.RawPatch(as, []byte(text)), opts...)
		}
	}
	const apply, merge = types.ApplyPatchType, types.MergePatchType
	return []policyRow{
		{"its condition", try("v1beta2", apply, `{"conditions":[`+condition(own)+`]}`), ""},
		{"Cluster API's condition", try("v1beta2", apply, `{"conditions":[`+condition("Available")+`]}`), "no condition of a Cluster but " + own},
		{"the other program's", try("v1beta2", apply, `{"conditions":[`+condition(others)+`]}`), "no condition of a Cluster but " + own},
		{"a new condition", try("v1beta2", apply, `{"conditions":[`+condition("New")+`]}`), "no condition of a Cluster but " + own},
		{"none but its own", try("v1beta2", merge, `{"conditions":[`+condition(own)+`]}`), "no condition of a Cluster but " + own},
		{"none", try("v1beta2", merge, `{"conditions":null}`), "no condition of a Cluster but " + own},
		{"an old condition in v1beta1", try("v1beta1", apply, `{"conditions":[{"type":"`+own+`","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`), "of a Cluster's status but"},
		{"the phase", try("v1beta2", merge, `{"phase":"Failed"}`), "of a Cluster's status but"},
		{"no phase", try("v1beta2", merge, `{"phase":null}`), "of a Cluster's status but"},
		{"the infrastructure", try("v1beta2", merge, `{"initialization":{"infrastructureProvisioned":true}}`), "of a Cluster's status but"},
	}
}

func tryCreate(object client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
	}
}

func tryUpdate(name string, change func(*corev1.Secret)) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		s := &corev1.Secret{}
		err := c.Get(ctx, client.ObjectKey{Namespace: "org", Name: name}, s)
		if err != nil {
			return errors.New("get: " + err.Error())
		}
		change(s)
		return c.Update(ctx, s, client.DryRunAll)
	}
}

func tryDelete(name string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Delete(ctx, secretOf(name, ""), client.DryRunAll)
	}
}

func providerRows(string) []policyRow {
	set := func(key string) func(*corev1.Secret) {
		return func(s *corev1.Secret) {
			s.Data[key] = []byte("other")
			s.Annotations = map[string]string{provider.AnnotationManager: "causeway"}
		}
	}
	made := func(created string) []byte { return []byte(`{"created":` + created + `}`) }
	unlabelled := ofProvider(secretOf("new", corev1.SecretTypeOpaque, "value"))
	unlabelled.Labels = nil
	unowned := ofProvider(secretOf("new", corev1.SecretTypeOpaque, "value"))
	unowned.OwnerReferences = nil
	system := ofProvider(secretOf("new", corev1.SecretTypeOpaque, "value"))
	system.Namespace = metav1.NamespaceSystem
	owned := func(s *corev1.Secret) { s.OwnerReferences = ofCluster(&corev1.Secret{}).OwnerReferences }
	by := func(name string) func(*corev1.Secret) {
		return func(s *corev1.Secret) {
			owned(s)
			s.OwnerReferences[0].Name = name
		}
	}
	return append(metaRows("one-proxied"), []policyRow{
		{"its own, restored", tryUpdate("one-proxied", func(s *corev1.Secret) { s.OwnerReferences[0].UID = "other" }), ""},
		{"its own, restored without owner", tryUpdate("four-kubeconfig", by("four")), ""},
		{"its own, handed back", tryUpdate("four-kubeconfig", func(s *corev1.Secret) { s.Annotations, s.Data[provider.DataState] = nil, made("true") }), ""},
		{"its second one, restored without owner", tryUpdate("four-proxied", by("four")), ""},
		{"a control plane's, owned now", tryUpdate("two-kubeconfig", owned), "changes no owners"},
		{"a user's, owned now", tryUpdate("three-kubeconfig", by("three")), "changes no owners"},
		{"a user's, made its own", tryUpdate("three-kubeconfig", func(s *corev1.Secret) { s.Data[provider.DataState] = made("true") }), "that it made it"},
		{"a user's, made its own, shifted", tryUpdate("three-kubeconfig", func(s *corev1.Secret) { s.Data[provider.DataState] = append([]byte(" "), made("true")...) }), "that it made it"},
		{"a user's, made its own, shifted twice", tryUpdate("three-kubeconfig", func(s *corev1.Secret) { s.Data[provider.DataState] = append([]byte("  "), made("true")...) }), "that it made it"},
		{"a user's, with a mark that the program does not believe", tryUpdate("three-kubeconfig", func(s *corev1.Secret) { s.Data[provider.DataState] = []byte(`{"created": true}`) }), ""},
		{"a user's, decorated", tryUpdate("three-kubeconfig", func(s *corev1.Secret) { s.Data[provider.DataState] = made("false") }), ""},
		{"a user's, without other keys", tryUpdate("three-kubeconfig", func(s *corev1.Secret) { delete(s.Data, "other") }), "removes no others"},
		{"without labels", tryUpdate("one-proxied", func(s *corev1.Secret) { s.Labels = nil }), "sets no labels"},
		{"Kubernetes' namespace", tryCreate(system), "own namespaces"},
		{"a kubeconfig", tryCreate(ofProvider(secretOf("new", corev1.SecretTypeOpaque, "value", provider.DataState, provider.DataApplied, provider.DataOriginal, provider.DataPrevious))), ""},
		{"its own", tryUpdate("one-kubeconfig", set(provider.DataState)), ""},
		{"what it remembers", tryCreate(ofProvider(secretOf(provider.RecordsName("new-kubeconfig"), corev1.SecretTypeOpaque, provider.DataState, provider.DataApplied, "causeway-extension-x"))), ""},
		{"its annotations", tryUpdate("two-kubeconfig", func(s *corev1.Secret) { s.Annotations = map[string]string{provider.AnnotationRecords: "x/1"} }), ""},
		{"its own, handed back", tryUpdate("one-proxied", func(s *corev1.Secret) { s.Annotations = nil }), ""},
		{"a control plane's", tryUpdate("two-kubeconfig", set("value")), ""},
		{"its second one, deleted", tryDelete("one-proxied"), ""},
		{"a bootstrap token", tryCreate(ofProvider(secretOf("new", corev1.SecretTypeBootstrapToken, "value"))), "of the type Opaque"},
		{"a release of helm", tryCreate(ofProvider(secretOf("new", "helm.sh/release.v1", "value"))), "of the type Opaque"},
		{"a control plane's, made", tryCreate(ofProvider(secretOf("new", kubeconfig.SecretType, "value"))), "of the type Opaque"},
		{"no label", tryCreate(unlabelled), "with the label"},
		{"no owner", tryCreate(unowned), "a Cluster owns"},
		{"a CA", tryCreate(ofProvider(secretOf("one-ca", corev1.SecretTypeOpaque, "tls.crt", "tls.key"))), "sets no keys"},
		{"another key of a control plane's", tryUpdate("two-kubeconfig", set("tls.crt")), "sets no keys"},
		{"another's", tryUpdate("foreign", set("value")), "that have its annotation"},
		{"another's, deleted", tryDelete("foreign"), "that have its annotation"},
		{"the first one, deleted", tryDelete("one-kubeconfig"), "that have its annotation"},
	}...)
}

// machineKeys are those of the Secret that machines get.
func machineKeys() []string {
	objects, err := proxyconfig.ClusterValues{Name: "one", Namespace: "ns", Config: proxyconfig.Config{HTTPSProxy: "http://proxy.test:1"}}.Build()
	if err != nil {
		panic(err)
	}
	return slices.Sorted(maps.Keys(objects.SystemdProxy.Data))
}

func propagatorRows(namespace string) []policyRow {
	set := func(key string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[key] = []byte("other") }
	}
	unlabelled := ofPropagator(secretOf("one-new", corev1.SecretTypeOpaque, "values"))
	unlabelled.Labels = nil
	unowned := ofPropagator(secretOf("one-new", corev1.SecretTypeOpaque, "values"))
	unowned.OwnerReferences = nil
	values := &corev1.ConfigMap{ObjectMeta: ofPropagator(secretOf("one-cluster-values", "")).ObjectMeta, Data: map[string]string{"values": "x"}}
	binary := &corev1.ConfigMap{ObjectMeta: values.ObjectMeta, BinaryData: map[string][]byte{"values": []byte("x")}}
	labelled := ofPropagator(secretOf("one-new", corev1.SecretTypeOpaque, "values"))
	labelled.Labels["argocd.argoproj.io/secret-type"] = "cluster"
	system := ofPropagator(secretOf("one-new", corev1.SecretTypeOpaque, "values"))
	system.Namespace = metav1.NamespaceSystem
	config := ofPropagator(secretOf("installation-proxy", corev1.SecretTypeOpaque, "values"))
	config.Namespace, config.OwnerReferences[0].Name = namespace, "installation"
	owned := func(s *corev1.Secret) { ofCluster(s) }
	give := func(s *corev1.Secret) {
		s.Labels[kubeconfig.ClusterNameLabel] = "one"
		ofCluster(s)
	}
	return append(append(metaRows("one-systemd-proxy"), metaRows("owned-proxy-override")...), []policyRow{
		{"an override, given to its Cluster", tryUpdate("one-proxy-override", give), ""},
		{"an override, restored", tryUpdate("owned-proxy-override", func(s *corev1.Secret) { s.OwnerReferences[0].UID = "other" }), ""},
		{"an override's values", tryUpdate("one-proxy-override", func(s *corev1.Secret) { give(s); set("values")(s) }), "none of an override"},
		{"an override's key, removed", tryUpdate("one-proxy-override", func(s *corev1.Secret) { give(s); delete(s.Data, "direct") }), "removes no others"},
		{"an override without its label", tryUpdate("one-proxy-override", func(s *corev1.Secret) { give(s); delete(s.Labels, propagate.LabelOverride) }), "sets no labels"},
		{"an override without an owner", tryUpdate("one-proxy-override", func(s *corev1.Secret) { s.Labels[kubeconfig.ClusterNameLabel] = "one" }), "overrides and those with the label"},
		{"its own, restored without owner", tryUpdate("one-restored", owned), ""},
		{"its own with what it adds", tryUpdate("one-systemd-proxy", func(s *corev1.Secret) {
			s.Labels["giantswarm.io/cluster"] = "one"
			s.Annotations = map[string]string{"giantswarm.io/notes": "x", propagate.LabelOverride: ""}
		}), ""},
		{"another's", tryUpdate("one-theirs", set("values")), "managed-by=causeway"},
		{"the configuration that it reads", tryCreate(config), "installation-proxy"},
		{"another's, owned anew", tryUpdate("one-theirs", func(s *corev1.Secret) { s.OwnerReferences[0].UID = "gone" }), "managed-by=causeway"},
		{"another's, given to it", tryUpdate("one-theirs", func(s *corev1.Secret) { s.Labels[propagate.LabelManagedBy] = "causeway" }), "managed-by=causeway"},
		{"without other keys", tryUpdate("one-systemd-proxy", func(s *corev1.Secret) { delete(s.Data, "theirs") }), "removes no others"},
		{"binary data", tryCreate(binary), "no binaryData"},
		{"a label of Argo CD", tryCreate(labelled), "sets no labels"},
		{"Kubernetes' namespace", tryCreate(system), "own namespaces"},
		{"values", tryCreate(ofPropagator(secretOf("one-cluster-values", corev1.SecretTypeOpaque, "values"))), ""},
		{"values under another name", tryCreate(ofPropagator(secretOf("one-proxy-values", corev1.SecretTypeOpaque, "values"))), ""},
		{"the ConfigMap", tryCreate(values), ""},
		{"all keys for machines", tryCreate(ofPropagator(secretOf("one-other-proxy", corev1.SecretTypeOpaque, machineKeys()...))), ""},
		{"its own", tryUpdate("one-systemd-proxy", set("kubeadmProxy")), ""},
		{"its own, restored", tryUpdate("one-systemd-proxy", func(s *corev1.Secret) { s.OwnerReferences[0].UID = "other" }), ""},
		{"a bootstrap token", tryCreate(ofPropagator(secretOf("one-new", corev1.SecretTypeBootstrapToken, "values"))), "of the type Opaque"},
		{"no label", tryCreate(unlabelled), "with the label"},
		{"no owner", tryCreate(unowned), "a Cluster owns"},
		{"another Cluster's name", tryCreate(ofPropagator(secretOf("two-cluster-values", corev1.SecretTypeOpaque, "values"))), "begin with the Cluster's"},
		{"a CA", tryCreate(ofPropagator(secretOf("one-ca", corev1.SecretTypeOpaque, "tls.crt", "tls.key"))), "sets no keys"},
		{"a kubeconfig", tryCreate(ofPropagator(secretOf("one-kubeconfig-2", corev1.SecretTypeOpaque, "value"))), "sets no keys"},
		{"another key of its own", tryUpdate("one-systemd-proxy", set("theirs")), "sets no keys"},
		{"another's, labelled now", tryUpdate("foreign", func(s *corev1.Secret) { s.Labels[propagate.LabelManagedBy] = "causeway" }), "with the label"},
		{"another's ConfigMap", func(ctx context.Context, c client.Client) error {
			m := &corev1.ConfigMap{ObjectMeta: *ofPropagator(secretOf("foreign", "")).ObjectMeta.DeepCopy(), Data: map[string]string{"values": "x"}}
			return c.Update(ctx, m, client.DryRunAll)
		}, "with the label"},
	}...)
}

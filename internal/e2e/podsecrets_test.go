package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

// A podCluster is a workload cluster in which two replicas of the injector run, as the
// component pod-secrets deploys them.
type podCluster struct {
	*proxied
	replicas []*pod
	expand   string // path of the program with the kubelet's rules
}

// podFacts are what the cluster's objects say.
var podFacts = noproxy.Cluster{PodCIDRs: []string{"10.1.0.0/16"}, ServiceCIDRs: []string{"10.0.0.0/24"}, ServiceDomain: "cluster.local"}

// TestPodSecrets: pods of any namespace have six variables that the kubelet can resolve,
// and reach the cluster itself directly; they follow a password that changes, here or in
// the management cluster.
func TestPodSecrets(t *testing.T) {
	t.Parallel() // waits much
	c := startPodCluster(t)
	first := passwordForm{name: "first", password: "1" + hostile, inURL: escape("1" + hostile)}
	c.configure(t, first.config(c.proxy.address()), "registry.corp.test")
	c.startReplicas(t)
	c.checkVerdicts(t, c.awaitInjected(t, proxiedWorkload, first), first)
	t.Run("namespaces", c.testNamespaces)
	t.Run("passwords", c.testPasswords)
	t.Run("management", c.testManagement)
	t.Run("rights", c.testRights)
}

func startPodCluster(t *testing.T) *podCluster {
	t.Helper()
	c := &podCluster{proxied: startProxied(t, "pods"), expand: t.TempDir()}
	goBuild(t, "kube", c.expand, "./expand")
	c.component(injectorBase, "pod-secrets")
	c.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.NodeSpec{PodCIDR: podFacts.PodCIDRs[0], PodCIDRs: podFacts.PodCIDRs}})
	c.certifyInjector(t)
	return c
}

// startReplicas starts the webhook, and waits until the API server asks it.
func (c *podCluster) startReplicas(t *testing.T) {
	t.Helper()
	for range 2 {
		c.replicas = append(c.replicas, c.start(t, injectorBase))
	}
	for _, r := range c.replicas {
		r.ready(t)
	}
	var turn atomic.Int32
	c.leadToInjector(t, func(port string) string { return c.replicas[int(turn.Add(1))%2].address(port) })
}

// configure writes the Secret that the injector follows.
func (c *podCluster) configure(t *testing.T, config proxyconfig.Config, list string) {
	t.Helper()
	config.NoProxy = list
	c.put(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: injectorBase, Name: "proxy"}, Data: config.EnvSecretData()})
}

// put makes an object, or replaces it.
func (c *podCluster) put(t *testing.T, object client.Object) {
	t.Helper()
	err := c.admin.Create(t.Context(), object)
	if apierrors.IsAlreadyExists(err) {
		err = c.admin.Update(t.Context(), object)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// inject has the API server make a pod.
func (c *podCluster) inject(ctx context.Context, namespace string) (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	return pod, c.admin.Create(ctx, pod)
}

// resolve makes the environment of a pod as a kubelet does. A reference that is not
// optional, and leads to nothing, is an error: the kubelet would wait.
func (c *podCluster) resolve(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	type variable struct {
		Name, Value string
		Secret      bool
	}
	vars := []variable{{"KUBERNETES_SERVICE_HOST", bed.ServiceIP, true}}
	for _, v := range pod.Spec.Containers[0].Env {
		if v.ValueFrom == nil {
			vars = append(vars, variable{v.Name, v.Value, false})
			continue
		}
		from := v.ValueFrom.SecretKeyRef
		s, err := c.secret(ctx, pod.Namespace, from.Name)
		value, ok := s.Data[from.Key]
		switch optional := from.Optional != nil && *from.Optional; {
		case err == nil && ok:
			vars = append(vars, variable{v.Name, string(value), true})
		case !optional:
			return nil, fmt.Errorf("the pod waits for %s of %s/%s: %v", from.Key, pod.Namespace, from.Name, err)
		}
	}
	input, err := json.Marshal(vars)
	if err != nil {
		return nil, err
	}
	out, err := c.Node.Run(ctx, bed.Command{Argv: []string{c.expand + "/expand"}, Stdin: strings.NewReader(string(input))})
	env := map[string]string{}
	if err == nil {
		err = json.Unmarshal([]byte(out), &env)
	}
	delete(env, "KUBERNETES_SERVICE_HOST")
	return env, err
}

// wantedEnv is what a pod is to have.
func wantedEnv(t *testing.T, config proxyconfig.Config) map[string]string {
	t.Helper()
	merged, err := proxyconfig.Layers{Installation: config, Cluster: podFacts}.Merge()
	if err != nil {
		t.Fatal(err)
	}
	merged.NoProxy += "," + bed.ServiceIP
	return environment(merged.Config)
}

// awaitInjected waits for a pod that has the password, and all that it is to have.
func (c *podCluster) awaitInjected(t *testing.T, namespace string, f passwordForm) proxiedPod {
	t.Helper()
	config := f.config(c.proxy.address())
	config.NoProxy = "registry.corp.test"
	return c.awaitEnvironment(t, namespace, wantedEnv(t, config))
}

func (c *podCluster) awaitEnvironment(t *testing.T, namespace string, want map[string]string) (got proxiedPod) {
	t.Helper()
	eventually(t, "a pod with the environment", func(ctx context.Context) error {
		pod, err := c.inject(ctx, namespace)
		if err != nil {
			return err
		}
		got.name = pod.Name
		if got.env, err = c.resolve(ctx, pod); err != nil {
			return bed.Stop(err)
		}
		if !maps.Equal(got.env, want) {
			return fmt.Errorf("got %q, want %q", got.env, want)
		}
		return nil
	})
	return got
}

// testNamespaces: a namespace that is made later has the Secret; one that is left out
// later keeps the one that it had, without the next password; another's Secret stays as it is, and pods don't wait for it.
func (c *podCluster) testNamespaces(t *testing.T) {
	form := func(n int) passwordForm {
		return passwordForm{password: fmt.Sprint("n", n), inURL: fmt.Sprint("n", n)}
	}
	c.configure(t, form(0).config(c.proxy.address()), "registry.corp.test")
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "leaves"}})
	c.awaitInjected(t, "leaves", form(0))
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{proxyconfig.LabelInject: "false"}}})
	c.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "theirs", Name: "proxy"}, Data: map[string][]byte{"x": []byte("y")}})
	c.kubectl(t, "", "label", "namespace", "theirs", proxyconfig.LabelInject+"-")

	// Made in one go with its first pods.
	began := time.Now()
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}})
	pod, err := c.inject(t.Context(), "later")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.resolve(t.Context(), pod); err != nil {
		t.Errorf("the first pod of a namespace: %v", err)
	}
	c.awaitInjected(t, "later", form(0))
	t.Logf("pods of a new namespace had the Secret %v after it was made", time.Since(began).Round(time.Millisecond))

	c.kubectl(t, "", "label", "namespace", "leaves", proxyconfig.LabelInject+"=false")
	began = time.Now()
	c.configure(t, form(1).config(c.proxy.address()), "registry.corp.test")
	c.awaitInjected(t, "later", form(1))
	t.Logf("new pods had the new password %v after it changed", time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("new pods had the new password after %v, want 30 s", took)
	}
	eventually(t, "an Event about the namespace that was left out", func(context.Context) error {
		if got := c.kubectl(t, "", "get", "events.events.k8s.io", "-n", "leaves", "-o", "jsonpath={.items[*].note}"); !strings.Contains(got, "is not kept current") {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	if s, err := c.secret(t.Context(), "leaves", "proxy"); err != nil || string(s.Data["HTTP_PROXY"]) != form(0).config(c.proxy.address()).HTTPProxy {
		t.Errorf("got %v, want the password of before in a namespace that was left out", err)
	}
	eventually(t, "pods of that namespace without variables", func(ctx context.Context) error {
		pod, err := c.inject(ctx, "leaves")
		if err == nil && len(pod.Spec.Containers[0].Env) > 0 {
			err = fmt.Errorf("got %q", variables(pod.Spec.Containers[0].Env))
		}
		return err
	})
	s, err := c.secret(t.Context(), "theirs", "proxy")
	if err != nil || len(s.Data) != 1 || string(s.Data["x"]) != "y" {
		t.Errorf("got %v, %v, want another's Secret as it was", s.Data, err)
	}
	pod, err = c.inject(t.Context(), "theirs")
	if err != nil {
		t.Fatal(err)
	}
	if env, err := c.resolve(t.Context(), pod); err != nil || env["HTTP_PROXY"] != "" {
		t.Errorf("got %q, %v, want a pod that starts without the proxies", env, err)
	}
	eventually(t, "an Event about another's Secret", func(context.Context) error {
		if got := c.kubectl(t, "", "get", "events.events.k8s.io", "-n", "theirs", "-o", "jsonpath={.items[*].note}"); !strings.Contains(got, "Secret theirs/proxy has no label") {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
}

// testPasswords: pods have each password as it is, by the kubelet's own rules, from the
// Secret and in plain.
func (c *podCluster) testPasswords(t *testing.T) {
	exact := 0
	for _, f := range passwordForms() {
		config := f.config(c.proxy.address())
		config.NoProxy = "registry.corp.test"
		c.configure(t, config, config.NoProxy)
		pod := c.awaitInjected(t, proxiedWorkload, f)
		if pod.env["http_proxy"] != config.HTTPProxy {
			t.Errorf("%s: got %q, want %q", f.name, pod.env["http_proxy"], config.HTTPProxy)
		}
		plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "leaves", GenerateName: "plain-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
		injector, err := proxyconfig.NewInjector(proxyconfig.Options{Config: config, Plain: true, Exact: true})
		if err != nil {
			t.Fatal(err)
		}
		injector.Inject(&plain.Spec)
		c.create(t, plain)
		if env, err := c.resolve(t.Context(), plain); err != nil || !maps.Equal(env, environment(config)) {
			t.Errorf("%s in plain: got %q, %v", f.name, env, err)
		}
		exact++
	}
	refused := 0
	for _, f := range listForms() {
		config := f.config(c.proxy.address())
		before := len(c.replicas[0].running.Stderr())
		c.configure(t, config, config.NoProxy)
		if entry, wrong := unusable(config.NoProxy); wrong {
			eventually(t, f.name+" to be refused by name", func(context.Context) error {
				if !strings.Contains(c.replicas[0].running.Stderr()[before:], "NO_PROXY: noproxy: entry "+fmt.Sprint(entry)) {
					return errors.New("it is not")
				}
				return nil
			})
			refused++
			continue
		}
		want := wantedEnv(t, config)
		if config.NoProxy == "*" { // which programs know only as the whole list
			want = environment(config)
		}
		c.awaitEnvironment(t, proxiedWorkload, want)
		exact++
	}
	t.Logf("%d passwords and lists are exact, %d are refused by name", exact, refused)
}

// unusable returns the first entry that covers nothing.
func unusable(list string) (entry int, wrong bool) {
	_, err := (noproxy.Options{Strict: true}).Parse(strings.TrimRight(list, ", "))
	var e *noproxy.EntryError
	if errors.As(err, &e) {
		return e.Index, true
	}
	return 0, err != nil
}

// testManagement: the values that the propagator writes in another cluster, brought here
// as they are, are the injector's configuration; a password that changes there is in new
// pods here.
func (c *podCluster) testManagement(t *testing.T) {
	m := &proxied{deploying: startDeploying(t, "pods-management"), proxy: c.proxy}
	m.apply(propagatorBase)
	m.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: proxiedNamespace}})
	for n := range 2 {
		f := passwordForm{password: fmt.Sprint("m", n), inURL: fmt.Sprint("m", n)}
		began := time.Now()
		m.install(t, f)
		if n == 0 {
			m.start(t, propagatorBase).ready(t)
			m.bearProxied(t)
		}
		cluster := &metav1.ObjectMeta{Namespace: proxiedNamespace}
		eventually(t, "the values", func(ctx context.Context) error {
			s, err := m.secret(ctx, cluster.Namespace, "prod-cluster-values")
			if err == nil && !strings.Contains(string(s.Data[proxyconfig.ValuesKey]), f.config(c.proxy.address()).HTTPProxy) {
				err = errors.New("they have another password")
			}
			// It is written behind the Secret.
			return errors.Join(err, m.admin.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: "prod-cluster-values"}, &corev1.ConfigMap{}))
		})
		c.bringValues(t, m)
		eventually(t, "a pod with the password", func(ctx context.Context) error {
			pod, err := c.inject(ctx, proxiedWorkload)
			if err != nil {
				return err
			}
			env, err := c.resolve(ctx, pod)
			if err != nil {
				return bed.Stop(err)
			}
			if len(env) != 6 || env["https_proxy"] != f.config(c.proxy.address()).HTTPSProxy || !strings.Contains(env["NO_PROXY"], "registry.corp.test") {
				return fmt.Errorf("got %q", env)
			}
			return nil
		})
		t.Logf("pods of the workload cluster had the password %v after the installation", time.Since(began).Round(time.Millisecond))
	}
	f := passwordForm{password: "m1"}
	pod, err := c.inject(t.Context(), proxiedWorkload)
	if err != nil {
		t.Fatal(err)
	}
	env, err := c.resolve(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	c.checkVerdicts(t, proxiedPod{pod.Name, env}, f)
}

// bringValues does what an App, a HelmRelease or a ClusterResourceSet does.
func (c *podCluster) bringValues(t *testing.T, m *proxied) {
	t.Helper()
	name := metav1.ObjectMeta{Namespace: injectorBase, Name: "proxy"}
	secret, err := m.secret(t.Context(), proxiedNamespace, "prod-cluster-values")
	if err != nil {
		t.Fatal(err)
	}
	values := &corev1.ConfigMap{}
	if err := m.admin.Get(t.Context(), client.ObjectKey{Namespace: proxiedNamespace, Name: "prod-cluster-values"}, values); err != nil {
		t.Fatal(err)
	}
	c.put(t, &corev1.ConfigMap{ObjectMeta: name, Data: values.Data})
	c.put(t, &corev1.Secret{ObjectMeta: name, Data: secret.Data})
}

// testRights: each right of the component was used, and nothing else was asked for.
func (c *podCluster) testRights(t *testing.T) {
	for _, r := range c.replicas {
		peak, err := r.running.PeakMemory()
		t.Logf("peak memory %d MiB, %v", peak>>20, err)
		r.end(t) // the log has a watch when it has ended
	}
	used, refused := c.audited(t)
	if len(refused) > 0 {
		t.Errorf("forbidden, but asked for: %q", refused)
	}
	for _, g := range c.granted(t, injectorBase) {
		// See testAudit; and if both replicas write at once.
		if s := fmt.Sprint(g); s == "patch events" || s == "get secrets" || s == "narrow programs.causewayproject.github.io" {
			continue
		}
		if !slices.ContainsFunc(used[injectorBase], g.covers) {
			t.Errorf("never used its right to %s", g)
		}
	}
	// The token would otherwise lead to any other: the API server writes a
	// ServiceAccount's into a Secret of that type, whatever its name.
	for what, manifest := range map[string]string{
		"a ServiceAccount's token": "{name: proxy, namespace: default, annotations: {kubernetes.io/service-account.name: default}}\ntype: kubernetes.io/service-account-token",
		"another name":             "{name: other, namespace: default}",
	} {
		create := c.bed.Kubectl(c.path("admin"), "create", "-f", "-", "--as=system:serviceaccount:"+injectorBase+":"+injectorBase)
		create.Stdin = strings.NewReader("apiVersion: v1\nkind: Secret\nmetadata: " + manifest + "\n")
		if out, err := c.Node.Run(t.Context(), create); err == nil || !strings.Contains(err.Error(), "creates no Secrets but") {
			t.Errorf("%s: got %q and %v, want the policy's refusal", what, out, err)
		}
	}
	for _, r := range c.replicas {
		if log := r.running.Stderr(); strings.Contains(log, "us%40er") || strings.Contains(log, base64.StdEncoding.EncodeToString([]byte("http://us%40er"))) {
			t.Error("the user and the password are in the log")
		}
	}
}

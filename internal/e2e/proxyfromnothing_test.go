package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/proxyconfig"
)

const (
	proxiedNamespace = "org" // of the Cluster
	proxiedWorkload  = "web" // the namespace of the pods

	// Inside of the cluster's networks, and outside of them.
	webServiceIP = "10.0.0.50"
	outside      = "far.test"
)

var insideNames = []string{"web.web.svc", "web.web.svc.cluster.local"}

// A proxied is a cluster behind a proxy that asks for a password: one API server is
// the management cluster's and the workload cluster's.
type proxied struct {
	*deploying
	proxy  *passwordProxy
	direct *directServer
	pod    string // address of one more server
}

// From nothing: an installation Secret and a Cluster are made, and the programs,
// as their manifests deploy them, make all that machines and pods need. Then the
// password changes: all follow, but the machine that lives.
func TestProxyFromNothing(t *testing.T) {
	t.Parallel() // waits much
	began := time.Now()
	p := startProxied(t, "proxied")
	p.component(injectorBase, "pod-secrets")
	t.Logf("the cluster was ready after %v", time.Since(began).Round(time.Millisecond))

	first := passwordForm{name: "first", password: "1" + hostile, inURL: escape("1" + hostile)}
	p.install(t, first)
	p.start(t, propagatorBase).ready(t)
	cluster := p.bearProxied(t)
	config := p.awaitObjects(t, cluster, first)
	p.applyKubeadmConfig(t)
	machine := p.makeMachine(t) // boots meanwhile
	p.bringValues(t)
	p.startInjector(t, proxiedWorkload)
	p.awaitPodSecret(t, first)
	p.startDeployments(t)
	pod := p.awaitPod(t, "", first)
	p.checkVerdicts(t, pod, first)
	machine.await()
	machine.checkSix("containerd", "probe.after.containerd.service", config)
	machine.checkSix("kubeadm", "kubeadm.env", config)

	second := passwordForm{name: "second", password: "2" + hostile, inURL: escape("2" + hostile)}
	rotated := time.Now()
	p.install(t, second)
	next := p.awaitObjects(t, cluster, second)
	made := p.makeMachine(t)
	p.bringValues(t)
	p.awaitPodSecret(t, second)
	p.kubectl(t, "", "rollout", "restart", "deployment/web", "-n", proxiedWorkload)
	restarted := p.awaitPod(t, pod.name, second)
	t.Logf("a new pod has the new password %v after it changed", time.Since(rotated).Round(time.Millisecond))
	p.checkVerdicts(t, restarted, second)
	made.await()
	made.checkSix("containerd of a new machine", "probe.after.containerd.service", next)
	made.end()
	// Nothing reaches a machine that lives: not its containerd, nor its drop-in.
	machine.end()
	machine.checkSix("containerd of the machine that lives", "probe.later.containerd.service", config)
	if got, want := machine.read("dropin"), machine.file(containerdDropIn); got != want {
		t.Error("the machine that lives has another drop-in")
	}
}

// startProxied starts the cluster, whose name no other test has, its proxy, and what
// is inside and outside.
func startProxied(t *testing.T, name string) *proxied {
	t.Helper()
	p := &proxied{deploying: startDeploying(t, name)}
	p.proxy = servePasswordProxy(t, listen(t, p.Node, net.JoinHostPort(p.Kube.Host(), "0")))
	p.direct = &directServer{}
	inside := listen(t, p.Node, net.JoinHostPort(p.Kube.Host(), "0"))
	p.direct.serve(t, inside)
	if err := p.AddService(t.Context(), net.JoinHostPort(webServiceIP, "80"), inside.Addr().String); err != nil {
		t.Fatal(err)
	}
	host, ip, err := p.AddHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.pod = net.JoinHostPort(ip, "8080")
	p.direct.serve(t, listen(t, host, p.pod))
	p.apply(propagatorBase)
	for _, name := range []string{proxiedNamespace, proxiedWorkload} {
		p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return p
}

// install has kubectl write the installation's Secret from files, as editors leave
// them: with a newline at the end.
func (p *proxied) install(t *testing.T, f passwordForm) {
	t.Helper()
	c := f.config(p.proxy.address())
	for name, text := range map[string]string{"HTTP_PROXY": c.HTTPProxy, "HTTPS_PROXY": c.HTTPSProxy, "NO_PROXY": "registry.corp.test"} {
		writeFile(t, p.path("installation", name), text+"\n")
	}
	made := p.kubectl(t, "", "create", "secret", "generic", "installation-proxy", "-n", propagatorBase,
		"--from-file", p.path("installation"), "--dry-run=client", "-o", "yaml")
	p.kubectl(t, made, "apply", "-f", "-")
}

// bearProxied makes the Cluster, with the networks of the bed.
func (p *proxied) bearProxied(t *testing.T) *clusterv1.Cluster {
	t.Helper()
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: proxiedNamespace, Name: "prod"}, Spec: clusterv1.ClusterSpec{
		ClusterNetwork: clusterv1.ClusterNetwork{
			Pods:     clusterv1.NetworkRanges{CIDRBlocks: []string{"10.1.0.0/16"}},
			Services: clusterv1.NetworkRanges{CIDRBlocks: []string{"10.0.0.0/24"}},
		},
		ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: p.Kube.Host(), Port: p.Kube.Port()},
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: bed.InfrastructureGroup, Kind: bed.InfrastructureKind, Name: "prod"},
	}}
	p.create(t, c)
	return c
}

// awaitObjects waits until the Cluster's objects have the password, and returns the
// configuration that they hold.
func (p *proxied) awaitObjects(t *testing.T, cluster *clusterv1.Cluster, f passwordForm) (c proxyconfig.Config) {
	t.Helper()
	want := f.config(p.proxy.address())
	eventually(t, "the Cluster's objects", func(ctx context.Context) error {
		values := &corev1.ConfigMap{}
		if err := p.admin.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: "prod-cluster-values"}, values); err != nil {
			return err
		}
		private, err := p.secret(ctx, cluster.Namespace, "prod-cluster-values")
		if err != nil {
			return err
		}
		machines, err := p.secret(ctx, cluster.Namespace, dropInSecret)
		if err != nil {
			return err
		}
		if c, err = proxyconfig.ReadValues([]byte(values.Data[proxyconfig.ValuesKey]), private.Data[proxyconfig.ValuesKey]); err != nil {
			return err
		}
		dropIn, err := c.SystemdDropIn()
		if err != nil {
			return bed.Stop(err)
		}
		if c.HTTPProxy != want.HTTPProxy || c.HTTPSProxy != want.HTTPSProxy || string(machines.Data[proxyconfig.ContainerdKey]) != dropIn {
			return errors.New("they have another password")
		}
		return nil
	})
	return c
}

// applyKubeadmConfig makes a KubeadmConfig of what the program prints for it.
func (p *proxied) applyKubeadmConfig(t *testing.T) {
	t.Helper()
	out := readerOutput(t, nil, p.path("causeway"), "proxyconfig", "--format", "kubeadm", "--name", "prod", "--namespace", proxiedNamespace, "--static-pods", "environment")
	var spec proxyconfig.KubeadmSpec
	if err := yaml.Unmarshal(out, &spec); err != nil {
		t.Fatal(err)
	}
	p.create(t, &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Namespace: proxiedNamespace, Name: "prod-control-plane"}, Spec: *clusterAPISpec(t, &spec)})
}

// A livingMachine is a machine that runs until end.
type livingMachine struct {
	*machine
	hold *os.File
	wait func()
}

// liveScript lets the machine live until somebody writes to $1/hold.
const liveScript = `
: >%[1]s/up
read -r _ <%[1]s/hold
sh %[1]s/probe later
cp ` + containerdDropIn + ` %[1]s/dropin
`

// makeMachine boots one by what the API server has.
func (p *proxied) makeMachine(t *testing.T) *livingMachine {
	t.Helper()
	config := &bootstrapv1.KubeadmConfig{}
	if err := p.admin.Get(t.Context(), client.ObjectKey{Namespace: proxiedNamespace, Name: "prod-control-plane"}, config); err != nil {
		t.Fatal(err)
	}
	secret, err := p.secret(t.Context(), proxiedNamespace, dropInSecret)
	if err != nil {
		t.Fatal(err)
	}
	m := &livingMachine{machine: &machine{T: t, dir: sharedDir(t), spec: &config.Spec, files: resolveFiles(t, &config.Spec, secret.Data)}}
	m.writeUnits()
	m.seedCloudInit()
	hold := filepath.Join(m.dir, "hold")
	if err := unix.Mkfifo(hold, 0o600); err != nil {
		t.Fatal(err)
	}
	if m.hold, err = os.OpenFile(hold, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	m.wait = m.start(fmt.Sprintf(liveScript, m.dir), cloudInitUnits)
	t.Cleanup(m.end)
	return m
}

// await waits until the machine has run kubeadm.
func (m *livingMachine) await() {
	m.Helper()
	eventually(m.T, "the machine", func(context.Context) error {
		_, err := os.Stat(filepath.Join(m.dir, "up"))
		return err
	})
}

// checkSix wants all six variables of a process.
func (m *livingMachine) checkSix(what, path string, c proxyconfig.Config) {
	m.Helper()
	want := environment(c)
	if len(want) != 6 {
		m.Errorf("%s: got %d variables to look for, want 6", what, len(want))
	}
	m.checkEnvironment(what, path, want)
}

// end ends the machine, once.
func (m *livingMachine) end() {
	if m.hold == nil {
		return
	}
	fmt.Fprintln(m.hold)
	m.wait()
	m.hold.Close()
	m.hold = nil
}

// file is the content that Cluster API wrote to a file of the machine.
func (m *livingMachine) file(path string) string {
	m.Helper()
	for _, f := range m.files {
		if f.Path == path {
			return f.Content
		}
	}
	m.Fatalf("there is no file %s", path)
	panic("not reached")
}

// startDeployments starts the controllers that make pods of a Deployment, and
// makes one.
func (p *proxied) startDeployments(t *testing.T) {
	t.Helper()
	controllers, err := p.Node.Start(t.Context(), bed.Command{Argv: []string{filepath.Join(os.Getenv(bed.BinEnv), "kube-controller-manager"),
		"--kubeconfig", p.path("admin"), "--controllers=deployment-controller,replicaset-controller", "--leader-elect=false", "--secure-port=0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		controllers.Stop()
		if t.Failed() {
			t.Logf("kube-controller-manager: %s", controllers.Stderr())
		}
	})
	labels := map[string]string{"app": "web"}
	p.create(t, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: proxiedWorkload, Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}},
	}})
}

// A proxiedPod is one of the Deployment's, with the environment that a kubelet would
// give it now.
type proxiedPod struct {
	name string
	env  map[string]string
}

// awaitPod waits for one with another name that starts with the password.
func (p *proxied) awaitPod(t *testing.T, other string, f passwordForm) (pod proxiedPod) {
	t.Helper()
	want := f.config(p.proxy.address())
	eventually(t, "a pod of the Deployment", func(ctx context.Context) error {
		var list corev1.PodList
		if err := p.admin.List(ctx, &list, client.InNamespace(proxiedWorkload)); err != nil {
			return err
		}
		for _, found := range list.Items {
			if found.Name == other {
				continue
			}
			env, err := p.environmentOf(ctx, &found)
			if err != nil {
				return err
			}
			pod = proxiedPod{found.Name, env}
			if len(env) != 6 || env["HTTPS_PROXY"] != want.HTTPSProxy || env["http_proxy"] != want.HTTPProxy {
				return fmt.Errorf("%s has %d variables", found.Name, len(env))
			}
			return nil
		}
		return errors.New("there is none")
	})
	return pod
}

// environmentOf does what a kubelet does.
func (p *proxied) environmentOf(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	env := map[string]string{}
	for _, v := range pod.Spec.Containers[0].Env {
		if v.ValueFrom == nil {
			env[v.Name] = strings.ReplaceAll(v.Value, "$(KUBERNETES_SERVICE_HOST)", bed.ServiceIP)
			continue
		}
		from := v.ValueFrom.SecretKeyRef
		s, err := p.secret(ctx, pod.Namespace, from.Name)
		if err != nil {
			return nil, err
		}
		value, ok := s.Data[from.Key]
		if !ok {
			return nil, fmt.Errorf("the Secret %s has no %s", from.Name, from.Key)
		}
		env[v.Name] = string(value)
	}
	return env, nil
}

// bringValues does what brings values into a workload cluster: it copies the
// Cluster's Secret and ConfigMap to where the injector reads them.
func (p *proxied) bringValues(t *testing.T) {
	t.Helper()
	private, err := p.secret(t.Context(), proxiedNamespace, "prod-cluster-values")
	if err != nil {
		t.Fatal(err)
	}
	public := &corev1.ConfigMap{}
	if err := p.admin.Get(t.Context(), client.ObjectKey{Namespace: proxiedNamespace, Name: "prod-cluster-values"}, public); err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: injectorBase, Name: "proxy"}
	for _, object := range []client.Object{&corev1.Secret{ObjectMeta: meta, Data: private.Data}, &corev1.ConfigMap{ObjectMeta: meta, Data: public.Data}} {
		err := p.admin.Update(t.Context(), object)
		if apierrors.IsNotFound(err) {
			err = p.admin.Create(t.Context(), object)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// awaitPodSecret waits until new pods get the password.
func (p *proxied) awaitPodSecret(t *testing.T, f passwordForm) {
	t.Helper()
	want := f.config(p.proxy.address()).HTTPSProxy
	eventually(t, "the Secret of the pods", func(ctx context.Context) error {
		s, err := p.secret(ctx, proxiedWorkload, "proxy")
		if err == nil && string(s.Data["HTTPS_PROXY"]) != want {
			err = errors.New("it has another password")
		}
		return err
	})
}

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	capisecret "sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const (
	providerBase = "kubeconfig-provider"

	privateNamespace = "default"
	privateName      = "prod"

	// tunnelFront is the load balancer in front of the tunnel's server. A corporate
	// proxy lets a CONNECT go to port 443, and to no other.
	tunnelFront = "10.0.0.200:443"
)

// A privateBed is a management cluster, with the programs and Cluster API's
// controllers, and a site whose machines nobody can reach.
type privateBed struct {
	*deploying
	site    *bed.Site
	page    birthPage
	servers *tunnelPods
	manager *bed.Running // Cluster API's
	began   time.Time
}

// step tells how long after the Cluster's creation something was there.
func (p *privateBed) step(t *testing.T, what string) {
	t.Helper()
	t.Logf("%6.1f s: %s", time.Since(p.began).Seconds(), what)
}

// A Cluster that is made with the label is born with a way in: its machines come with an
// agent, which goes out by the proxy. The way stays while the machines are replaced, and
// ends with the Cluster.
func TestPrivateCluster(t *testing.T) {
	t.Parallel() // waits much
	p := startPrivateBed(t)
	cluster := p.bearCluster(t)
	p.makePlain(t)
	p.checkPage(t)
	data := p.bootstrapData(t, p.addMachine(t, cluster, 0))
	p.step(t, "the bootstrap provider has made the machine's user data")
	p.awaitCondition(t, cluster, metav1.ConditionFalse, "no agent has connected yet")
	first, lost := p.boot(t, 0, data), p.boot(t, 1, withoutWay(t, data))
	p.awaitCondition(t, cluster, metav1.ConditionTrue, "one agent is connected")
	p.step(t, "an agent is connected")
	if got := p.runPage(t, "kubectl get cluster prod "); !strings.HasPrefix(got, "True: since ") || !strings.HasSuffix(got, "; one agent is connected\n") {
		t.Errorf("got the condition %q", got)
	}
	lost.agentSays("407 Proxy Authentication Required")
	lost.end()
	first.initialized()
	p.step(t, "kubeadm has made the control plane")
	config := p.awaitKubectl(t, cluster)
	p.step(t, "kubectl works")
	p.awaitClusterCache(t)
	p.step(t, "Cluster API's ClusterCache is connected")

	requests := p.startRequests(t, config)
	second := p.replaceMachine(t, cluster, first)
	p.step(t, "the machine is replaced")
	p.checkRequests(t, requests)

	p.deleteCluster(t, cluster)
	second.agentSays("this agent was revoked")
	p.step(t, "the Cluster is deleted, and its agent is refused")
	p.began = time.Now()
	cluster = p.bearCluster(t)
	p.boot(t, 0, p.bootstrapData(t, p.addMachine(t, cluster, 0)))
	p.awaitCondition(t, cluster, metav1.ConditionTrue, "one agent is connected")
	p.step(t, "an agent of the next Cluster of this name is connected")
	p.checkPlain(t)
}

var proxyUser = regexp.MustCompile(`CAUSEWAY_PROXY=http://[^@\n]*@`)

// withoutWay is user data with a wrong password of the proxy. The machine gets no control
// plane.
func withoutWay(t *testing.T, data []byte) []byte {
	t.Helper()
	if n := len(proxyUser.FindAll(data, -1)); n != 1 {
		t.Fatalf("got %d proxies in the user data", n)
	}
	data = proxyUser.ReplaceAll(data, []byte("CAUSEWAY_PROXY=http://causeway:wrong@"))
	return bytes.ReplaceAll(data, []byte("kubeadm init "), []byte("kubeadm version "))
}

func startPrivateBed(t *testing.T) *privateBed {
	t.Helper()
	p := &privateBed{deploying: startDeploying(t, "private")}
	var err error
	if p.site, err = p.AddSite(t.Context(), "site"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.site.Stop(); err != nil {
			t.Error(err)
		}
	})
	p.page = readBirthPage(t)
	p.writePage(t)
	writeFile(t, p.path("hosts"), "127.0.0.1 localhost\n") // without Services yet
	p.applyManagement(t)
	p.servers = &tunnelPods{d: p.deploying, t: t}
	for range 2 {
		p.servers.pods = append(p.servers.pods, p.start(t, serverBase))
	}
	for _, pod := range p.servers.pods {
		pod.ready(t)
	}
	p.servers.endpoints()
	if err := p.AddService(t.Context(), tunnelFront, func() string { return p.servers.lead("agents") }); err != nil {
		t.Fatal(err)
	}
	p.startProviderPod(t)
	p.startManager(t)
	return p
}

// gatewayName is the Service of the gateway, which the cluster's DNS would know.
var gatewayName, _, _ = net.SplitHostPort(gatewayOfBase)

// startProviderPod starts the program with the tunnel as the route of all Clusters.
func (p *privateBed) startProviderPod(t *testing.T) {
	t.Helper()
	address := p.service(t, serverBase, "tunnel-server-gateway", p.servers.lead)
	host, _, _ := net.SplitHostPort(address)
	hosts := fmt.Sprintf("127.0.0.1 localhost\n%s kubernetes.default.svc\n%s %s\n", bed.ServiceIP, host, gatewayName)
	writeFile(t, p.path("hosts"), hosts)
	pod := p.newPod(t, providerBase)
	pod.write(t, "/etc/hosts", []byte(hosts), 0o644, 0)
	pod.run(t)
}

// named is a command that knows the names of the management cluster's Services.
func (p *privateBed) named(c bed.Command) bed.Command {
	c.Argv = append([]string{"/bin/sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, p.path("hosts")}, c.Argv...)
	return c
}

func (p *privateBed) startManager(t *testing.T) {
	t.Helper()
	config, err := os.ReadFile(p.path("admin"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := bed.RoleCommand("cluster-api-manager", capiInput{Kubeconfig: config, Namespace: privateNamespace, Clusters: []string{privateName}, Bootstrap: true})
	if err != nil {
		t.Fatal(err)
	}
	if p.manager, err = p.Node.Start(t.Context(), p.named(c)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.manager.Stop()
		if t.Failed() {
			text := p.manager.Stderr()
			t.Logf("Cluster API: %s\n%s", p.manager.Stdout(), text[max(0, len(text)-20<<10):])
		}
	})
}

// bearCluster makes the Cluster, and does what its infrastructure provider and the
// controller of its control plane do at first: it has an endpoint, certificates and
// a kubeconfig.
func (p *privateBed) bearCluster(t *testing.T) *clusterv1.Cluster {
	t.Helper()
	p.began = time.Now()
	meta := metav1.ObjectMeta{Namespace: privateNamespace, Name: privateName}
	infrastructure := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	infrastructure.SetAPIVersion(bed.InfrastructureGroup + "/" + bed.InfrastructureVersion)
	infrastructure.SetKind(bed.InfrastructureKind)
	infrastructure.SetNamespace(meta.Namespace)
	infrastructure.SetName(meta.Name)
	p.create(t, infrastructure)
	infrastructure.Object["status"] = map[string]any{"initialization": map[string]any{"provisioned": true}}
	if err := p.admin.Status().Update(t.Context(), infrastructure); err != nil {
		t.Fatal(err)
	}
	t.Log(p.runPage(t, "kubectl apply -f "))
	c := &clusterv1.Cluster{}
	if err := p.admin.Get(t.Context(), client.ObjectKey{Namespace: meta.Namespace, Name: meta.Name}, c); err != nil {
		t.Fatal(err)
	}
	p.makeCertificates(t, c)
	return c
}

// makeCertificates does what the controller of a kubeadm control plane does first.
// An external etcd's certificates come from whoever runs it.
func (p *privateBed) makeCertificates(t *testing.T, c *clusterv1.Cluster) {
	t.Helper()
	label := map[string]string{clusterv1.ClusterNameLabel: c.Name}
	cert, key := pki.PEM(p.site.EtcdCA.Client("kube-apiserver-etcd-client"))
	for purpose, data := range map[capisecret.Purpose]map[string][]byte{
		capisecret.EtcdCA:              {capisecret.TLSCrtDataName: p.site.EtcdCA.CertPEM()},
		capisecret.APIServerEtcdClient: {capisecret.TLSCrtDataName: cert, capisecret.TLSKeyDataName: key},
	} {
		p.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: capisecret.Name(c.Name, purpose), Labels: label},
			Type: clusterv1.ClusterSecretType, Data: data})
	}
	spec := p.kubeadmSpec(t)
	owner := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: c.Name, UID: c.UID}
	certificates := capisecret.NewCertificatesForInitialControlPlane(&spec.ClusterConfiguration)
	if err := certificates.LookupOrGenerate(t.Context(), p.admin, client.ObjectKeyFromObject(c), owner); err != nil {
		t.Fatal(err)
	}
	if err := capikubeconfig.CreateSecret(t.Context(), p.admin, c, quickly); err != nil {
		t.Fatal(err)
	}
}

// kubeadmSpec is that of the control plane, which has the page's files.
func (p *privateBed) kubeadmSpec(t *testing.T) bootstrapv1.KubeadmConfigSpec {
	t.Helper()
	c := &controlplanev1.KubeadmControlPlane{}
	if err := p.admin.Get(t.Context(), client.ObjectKey{Namespace: privateNamespace, Name: privateName}, c); err != nil {
		t.Fatal(err)
	}
	return c.Spec.KubeadmConfigSpec
}

// addMachine makes a Machine of the control plane and its KubeadmConfig, as the
// controller of a kubeadm control plane does.
func (p *privateBed) addMachine(t *testing.T, c *clusterv1.Cluster, number int) *bootstrapv1.KubeadmConfig {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: fmt.Sprintf("%s-%d", c.Name, number), Labels: map[string]string{
		clusterv1.ClusterNameLabel: c.Name, clusterv1.MachineControlPlaneLabel: ""}}
	machine := &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName: c.Name, Version: "v" + newKubeadm,
		Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: meta.Name}},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: bed.InfrastructureGroup, Kind: "GenericMachine", Name: meta.Name},
	}}
	p.create(t, machine)
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: meta, Spec: p.kubeadmSpec(t)}
	config.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine",
		Name: machine.Name, UID: machine.UID, Controller: ptr.To(true)}}
	p.create(t, config)
	return config
}

// bootstrapData waits for what the bootstrap provider makes of a KubeadmConfig.
func (p *privateBed) bootstrapData(t *testing.T, config *bootstrapv1.KubeadmConfig) (data []byte) {
	t.Helper()
	eventually(t, "the bootstrap data of "+config.Name, func(ctx context.Context) error {
		if err := p.manager.Ended(); err != nil {
			return bed.Stop(err)
		}
		if err := p.admin.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
			return err
		}
		if config.Status.DataSecretName == "" {
			return fmt.Errorf("got %+v", config.Status.Conditions)
		}
		s, err := p.secret(ctx, config.Namespace, config.Status.DataSecretName)
		if err == nil && string(s.Data["format"]) != "cloud-config" {
			err = errors.New("it has another format")
		}
		data = s.Data["value"]
		return err
	})
	if !strings.HasPrefix(string(data), "## template: jinja\n#cloud-config\n") {
		t.Fatalf("got the data %.100q", data)
	}
	return data
}

// boot boots a machine of the site with user data.
func (p *privateBed) boot(t *testing.T, number int, data []byte) *privateMachine {
	t.Helper()
	return bootMachine(t, p.site, number, p.path("causeway-agent"), data)
}

// awaitCondition waits for the condition, whose message has the text.
func (p *privateBed) awaitCondition(t *testing.T, c *clusterv1.Cluster, status metav1.ConditionStatus, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the condition of %s to be %s", c.Name, status), func(ctx context.Context) error {
		if err := p.admin.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		got := conditions.Get(c, provider.ConditionTunnel)
		if got == nil || got.Status != status || !strings.Contains(got.Message, text) {
			return fmt.Errorf("got %+v", got)
		}
		t.Logf("%s %s: %s", got.Status, got.Reason, got.Message)
		return nil
	})
}

// awaitKubectl waits until kubectl reaches the cluster by the bytes of its Secret. It
// returns them.
func (p *privateBed) awaitKubectl(t *testing.T, c *clusterv1.Cluster) (config []byte) {
	t.Helper()
	eventually(t, "kubectl to reach the cluster", func(ctx context.Context) error {
		var out string
		_, err := p.Node.Run(ctx, p.shell(p.page.command(t, "kubectl get secret prod-kubeconfig ")))
		if err == nil {
			out, err = p.Node.Run(ctx, p.shell(p.page.command(t, "kubectl --kubeconfig prod.conf ")))
		}
		if err == nil && !strings.Contains(out, "kube-system ") {
			err = fmt.Errorf("got %q, want namespaces", out)
		}
		if err != nil && p.admin.Get(ctx, client.ObjectKeyFromObject(c), c) == nil {
			err = fmt.Errorf("%w; the route: %+v", err, conditions.Get(c, provider.ConditionRoute))
		}
		return err
	})
	out, err := p.Node.Run(t.Context(), p.shell("kubectl --kubeconfig prod.conf get nodes -o name"))
	if err != nil || out != "" {
		t.Errorf("got the nodes %q, %v, want none yet", out, err)
	}
	if config, err = os.ReadFile(p.path("page", "prod.conf")); err != nil {
		t.Fatal(err)
	}
	return config
}

func (p *privateBed) awaitClusterCache(t *testing.T) {
	t.Helper()
	eventually(t, "Cluster API to be connected", func(context.Context) error {
		last, _, err := readStates(p.manager.Stdout())
		if err := errors.Join(err, p.manager.Ended()); err != nil {
			return bed.Stop(err)
		}
		if s := last[privateName]; !s.Connected || s.Green.IsZero() {
			return fmt.Errorf("got %+v", s)
		}
		return nil
	})
}

// startRequests starts to count requests through the kubeconfig.
func (p *privateBed) startRequests(t *testing.T, config []byte) *bed.Running {
	t.Helper()
	c, err := bed.RoleCommand("requests", requestsInput{Kubeconfig: config, Every: 40 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Node.Start(t.Context(), p.named(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// checkRequests waits until there were 500 requests, of which one may have failed.
func (p *privateBed) checkRequests(t *testing.T, r *bed.Running) {
	t.Helper()
	total := endRequests(t, r, 500)
	t.Logf("%d requests, of which %d failed; the slowest took %v", total.Sent, total.Failed, total.Slowest)
	if total.Failed*500 > total.Sent {
		t.Errorf("got %d failed requests of %d, want one in 500 at most", total.Failed, total.Sent)
	}
}

// replaceMachine does what a rolling update of the control plane does: a second machine
// joins by the first one's API server, which the bootstrap provider reaches for a token
// as well, and then the first machine is shut down.
func (p *privateBed) replaceMachine(t *testing.T, c *clusterv1.Cluster, first *privateMachine) *privateMachine {
	t.Helper()
	controlPlane := &controlplanev1.KubeadmControlPlane{}
	if err := p.admin.Get(t.Context(), client.ObjectKeyFromObject(c), controlPlane); err != nil {
		t.Fatal(err)
	}
	before := controlPlane.DeepCopy()
	controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	if err := p.admin.Status().Patch(t.Context(), controlPlane, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	second := p.boot(t, 1, p.bootstrapData(t, p.addMachine(t, c, 1)))
	second.initialized()
	second.agentSays("msg=connected")
	if err := p.site.AwaitMachine(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	first.end()
	return second
}

// deleteCluster deletes it as a person does, and what its controllers would delete.
func (p *privateBed) deleteCluster(t *testing.T, c *clusterv1.Cluster) {
	t.Helper()
	ours := []client.DeleteAllOfOption{client.InNamespace(c.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name}}
	for _, object := range []client.Object{&clusterv1.Machine{}, &bootstrapv1.KubeadmConfig{}} {
		if err := p.admin.DeleteAllOf(t.Context(), object, ours...); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.admin.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Cluster and the tunnel's Secrets to be gone", func(ctx context.Context) error {
		if err := p.admin.Get(ctx, client.ObjectKeyFromObject(c), c); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Cluster: %v, %v", err, c.Finalizers)
		}
		for _, suffix := range []string{provider.SuffixTunnelAgent, provider.SuffixTunnelRoute} {
			if _, err := p.secret(ctx, c.Namespace, c.Name+suffix); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s: %v", suffix, err)
			}
		}
		return nil
	})
	// The API server's garbage collector does not run here.
	if err := p.admin.DeleteAllOf(t.Context(), &corev1.Secret{}, ours...); err != nil {
		t.Fatal(err)
	}
}

const plainName = "plain"

// makePlain makes a Cluster without the label.
func (p *privateBed) makePlain(t *testing.T) {
	t.Helper()
	p.create(t, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: privateNamespace, Name: plainName}, Spec: clusterv1.ClusterSpec{
		ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443},
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: bed.InfrastructureGroup, Kind: bed.InfrastructureKind, Name: plainName},
	}})
}

// checkPlain wants nothing to have happened to that.
func (p *privateBed) checkPlain(t *testing.T) {
	t.Helper()
	c := &clusterv1.Cluster{}
	if err := p.admin.Get(t.Context(), client.ObjectKey{Namespace: privateNamespace, Name: plainName}, c); err != nil {
		t.Fatal(err)
	}
	if got := conditions.Get(c, provider.ConditionTunnel); got != nil {
		t.Errorf("got the condition %+v without the label", got)
	}
	for _, suffix := range []string{provider.SuffixTunnelAgent, provider.SuffixTunnelRoute} {
		if _, err := p.secret(t.Context(), privateNamespace, plainName+suffix); !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, want that it is not there", suffix, err)
		}
	}
}

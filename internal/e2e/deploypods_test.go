package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

func fromUnstructured(from map[string]any, to any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(from, to, true)
}

const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// A pod is one that this test runs as the kubelet does: the program of the image
// with the flags, variables, files, user and rights of its template.
type pod struct {
	d         *deploying
	name      string
	object    *corev1.Pod
	host      *bed.Namespace
	ip        string
	container bed.Container
	running   *bed.Running
}

// start makes the Pod of a base, and runs it until the test ends.
func (d *deploying) start(t *testing.T, base string) *pod {
	t.Helper()
	p := d.newPod(t, base)
	p.run(t)
	return p
}

// newPod makes the Pod of a base, with its files, on a host of its own or on its node's
// network.
func (d *deploying) newPod(t *testing.T, base string) *pod {
	t.Helper()
	d.pods++
	p := d.prepare(t, podOf(d.template(t, base), fmt.Sprintf("%s-%d", base, d.pods)))
	d.create(t, p.object.DeepCopy())
	return p
}

// prepare makes a Pod's files, and its host.
func (d *deploying) prepare(t *testing.T, object *corev1.Pod) *pod {
	t.Helper()
	p := &pod{d: d, name: object.Name, object: object}
	var err error
	if p.host, p.ip = d.Node, d.Kube.Host(); !object.Spec.HostNetwork {
		p.host, p.ip, err = d.AddHost(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	p.image(t)
	for _, v := range p.object.Spec.Containers[0].VolumeMounts {
		p.mount(t, v)
	}
	if yes := p.object.Spec.AutomountServiceAccountToken; yes != nil && *yes {
		p.account(t)
	}
	return p
}

// podOf is a Pod of a template.
func podOf(template *corev1.PodTemplateSpec, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: template.Namespace, Name: name, Labels: template.Labels}, Spec: *template.Spec.DeepCopy()}
}

// image makes the files of the image, and those that a kubelet adds.
func (p *pod) image(t *testing.T) {
	t.Helper()
	security, c := p.object.Spec.SecurityContext, p.object.Spec.Containers[0]
	program, _, _ := strings.Cut(path.Base(c.Image), ":")
	p.container = bed.Container{Root: p.d.path(p.name), Argv: []string{"/" + program}, User: *security.RunAsUser, Group: *security.RunAsGroup}
	p.container.Env = []string{"KUBERNETES_SERVICE_HOST=" + bed.ServiceIP, "KUBERNETES_SERVICE_PORT=443"}
	for _, v := range c.Env {
		p.container.Env = append(p.container.Env, v.Name+"="+p.value(t, v))
	}
	for _, arg := range c.Args {
		p.container.Argv = append(p.container.Argv, p.expand(arg))
	}
	hosts := "127.0.0.1 localhost\n"
	if !p.object.Spec.HostNetwork { // the node does not know the names of the cluster
		hosts += bed.ServiceIP + " kubernetes.default.svc\n"
	}
	p.write(t, "/etc/hosts", []byte(hosts), 0o644, 0)
	text, err := os.ReadFile(p.d.path(program))
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "/"+program, text, 0o755, 0)
	if err := os.Chmod(p.container.Root, 0o755); err != nil {
		t.Fatal(err)
	}
}

func (p *pod) write(t *testing.T, path string, data []byte, mode os.FileMode, group int) {
	t.Helper()
	path = filepath.Join(p.container.Root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 0, group); err != nil {
		t.Fatal(err)
	}
}

var reference = regexp.MustCompile(`\$\(([^)]+)\)`)

// expand fills in variables that are defined before, as Kubernetes does.
func (p *pod) expand(text string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		for _, v := range slices.Backward(p.container.Env) {
			if name, value, _ := strings.Cut(v, "="); "$("+name+")" == found {
				return value
			}
		}
		return found
	})
}

func (p *pod) value(t *testing.T, v corev1.EnvVar) string {
	t.Helper()
	if v.ValueFrom == nil {
		return p.expand(v.Value)
	}
	if from := v.ValueFrom.SecretKeyRef; from != nil {
		s, err := p.d.secret(t.Context(), p.object.Namespace, from.Name)
		if err != nil {
			t.Fatal(err)
		}
		return string(s.Data[from.Key])
	}
	return map[string]string{"metadata.name": p.name, "metadata.namespace": p.object.Namespace}[v.ValueFrom.FieldRef.FieldPath]
}

// mount makes a volume: a Secret's files with their mode and fsGroup.
func (p *pod) mount(t *testing.T, v corev1.VolumeMount) {
	t.Helper()
	i := slices.IndexFunc(p.object.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == v.Name && volume.Secret != nil })
	if i < 0 {
		t.Fatalf("%s: the mount %s is of no Secret", p.name, v.Name)
	}
	volume := p.object.Spec.Volumes[i].Secret
	s, err := p.d.secret(t.Context(), p.object.Namespace, volume.SecretName)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range s.Data {
		p.write(t, filepath.Join(v.MountPath, name), data, os.FileMode(*volume.DefaultMode), int(*p.object.Spec.SecurityContext.FSGroup))
	}
}

// account mounts a token of the ServiceAccount, for the API server or for others.
func (p *pod) account(t *testing.T, audiences ...string) {
	t.Helper()
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.object.Namespace, Name: p.object.Spec.ServiceAccountName}}
	if err := p.d.admin.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"token": []byte(token.Status.Token), "ca.crt": p.d.Kube.CA.CertPEM(), "namespace": []byte(p.object.Namespace)} {
		p.write(t, filepath.Join(tokenPath, name), data, 0o440, int(p.container.Group))
	}
}

func (p *pod) run(t *testing.T) {
	t.Helper()
	var err error
	if p.running, err = p.host.StartContainer(p.d.t.Context(), p.container); err != nil {
		t.Fatal(err)
	}
	p.d.t.Cleanup(func() {
		p.running.Stop()
		if p.d.t.Failed() {
			p.d.t.Logf("%s: %s", p.name, p.running.Stderr())
		}
	})
}

// port is the container's of a name.
func (p *pod) port(name string) string {
	for _, port := range p.object.Spec.Containers[0].Ports {
		if port.Name == name {
			return fmt.Sprint(port.ContainerPort)
		}
	}
	return name
}

func (p *pod) address(port string) string { return net.JoinHostPort(p.ip, p.port(port)) }

// ready waits until both probes succeed.
func (p *pod) ready(t *testing.T) {
	t.Helper()
	c := p.object.Spec.Containers[0]
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		eventually(t, p.name+" to answer "+probe.HTTPGet.Path, func(ctx context.Context) error {
			if err := p.running.Ended(); err != nil {
				return bed.Stop(err)
			}
			return p.probe(ctx, probe.HTTPGet.Path, probe.HTTPGet.Port)
		})
	}
}

func (p *pod) probe(ctx context.Context, path string, port intstr.IntOrString) error {
	transport := &http.Transport{DialContext: p.d.Node.DialContext, DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address(port.String())+path, nil)
	if err != nil {
		return err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
		return fmt.Errorf("got %s %s", res.Status, body)
	}
	return nil
}

// exec runs another command in the container, as kubectl exec does.
func (p *pod) exec(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	c := p.container
	c.Argv = append([]string{p.container.Argv[0]}, args...)
	c.Stdin = strings.NewReader(stdin)
	r, err := p.host.StartContainer(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(); err != nil {
		t.Fatal(err)
	}
	return r.Stdout()
}

// end tells the program to end, after preStop, which it has to within what is
// left of the pod's grace.
func (p *pod) end(t *testing.T) {
	t.Helper()
	if err := p.running.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	left := time.Duration(*p.object.Spec.TerminationGracePeriodSeconds) * time.Second
	if l := p.object.Spec.Containers[0].Lifecycle; l != nil {
		left -= time.Duration(l.PreStop.Sleep.Seconds) * time.Second
	}
	ended := make(chan error, 1)
	go func() { ended <- p.running.Wait() }()
	if err := next(t, ended, left, p.name+"'s end"); err != nil {
		t.Error(err)
	}
	if err := p.d.admin.Delete(t.Context(), p.object, client.GracePeriodSeconds(0)); err != nil {
		t.Error(err)
	}
}

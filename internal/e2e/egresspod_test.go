package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// An apiServerPod runs a kube-apiserver and its sidecar as the pod's manifest says.
// Containers see the machine's files: the manifests name the same paths inside and
// outside.
type apiServerPod struct {
	t       *testing.T
	kube    *bed.Kube
	ns      *bed.Namespace
	program string // causeway, for the sidecar

	mu        sync.Mutex // guards the fields below
	sidecar   *bed.Running
	container corev1.Container // the sidecar's
	restarts  int
	// fault, if not nil, is called once: after the sidecar has started, before
	// kube-apiserver starts.
	fault func() error
}

func (p *apiServerPod) setFault(fault func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// takeRestarts returns how often kube-apiserver was to be restarted since the last call.
func (p *apiServerPod) takeRestarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.restarts = 0 }()
	return p.restarts
}

// replace ends the pod and starts another one. An error means that kube-apiserver does
// not run now.
func (p *apiServerPod) replace(ctx context.Context, spec *corev1.PodSpec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restarts++
	p.kube.StopAPIServer()
	if p.sidecar != nil {
		p.sidecar.Stop()
		p.sidecar = nil
	}
	for _, c := range spec.InitContainers {
		if err := p.startSidecar(ctx, &c); err != nil {
			return err
		}
	}
	if fault := p.fault; fault != nil {
		p.fault = nil
		if err := fault(); err != nil {
			return err
		}
	}
	c := spec.Containers[0]
	return p.kube.StartAPIServer(append(slices.Clone(c.Command), c.Args...))
}

// startSidecar starts an init container that goes on, and waits for its probe.
func (p *apiServerPod) startSidecar(ctx context.Context, c *corev1.Container) (err error) {
	if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		return fmt.Errorf("the init container %s would end before kube-apiserver", c.Name)
	}
	var env []string
	for _, v := range c.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	p.container = *c
	p.sidecar, err = p.ns.Start(p.t.Context(), bed.Command{Argv: append([]string{p.program}, c.Args...), Env: env})
	if err != nil {
		return err
	}
	return bed.Poll(ctx, "the sidecar's startup probe", func(ctx context.Context) error {
		if err := p.sidecar.Ended(); err != nil {
			return bed.Stop(err)
		}
		_, err := p.ns.Run(ctx, bed.Command{Argv: append([]string{p.program}, c.StartupProbe.Exec.Command[1:]...)})
		return err
	})
}

func (p *apiServerPod) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sidecar != nil {
		p.sidecar.Stop()
		if p.t.Failed() {
			p.t.Logf("the sidecar: %s", p.sidecar.Stderr())
		}
	}
}

// podSpec is a pod as it is before there is a sidecar.
func (p *apiServerPod) podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-apiserver", Image: "none", Command: p.kube.APIServerCommand()}}}
}

// runLoop calls step again and again until the test ends.
func runLoop(t *testing.T, step func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			step(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// runStatic runs what is in a directory of manifests, as a kubelet does, and returns the
// manifest's path.
func (p *apiServerPod) runStatic(dir string) string {
	t := p.t
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kube-apiserver.yaml")
	last, err := yaml.Marshal(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-apiserver"},
		Spec:       p.podSpec(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, last, 0o600); err != nil {
		t.Fatal(err)
	}
	runLoop(t, func(ctx context.Context) {
		text, err := onlyManifest(dir)
		if err != nil {
			t.Errorf("a kubelet would read: %v", err)
			return
		}
		if bytes.Equal(text, last) {
			return
		}
		last = text
		var pod corev1.Pod
		if err := yaml.UnmarshalStrict(text, &pod); err != nil {
			t.Errorf("a kubelet would refuse the manifest: %v\n%s", err, text)
			return
		}
		if err := p.replace(ctx, &pod.Spec); err != nil {
			t.Logf("the pod does not start: %v", err)
		}
	})
	return path
}

// onlyManifest returns the one file that a kubelet would run: it takes all that do not
// begin with a dot.
func onlyManifest(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") })
	if len(entries) != 1 {
		return nil, fmt.Errorf("%d manifests: %v", len(entries), entries)
	}
	return os.ReadFile(filepath.Join(dir, entries[0].Name()))
}

// runDeployment makes a Deployment in another cluster, and does what its controller and
// its kubelet do, with one pod at a time.
func (p *apiServerPod) runDeployment(management *kubernetes.Clientset, kubelet *bed.Kubelet, namespace string) {
	t, name := p.t, "prod-apiserver"
	t.Helper()
	labels := map[string]string{"app": name}
	deployments, pods := management.AppsV1().Deployments(namespace), management.CoreV1().Pods(namespace)
	replicas := int32(1)
	d, err := deployments.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.podSpec()}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := d.Generation
	runLoop(t, func(ctx context.Context) {
		d, err := deployments.Get(ctx, name, metav1.GetOptions{})
		if err != nil || d.Generation == seen {
			return
		}
		seen = d.Generation
		err = p.replace(ctx, &d.Spec.Template.Spec)
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, 30*time.Second)
			err = p.kube.WaitReady(limited)
			cancel()
		}
		if err == nil {
			err = p.recordPod(ctx, pods, kubelet, d)
		}
		if err != nil && ctx.Err() == nil {
			t.Logf("the pod does not start: %v", err)
		}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1}
		if err == nil {
			d.Status.ReadyReplicas, d.Status.AvailableReplicas = 1, 1
		}
		if _, err := deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
			t.Errorf("the Deployment's status: %v", err)
		}
	})
}

type podClient interface {
	Create(context.Context, *corev1.Pod, metav1.CreateOptions) (*corev1.Pod, error)
	UpdateStatus(context.Context, *corev1.Pod, metav1.UpdateOptions) (*corev1.Pod, error)
	DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error
}

// recordPod replaces the Pods of a Deployment by one that runs.
func (p *apiServerPod) recordPod(ctx context.Context, pods podClient, kubelet *bed.Kubelet, d *appsv1.Deployment) error {
	now := int64(0)
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", d.Name, d.Generation), Labels: d.Spec.Template.Labels}, Spec: *d.Spec.Template.Spec.DeepCopy()}
	pod.Spec.NodeName = bed.NodeName
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	kubelet.PlacePod(pod.Name, p.ns, p.program)
	pod.Status.Phase = corev1.PodRunning
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return errors.Join(err)
}

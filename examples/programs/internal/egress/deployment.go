package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/kubeconfig/connect"
	"github.com/causewayproject/causeway/tunnel/egress"
)

// A hostedPod is a Deployment in a management cluster.
type hostedPod struct {
	management      *connect.Client
	clients         *kubernetes.Clientset
	namespace, name string
	socketDir       string
}

func newHostedPlace(f *placeFlags, management *connect.Client) (*place, error) {
	namespace, name, ok := strings.Cut(f.deployment, "/")
	if !ok || namespace == "" || name == "" {
		return nil, cli.Mistake("--deployment %q is not NAMESPACE/NAME", f.deployment)
	}
	config := management.Config()
	config.Timeout = requestTimeout
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	p := &hostedPod{management, clients, namespace, name, f.sidecar.SocketDir()}
	return &place{read: p.read, write: p.write, ready: p.ready, compare: p.compare,
		former: "the Deployment's history has the phase before: kubectl rollout undo"}, nil
}

// path is that of the Deployment. It is read and written as JSON, with fields that this
// program does not know.
func (p *hostedPod) path() []string {
	return []string{"/apis/apps/v1/namespaces", p.namespace, "deployments", p.name}
}

func (p *hostedPod) read(ctx context.Context) ([]byte, error) {
	text, err := p.clients.AppsV1().RESTClient().Get().AbsPath(p.path()...).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		// The text of a raw answer is poor.
		if _, better := p.clients.AppsV1().Deployments(p.namespace).Get(ctx, p.name, metav1.GetOptions{}); better != nil {
			err = better
		}
		return nil, fmt.Errorf("--deployment: %w", err)
	}
	// The status and the record of fields are not what somebody wrote.
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("--deployment: %w", err)
	}
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, field := range []string{"managedFields", "generation", "creationTimestamp", "uid"} {
			delete(metadata, field)
		}
	}
	return yaml.Marshal(object)
}

// write fails if somebody has changed the Deployment since it was read, by its
// resourceVersion.
func (p *hostedPod) write(ctx context.Context, before, next []byte, _ egress.Phase) error {
	now, err := p.read(ctx)
	if err != nil {
		return err
	}
	if !bytes.Equal(specOf(now), specOf(before)) {
		return errors.New("--deployment: somebody has changed it meanwhile: run the command again")
	}
	body, err := withVersionOf(now, next)
	if err != nil {
		return fmt.Errorf("--deployment: %w", err)
	}
	err = p.clients.AppsV1().RESTClient().Put().AbsPath(p.path()...).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("--deployment: %w", err)
	}
	return nil
}

// withVersionOf returns next as JSON with the resourceVersion of now, which changes with the
// status, too.
func withVersionOf(now, next []byte) ([]byte, error) {
	var version metav1.PartialObjectMetadata
	var object map[string]any
	if err := errors.Join(yaml.Unmarshal(now, &version), yaml.Unmarshal(next, &object)); err != nil {
		return nil, err
	}
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("it has no metadata")
	}
	metadata["resourceVersion"] = version.ResourceVersion
	return json.Marshal(object)
}

// specOf returns a manifest's spec in one form.
func specOf(manifest []byte) []byte {
	var object struct {
		Spec any `json:"spec"`
	}
	if yaml.Unmarshal(manifest, &object) != nil {
		return nil
	}
	text, _ := json.Marshal(object.Spec)
	return text
}

// ready returns nil when the Deployment has only pods of its present template.
func (p *hostedPod) ready(ctx context.Context) error {
	d, err := p.clients.AppsV1().Deployments(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	s := d.Status
	if s.ObservedGeneration < d.Generation || s.UpdatedReplicas < want || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < want {
		return fmt.Errorf("the Deployment has %d of %d pods that are new and available%s", min(s.UpdatedReplicas, s.AvailableReplicas), want, progressOf(d))
	}
	return nil
}

func progressOf(d *appsv1.Deployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return ": " + c.Message
		}
	}
	return ""
}

// compare runs "egress probe" in the sidecar of a pod that runs.
func (p *hostedPod) compare(ctx context.Context, targets []string) (all []comparison, err error) {
	d, err := p.clients.AppsV1().Deployments(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := p.clients.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector), FieldSelector: "status.phase=Running"})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil || !hasSidecar(&pod) {
			continue
		}
		var out, errs bytes.Buffer
		command := append([]string{"/causeway", "egress", "probe", "--dir=" + p.socketDir}, targets...)
		if err := p.management.Exec(ctx, connect.ExecOptions{Namespace: p.namespace, Pod: pod.Name, Container: egress.SidecarName,
			Command: command, Stdout: &out, Stderr: &errs}); err != nil {
			return nil, fmt.Errorf("%s in the pod %s: %w %s", strings.Join(command[:3], " "), pod.Name, err, bytes.TrimSpace(errs.Bytes()))
		}
		if err := json.Unmarshal(out.Bytes(), &all); err != nil {
			return nil, fmt.Errorf("%s in the pod %s: %w", strings.Join(command[:3], " "), pod.Name, err)
		}
		return all, nil
	}
	return nil, fmt.Errorf("no pod of --deployment runs with the container %s", egress.SidecarName)
}

func hasSidecar(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == egress.SidecarName {
			return true
		}
	}
	return false
}

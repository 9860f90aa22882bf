package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/tunnel/egress"
)

// A hostedPod is a Deployment in a management cluster.
type hostedPod struct {
	management      *cluster
	namespace, name string
	socketDir       string
}

func (p *hostedPod) place() *place {
	return &place{read: p.read, write: p.write, ready: p.ready, compare: p.compare,
		former: "the Deployment's history has the phase before: kubectl rollout undo"}
}

// template is the part of a Deployment that a phase changes, with fields that this program
// does not know.
type template struct {
	Kind string `json:"kind"`
	Spec struct {
		Template any `json:"template"`
	} `json:"spec"`
}

func (p *hostedPod) read(ctx context.Context) ([]byte, error) {
	d := template{}
	if err := p.management.get(ctx, "/apis/apps/v1/namespaces/"+p.namespace+"/deployments/"+p.name, &d); err != nil {
		return nil, fmt.Errorf("--deployment: %w", err)
	}
	d.Kind = "Deployment"
	return yaml.Marshal(d)
}

// write fails if somebody has changed the template since it was read.
func (p *hostedPod) write(ctx context.Context, before, next []byte, _ egress.Phase) error {
	var from, to template
	if err := errors.Join(yaml.Unmarshal(before, &from), yaml.Unmarshal(next, &to)); err != nil {
		return fmt.Errorf("--deployment: %w", err)
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/spec/template", "value": from.Spec.Template},
		{"op": "replace", "path": "/spec/template", "value": to.Spec.Template},
	})
	if err == nil {
		_, err = p.management.AppsV1().Deployments(p.namespace).Patch(ctx, p.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("--deployment: %w (if somebody has changed it meanwhile, run the command again)", err)
	}
	return nil
}

// ready returns nil when the Deployment has only pods of its present template.
func (p *hostedPod) ready(ctx context.Context) error {
	d, err := p.management.AppsV1().Deployments(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s, want := d.Status, *d.Spec.Replicas // the API server sets it
	if s.ObservedGeneration < d.Generation || s.UpdatedReplicas < want || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < want {
		return fmt.Errorf("the Deployment has %d of %d pods that are new and available", min(s.UpdatedReplicas, s.AvailableReplicas), want)
	}
	return nil
}

// compare runs "egress probe" in the sidecar of a pod that runs.
func (p *hostedPod) compare(ctx context.Context, targets []string) (all []comparison, err error) {
	d, err := p.management.AppsV1().Deployments(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := p.management.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector), FieldSelector: "status.phase=Running"})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool {
		isSidecar := func(c corev1.Container) bool { return c.Name == egress.SidecarName }
		return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Spec.InitContainers, isSidecar)
	})
	if i < 0 {
		return nil, fmt.Errorf("no pod of --deployment runs with the container %s", egress.SidecarName)
	}
	var out, errs bytes.Buffer
	o := corev1.PodExecOptions{Container: egress.SidecarName, Command: append([]string{"/causeway", "egress", "probe", "--dir=" + p.socketDir}, targets...)}
	if err = runInPod(ctx, p.management.config, p.management, &pods.Items[i], o, &out, &errs); err == nil {
		err = json.Unmarshal(out.Bytes(), &all)
	}
	if err != nil {
		return nil, fmt.Errorf("/causeway egress probe in the pod %s: %w %s", pods.Items[i].Name, err, bytes.TrimSpace(errs.Bytes()))
	}
	return all, nil
}

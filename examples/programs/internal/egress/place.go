package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	streaming "k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel/egress"
)

// A place is where a kube-apiserver is defined.
type place interface {
	read(ctx context.Context) (manifest []byte, err error)
	// write replaces the manifest by next, if it is still the one that was read.
	write(ctx context.Context, before, next []byte, phase egress.Phase) error
	// ready returns nil when the kube-apiserver of the manifest serves, and not the one
	// before it.
	ready(ctx context.Context) error
	// compare connects to targets by both ways, from where the sidecar is.
	compare(ctx context.Context, targets []string) ([]comparison, error)
	former() string // says where the manifest of the phase before is
}

// A staticPod is a manifest that a kubelet runs.
type staticPod struct {
	*placeFlags
	cluster *cluster
	started string // when the process that served last has started
}

func (p *staticPod) read(context.Context) ([]byte, error) { return os.ReadFile(p.manifest) }

func (p *staticPod) former() string { return "the manifest of the phase before is in " + p.state }

func (p *staticPod) compare(ctx context.Context, targets []string) ([]comparison, error) {
	if err := checkListens(ctx, p.sidecar.SocketDir()); err != nil {
		return nil, fmt.Errorf("the sidecar does not listen: %w", err)
	}
	return compareWays(ctx, p.sidecar.SocketDir(), targets), nil
}

// write keeps the manifest in the state directory, and replaces it at once: the kubelet
// reads every file in the directory of manifests, complete or not.
func (p *staticPod) write(_ context.Context, before, next []byte, phase egress.Phase) error {
	now, err := os.ReadFile(p.manifest)
	info, infoErr := os.Lstat(p.manifest)
	switch err := errors.Join(err, infoErr); {
	case err != nil:
		return fmt.Errorf("--manifest: %w", err)
	case !bytes.Equal(now, before):
		return errors.New("--manifest: somebody has changed it meanwhile: run the command again")
	case info.Mode().Type() != 0:
		return errors.New("--manifest: it is not a file but a link, or something else: name the file itself")
	}
	name := filepath.Join(p.state, filepath.Base(p.manifest))
	fresh := name + ".new"
	err = os.MkdirAll(p.state, 0o700)
	if err == nil {
		err = writeWhole(name+"."+string(phase), before, info)
	}
	if err == nil {
		err = writeWhole(fresh, next, info)
	}
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	switch err := os.Rename(fresh, p.manifest); {
	case errors.Is(err, syscall.EXDEV):
		return fmt.Errorf("--state: %s is on another file system than --manifest, so that the kubelet could read half a manifest: name another directory", p.state)
	case err != nil:
		return fmt.Errorf("--manifest: %w", err)
	}
	return nil
}

// writeWhole writes a file with the mode and the owner of another one.
func writeWhole(path string, data []byte, like os.FileInfo) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, cli.KeepOwner(f, like), f.Chmod(like.Mode().Perm()), f.Sync(), f.Close())
}

// ready returns nil if another process serves than before.
func (p *staticPod) ready(ctx context.Context) error {
	started, err := p.startTime(ctx)
	switch {
	case err != nil:
		return err
	case started == p.started:
		return errors.New("the kubelet has not restarted kube-apiserver yet")
	}
	if _, err := p.cluster.CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return err
	}
	p.started = started
	return nil
}

var startMetric = regexp.MustCompile(`(?m)^process_start_time_seconds (.+)$`)

// startTime returns when the process of the API server started.
func (p *staticPod) startTime(ctx context.Context) (string, error) {
	metrics, err := p.cluster.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	m := startMetric.FindSubmatch(metrics)
	if m == nil {
		return "", errors.New("there is no process_start_time_seconds")
	}
	return string(m[1]), nil
}

var addressFlag, portFlag = regexp.MustCompile(`--advertise-address=([^\s"',\]]+)`), regexp.MustCompile(`--secure-port=(\d+)`)

// localServer returns the URL of the kube-apiserver of a manifest; "" if the manifest does
// not say its address. A kubeconfig may lead to a load balancer, and so to another one.
func localServer(manifest []byte) string {
	host, port := addressFlag.FindSubmatch(manifest), portFlag.FindSubmatch(manifest)
	switch {
	case host == nil:
		return ""
	case port == nil:
		port = [][]byte{nil, []byte("6443")}
	}
	return "https://" + net.JoinHostPort(string(host[1]), string(port[1]))
}

// A hostedPod is a Deployment in a management cluster.
type hostedPod struct {
	management      *cluster
	namespace, name string
	socketDir       string
}

func (p *hostedPod) former() string {
	return "the Deployment's history has the phase before: kubectl rollout undo"
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

// runInPod runs a command in a container until it ends. As kubectl does, it asks by
// WebSocket, and by SPDY if the API server has none. A SPDY connection that breaks is no
// error: the caller has to see that the output is complete.
func runInPod(ctx context.Context, config *rest.Config, clients kubernetes.Interface, pod *corev1.Pod, o corev1.PodExecOptions, stdout, stderr io.Writer) error {
	config = rest.CopyConfig(config)
	config.Timeout, o.Stdout, o.Stderr = 0, true, true // ctx bounds it
	u := clients.CoreV1().RESTClient().Get().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&o, scheme.ParameterCodec).URL()
	bySPDY, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	if err != nil {
		return err
	}
	byWebSocket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(byWebSocket, bySPDY, streaming.IsUpgradeFailure)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
}

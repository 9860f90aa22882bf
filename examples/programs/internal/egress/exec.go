package egress

import (
	"context"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	streaming "k8s.io/streaming/pkg/httpstream"
)

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

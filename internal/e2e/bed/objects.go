package bed

import (
	"context"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// Config returns the configuration of an administrator's client that is beside
// the API server: what tests prepare with, not what they test.
func (k *Kube) Config() *rest.Config {
	cert, key := pki.PEM(k.CA.Client("bed", "system:masters"))
	return &rest.Config{
		Host:            "https://" + k.Address(),
		Dial:            k.ns.DialContext,
		Proxy:           func(*http.Request) (*url.URL, error) { return nil, nil },
		TLSClientConfig: rest.TLSClientConfig{CAData: k.CA.CertPEM(), CertData: cert, KeyData: key},
	}
}

// clients are the administrator's.
func (k *Kube) clients() *kubernetes.Clientset { return kubernetes.NewForConfigOrDie(k.Config()) }

// addNode makes the Node by which kube-apiserver finds the Kubelet.
func (k *Kube) addNode(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName}}
	node, err := k.clients().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: APIIP}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
	_, err = k.clients().CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// AddNamespace makes a namespace.
func (k *Kube) AddNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := k.clients().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return err
}

// AddPod makes a pod in a namespace that exists; it runs at once.
func (k *Kube) AddPod(ctx context.Context, namespace, name string) error {
	pods := k.clients().CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: NodeName, Containers: []corev1.Container{{Name: "main", Image: "none", Stdin: true}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

package egress

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/kubeconfig/connect"
)

const (
	requestTimeout = 15 * time.Second
	maxNodes       = 20 // of which targets are compared
	maxPods        = 5  // whose logs are tried
)

// A cluster is the one whose kube-apiserver it is, or the one that has the Deployment.
type cluster struct {
	*kubernetes.Clientset
	config *rest.Config
}

// newCluster returns a kubeconfig's cluster, at another address unless local is empty. Its
// client is used until the program ends.
func newCluster(file, local string) (*cluster, error) {
	config, err := connect.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if current := config.Contexts[config.CurrentContext]; current != nil && config.Clusters[current.Cluster] != nil && local != "" {
		config.Clusters[current.Cluster].Server = local
	}
	client, err := connect.New(config, nil)
	if err != nil {
		return nil, err
	}
	c := &cluster{config: client.Config()}
	c.config.Timeout, c.config.WarningHandler = requestTimeout, rest.NoWarnings{}
	c.Clientset, err = kubernetes.NewForConfig(c.config)
	return c, err
}

// get reads an object, or a list. The error has the API server's words if there are some.
func (c *cluster) get(ctx context.Context, path string, into any) error {
	text, err := c.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// A target is an address that kube-apiserver connects to.
type target struct{ kind, name, address string }

// A request is one to the API server that makes it connect to a target.
type request struct {
	target
	run func(ctx context.Context) error
}

// A survey is what kube-apiserver connects to in a cluster, and requests that show it.
type survey struct {
	targets  []target
	requests []request
	notes    []string
}

func (s *survey) addNote(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// takeSurvey finds targets and requests. It only reads.
func (c *cluster) takeSurvey(ctx context.Context) (*survey, error) {
	s := &survey{}
	for _, add := range []func(context.Context, *survey) error{c.addNodes, c.addPods, c.addWebhooks, c.addAggregated} {
		if err := add(ctx, s); err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
	}
	if len(s.targets) == 0 { // a cluster without nodes: at least the way to the agent is tried
		s.targets = []target{{kindAPIServer, "kubernetes", "kubernetes.default.svc:443"}}
	}
	return s, nil
}

func (c *cluster) addNodes(ctx context.Context, s *survey) error {
	nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: maxNodes})
	if err != nil {
		return err
	}
	if nodes.Continue != "" {
		s.addNote("only the first %d nodes are compared", maxNodes)
	}
	for _, node := range nodes.Items {
		if address := kubeletAddress(&node); address != "" {
			s.targets = append(s.targets, target{"kubelet", node.Name, address})
		}
	}
	if len(s.targets) == 0 {
		s.addNote("no node has an address: no kubelet is compared")
	}
	return nil
}

func kubeletAddress(node *corev1.Node) string {
	port := cmp.Or(node.Status.DaemonEndpoints.KubeletEndpoint.Port, 10250)
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeHostName, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind {
				return net.JoinHostPort(a.Address, strconv.Itoa(int(port)))
			}
		}
	}
	return ""
}

// addPods adds the requests for a log, of pods that run on nodes of the survey.
func (c *cluster) addPods(ctx context.Context, s *survey) error {
	pods, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running", Limit: 100})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		node := slices.IndexFunc(s.targets, func(t target) bool { return t.kind == "kubelet" && t.name == pod.Spec.NodeName })
		if node < 0 || len(pod.Spec.Containers) == 0 || pod.DeletionTimestamp != nil || len(s.requests) == maxPods {
			continue
		}
		o := &corev1.PodLogOptions{Container: pod.Spec.Containers[0].Name, TailLines: new(int64(1))}
		t := target{kindLogs, pod.Namespace + "/" + pod.Name, s.targets[node].address}
		s.requests = append(s.requests, request{t, func(ctx context.Context) error {
			return c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, o).Do(ctx).Error()
		}})
	}
	if len(s.requests) == 0 {
		s.addNote("no pod runs: no log is read")
	}
	return nil
}

// serviceRef names the Service of a webhook or of an API.
type serviceRef struct {
	Namespace, Name string
	Port            int
}

// addService adds a Service as a target, if it has an address.
func (c *cluster) addService(ctx context.Context, s *survey, kind, of string, ref *serviceRef) (t target) {
	if ref == nil {
		return t // a URL, which the selection "cluster" does not lead, or an API of its own
	}
	service, err := c.CoreV1().Services(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		s.addNote("%s %s: %v", kind, of, err)
	case net.ParseIP(service.Spec.ClusterIP) == nil:
		s.addNote("%s %s: the Service %s/%s has no address: it is not compared", kind, of, ref.Namespace, ref.Name)
	default:
		t = target{kind, of, net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(cmp.Or(ref.Port, 443)))}
		s.targets = append(s.targets, t)
	}
	return t
}

func (c *cluster) addWebhooks(ctx context.Context, s *survey) error {
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		var list struct {
			Items []struct {
				Webhooks []struct {
					Name         string
					ClientConfig struct{ Service *serviceRef }
				}
			}
		}
		if err := c.get(ctx, "/apis/admissionregistration.k8s.io/v1/"+resource, &list); err != nil {
			return err
		}
		for _, config := range list.Items {
			for _, w := range config.Webhooks {
				c.addService(ctx, s, "webhook", w.Name, w.ClientConfig.Service)
			}
		}
	}
	return nil
}

// addAggregated adds the APIs that a Service serves, and a request for each.
func (c *cluster) addAggregated(ctx context.Context, s *survey) error {
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Spec     struct {
				Group, Version string
				Service        *serviceRef
			}
		}
	}
	if err := c.get(ctx, "/apis/apiregistration.k8s.io/v1/apiservices", &list); err != nil {
		return err
	}
	for _, item := range list.Items {
		if t := c.addService(ctx, s, "aggregated API", item.Metadata.Name, item.Spec.Service); t.address != "" {
			path := "/apis/" + item.Spec.Group + "/" + item.Spec.Version
			s.requests = append(s.requests, request{t, func(ctx context.Context) error { return c.get(ctx, path, new(any)) }})
		}
	}
	return nil
}

package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/kubeconfig/connect"
)

const (
	requestTimeout = 15 * time.Second
	maxNodes       = 20 // of which targets are compared
	maxPods        = 5  // that are tried for logs and exec
)

// A cluster is the one whose kube-apiserver it is.
type cluster struct {
	client *connect.Client
	*kubernetes.Clientset
}

func newCluster(client *connect.Client) (*cluster, error) {
	config := client.Config()
	config.Timeout = requestTimeout
	config.WarningHandler = rest.NoWarnings{}
	set, err := kubernetes.NewForConfig(config)
	return &cluster{client, set}, err
}

// A target is an address that kube-apiserver connects to.
type target struct{ kind, name, address string }

// A request is one to the API server that makes it connect to a target.
type request struct {
	target // whose address is empty if it was not found
	run    func(ctx context.Context) error
	// proof says that success is expected once the target can be reached: exec is not, as
	// an image may have no program.
	proof bool
}

// A survey is what kube-apiserver connects to in a cluster, and requests that show it.
type survey struct {
	targets  []target
	requests []request
	notes    []string
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
	if n := nodes.RemainingItemCount; n != nil || nodes.Continue != "" {
		s.notes = append(s.notes, fmt.Sprintf("only the first %d nodes are compared", maxNodes))
	}
	for _, node := range nodes.Items {
		if address := kubeletAddress(&node); address != "" {
			s.targets = append(s.targets, target{"kubelet", node.Name, address})
		}
	}
	if len(s.targets) == 0 {
		s.notes = append(s.notes, "no node has an address: no kubelet is compared")
	}
	return nil
}

func kubeletAddress(node *corev1.Node) string {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		port = 10250
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeHostName, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind {
				return net.JoinHostPort(a.Address, strconv.Itoa(int(port)))
			}
		}
	}
	return ""
}

// addPods adds the requests for a log and for a command, in pods that run on nodes of the
// survey.
func (c *cluster) addPods(ctx context.Context, s *survey) error {
	pods, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running", Limit: 100})
	if err != nil {
		return err
	}
	found := 0
	for _, pod := range pods.Items {
		node := slices.IndexFunc(s.targets, func(t target) bool { return t.kind == "kubelet" && t.name == pod.Spec.NodeName })
		if node < 0 || len(pod.Spec.Containers) == 0 || pod.DeletionTimestamp != nil || found == maxPods {
			continue
		}
		found++
		at, container := s.targets[node].address, pod.Spec.Containers[0].Name
		name := pod.Namespace + "/" + pod.Name
		s.requests = append(s.requests,
			request{target{"logs", name, at}, func(ctx context.Context) error {
				lines := int64(1)
				return answerError(c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, TailLines: &lines}).DoRaw(ctx))
			}, true},
			request{target{"exec", name, at}, func(ctx context.Context) error {
				err := c.client.Exec(ctx, connect.ExecOptions{Namespace: pod.Namespace, Pod: pod.Name, Container: container, Command: []string{"true"}, Stdout: io.Discard})
				if exit := new(connect.ExitError); errors.As(err, &exit) {
					return nil // it ran
				}
				return err
			}, false})
	}
	if found == 0 {
		s.notes = append(s.notes, "no pod runs: neither logs nor exec is tried")
	}
	return nil
}

// answerError returns why a request failed, in the API server's words if it has some.
func answerError(body []byte, err error) error {
	var status metav1.Status
	if err != nil && json.Unmarshal(body, &status) == nil && status.Message != "" {
		return errors.New(status.Message)
	}
	return err
}

func (c *cluster) addWebhooks(ctx context.Context, s *survey) error {
	validating, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	mutating, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, config := range validating.Items {
		for _, w := range config.Webhooks {
			c.addWebhook(ctx, s, w.Name, w.ClientConfig.Service, w.Rules)
		}
	}
	for _, config := range mutating.Items {
		for _, w := range config.Webhooks {
			c.addWebhook(ctx, s, w.Name, w.ClientConfig.Service, w.Rules)
		}
	}
	return nil
}

func (c *cluster) addWebhook(ctx context.Context, s *survey, name string, service *admissionv1.ServiceReference, rules []admissionv1.RuleWithOperations) {
	if service == nil {
		return // of a URL, which the selection "cluster" does not lead
	}
	port := int32(443)
	if service.Port != nil {
		port = *service.Port
	}
	address := c.addService(ctx, s, target{"webhook", name, ""}, service.Namespace, service.Name, port)
	if address == "" {
		return
	}
	path := c.findUpdatable(ctx, rules)
	if path == "" {
		s.notes = append(s.notes, fmt.Sprintf("webhook %s: no object is there whose update it is asked about: only its connection is compared", name))
		return
	}
	s.requests = append(s.requests, request{target{"webhook", name, address}, func(ctx context.Context) error {
		return c.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Param("dryRun", "All").Body([]byte("{}")).Do(ctx).Error()
	}, false}) // it may refuse objects, or ignore failures
}

// addService adds a Service as a target, and returns its address.
func (c *cluster) addService(ctx context.Context, s *survey, t target, namespace, name string, port int32) string {
	service, err := c.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		s.notes = append(s.notes, fmt.Sprintf("%s %s: %v", t.kind, t.name, err))
		return ""
	case net.ParseIP(service.Spec.ClusterIP) == nil:
		s.notes = append(s.notes, fmt.Sprintf("%s %s: the Service %s/%s has no address: it is not compared", t.kind, t.name, namespace, name))
		return ""
	}
	t.address = net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(port)))
	s.targets = append(s.targets, t)
	return t.address
}

// findUpdatable returns the path of an object by whose update, a dry run that changes
// nothing, a webhook is asked; "" if there is none.
func (c *cluster) findUpdatable(ctx context.Context, rules []admissionv1.RuleWithOperations) string {
	for _, rule := range rules {
		if !slices.Contains(rule.Operations, admissionv1.Update) && !slices.Contains(rule.Operations, admissionv1.OperationAll) ||
			len(rule.APIGroups) == 0 || len(rule.APIVersions) == 0 || len(rule.Resources) == 0 {
			continue
		}
		group, version, resource := rule.APIGroups[0], rule.APIVersions[0], rule.Resources[0]
		if group == "*" || version == "*" || resource == "*" { // a ConfigMap is in every cluster
			group, version, resource = "", "v1", "configmaps"
		}
		prefix := "/apis/" + group + "/" + version
		if group == "" {
			prefix = "/api/" + version
		}
		text, err := c.CoreV1().RESTClient().Get().AbsPath(prefix, resource).Param("limit", "1").DoRaw(ctx)
		var list struct {
			Items []struct{ Metadata metav1.ObjectMeta }
		}
		if err != nil || json.Unmarshal(text, &list) != nil || len(list.Items) == 0 {
			continue
		}
		if found := list.Items[0].Metadata; found.Namespace != "" {
			return prefix + "/namespaces/" + found.Namespace + "/" + resource + "/" + found.Name
		} else {
			return prefix + "/" + resource + "/" + found.Name
		}
	}
	return ""
}

// addAggregated adds the APIs that a Service serves.
func (c *cluster) addAggregated(ctx context.Context, s *survey) error {
	text, err := c.CoreV1().RESTClient().Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").DoRaw(ctx)
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Spec     struct {
				Group, Version string
				Service        *struct {
					Namespace, Name string
					Port            *int32
				}
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, item := range list.Items {
		service := item.Spec.Service
		if service == nil {
			continue
		}
		port := int32(443)
		if service.Port != nil {
			port = *service.Port
		}
		t := target{"aggregated API", item.Metadata.Name, ""}
		if t.address = c.addService(ctx, s, t, service.Namespace, service.Name, port); t.address == "" {
			continue
		}
		path := "/apis/" + item.Spec.Group + "/" + item.Spec.Version
		s.requests = append(s.requests, request{t, func(ctx context.Context) error {
			return answerError(c.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx))
		}, true})
	}
	return nil
}

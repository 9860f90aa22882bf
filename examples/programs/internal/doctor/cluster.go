package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/examples/programs/internal/restconfig"
	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// clusterError is what is wrong before the Cluster's kubeconfig can be tried.
type clusterError struct {
	error
	advice string
}

func (e clusterError) Unwrap() error { return e.error }

// management reads a Cluster of Cluster API from its management cluster.
type management struct {
	client          dynamic.Interface
	namespace, name string
}

func newManagement(config *clientcmdapi.Config, cluster string) (*management, error) {
	m := &management{}
	m.namespace, m.name, _ = strings.Cut(cluster, "/")
	rest, err := restconfig.FromConfig(config)
	if err == nil {
		m.client, err = dynamic.NewForConfig(rest)
	}
	return m, err
}

// read returns the Cluster's kubeconfig, and notes about who has made it and why.
func (m *management) read(ctx context.Context) (config *clientcmdapi.Config, notes []string, err error) {
	cluster, err := m.readCluster(ctx)
	if err != nil {
		return nil, nil, clusterError{fmt.Errorf("the Cluster %s/%s of the management cluster: %w", m.namespace, m.name, err),
			"Correct --capi-cluster, or --kubeconfig, which is the management cluster's; causeway doctor without --capi-cluster tries that."}
	}
	notes = append(m.settingNotes(ctx, cluster), conditionNotes(cluster)...)
	secret := &corev1.Secret{}
	name := m.name + "-kubeconfig"
	u, err := m.client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(m.namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, secret)
	}
	if err != nil {
		return nil, notes, clusterError{fmt.Errorf("the Secret %s/%s: %w", m.namespace, name, err),
			"The notes say what the provider waits for; kubectl describe cluster has its Events."}
	}
	if config, err = kubeconfig.FromSecret(secret); err != nil {
		return nil, notes, clusterError{err,
			"Correct the Secret, or who writes it. Nothing that it names is run or opened here: if you trust all of it, save it to a file, for --kubeconfig."}
	}
	return config, notes, nil
}

// readCluster reads the Cluster by the version that the management cluster has.
func (m *management) readCluster(ctx context.Context) (u *unstructured.Unstructured, err error) {
	for _, version := range []string{"v1beta2", "v1beta1"} {
		clusters := schema.GroupVersionResource{Group: provider.Group, Version: version, Resource: "clusters"}
		u, err = m.client.Resource(clusters).Namespace(m.namespace).Get(ctx, m.name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return u, err
		}
	}
	return nil, err
}

// settingNotes say what the provider was told, and by whom.
func (m *management) settingNotes(ctx context.Context, cluster *unstructured.Unstructured) []string {
	settings := map[string]string{}
	namespace, err := m.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, m.namespace, metav1.GetOptions{})
	if err == nil {
		addSettings(settings, namespace.GetAnnotations(), "the Namespace")
	}
	addSettings(settings, cluster.GetAnnotations(), "the Cluster")
	m.keepDecisive(settings, cluster, namespace)
	var notes []string
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		notes = append(notes, settings[key])
	}
	switch {
	case err != nil:
		notes = append(notes, fmt.Sprintf("The annotations of the Namespace, which count too, can't be read: %v.", err))
	case notes == nil:
		notes = []string{"No annotation of the Cluster or its Namespace is about the route: the provider's flags decide."}
	}
	return notes
}

// keepDecisive leaves out what something nearer to the Cluster overrules, and adds what its label says.
func (m *management) keepDecisive(settings map[string]string, cluster, namespace *unstructured.Unstructured) {
	c, _ := provider.ReadCluster(cluster, nil) // the endpoint decides nothing here
	if namespace != nil {
		c.NamespaceAnnotations = namespace.GetAnnotations()
	}
	s, _ := provider.Resolve(c, provider.Config{}) // the condition has the error
	for short, value := range map[string]string{"proxy-url": s.ProxyURL, "gateway": s.Gateway, "route-secret": s.RouteSecret, "no-proxy": s.NoProxy} {
		if value == "" {
			delete(settings, short)
		}
	}
	if name := m.name + provider.SuffixTunnelRoute; c.Tunnel && s.RouteSecret == m.namespace+"/"+name {
		settings["route-secret"] = fmt.Sprintf("The label %s is %q: the route is that of the Secret %s.", provider.LabelTunnel, "true", name)
	}
}

func addSettings(to, annotations map[string]string, of string) {
	for key, value := range annotations {
		if short, ok := strings.CutPrefix(key, provider.Prefix); ok && value != "" {
			if strings.Contains(value, "@") { // the provider refuses a password in an annotation
				value = withoutUser(value)
			}
			to[short] = fmt.Sprintf("%s is %q, by an annotation of %s.", short, value, of)
		}
	}
}

// conditionNotes say what the provider, and the server that looks after the tunnel, think.
func conditionNotes(cluster *unstructured.Unstructured) (notes []string) {
	for _, kind := range []string{provider.ConditionRoute, provider.ConditionTunnel} {
		if c := clusterapi.Condition(cluster, kind); c != nil {
			notes = append(notes, fmt.Sprintf("The condition %s is %s, %s: %s", kind, c.Status, c.Reason, printable.Text(strings.Join(strings.Fields(c.Message), " "), 1<<10)))
		} else if kind == provider.ConditionRoute {
			notes = append(notes, "There is no condition "+kind+": causeway provider does not look after this Cluster.")
		}
	}
	return notes
}

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// The kinds of infrastructure that a management cluster knows: a cluster's, of
// the contract that has status.apiEndpoints, and the template of a machine's.
const (
	InfrastructureGroup   = "infrastructure.cluster.x-k8s.io"
	InfrastructureVersion = "v1beta2"
	InfrastructureKind    = "GenericCluster"
	MachineTemplateKind   = "GenericMachineTemplate"
)

// ManagementIP is the address of a management cluster's API server, in the
// client's namespace: it reaches its workload clusters only by proxies and
// tunnels.
const ManagementIP = ClientIP

// A ClusterAPI is a management cluster: a kube-apiserver that knows Cluster
// API's types. No controller of Cluster API's runs in it.
type ClusterAPI struct{ *Kube }

// crds are the files of Cluster API's module that are installed.
var crds = []string{
	"core/config/crd/bases/cluster.x-k8s.io_clusters.yaml",
	"core/config/crd/bases/cluster.x-k8s.io_machines.yaml",
	"core/config/crd/bases/cluster.x-k8s.io_machinesets.yaml",
	"core/config/crd/bases/cluster.x-k8s.io_machinedeployments.yaml",
	"core/config/crd/bases/cluster.x-k8s.io_machinepools.yaml",
	"bootstrap/kubeadm/config/crd/bases/bootstrap.cluster.x-k8s.io_kubeadmconfigs.yaml",
	"controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml",
}

// StartClusterAPI starts a management cluster in the client's namespace. It
// runs until Stop, at the latest until the bed ends.
func (b *Bed) StartClusterAPI(ctx context.Context) (*ClusterAPI, error) {
	k, err := b.StartControlPlane(ctx, b.Network.Client, "management", ManagementIP, pki.NewCA("management"))
	if err != nil {
		return nil, err
	}
	c := &ClusterAPI{k}
	if err := InstallClusterAPI(ctx, k); err != nil {
		k.Stop()
		return nil, err
	}
	return c, nil
}

// AddHost gives the API server's namespace another address, for another API
// server: the proxies reach it as they reach the first.
func (n *Network) AddHost(ctx context.Context, address string) error {
	return runIP(ctx, "-n", n.API.Name, "addr", "add", address+"/24", "dev", "eth0")
}

// InstallClusterAPI makes Cluster API's types known to an API server.
func InstallClusterAPI(ctx context.Context, k *Kube) error {
	dir, err := runOutput(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	list := []*unstructured.Unstructured{infrastructureCRD(InfrastructureKind), infrastructureCRD(MachineTemplateKind)}
	for _, file := range crds {
		data, err := os.ReadFile(filepath.Join(strings.TrimSpace(dir), file))
		if err != nil {
			return fmt.Errorf("bed: cluster-api: %w", err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			return fmt.Errorf("bed: cluster-api: %s: %w", file, err)
		}
		list = append(list, crd)
	}
	client, err := dynamic.NewForConfig(k.Config())
	if err != nil {
		return fmt.Errorf("bed: cluster-api: %w", err)
	}
	for _, crd := range list {
		if err := installCRD(ctx, client, crd); err != nil {
			return fmt.Errorf("bed: cluster-api: %s: %w", crd.GetName(), err)
		}
	}
	return nil
}

// installCRD returns when the API server serves it. It turns conversion off: the bed
// has no webhook that could do it.
func installCRD(ctx context.Context, client dynamic.Interface, crd *unstructured.Unstructured) error {
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := unstructured.SetNestedField(crd.Object, "None", "spec", "conversion", "strategy"); err != nil {
		return err
	}
	// By these Cluster API finds the version that has its contract.
	crd.SetLabels(map[string]string{"cluster.x-k8s.io/provider": "cluster-api",
		"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"})
	if _, err := crds.Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return Poll(ctx, "the CRD to be served", func(ctx context.Context) error {
		crd, err := crds.Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("it is not established: %v", conditions))
	})
}

func infrastructureCRD(kind string) *unstructured.Unstructured {
	singular := strings.ToLower(kind)
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": singular + "s." + InfrastructureGroup},
		"spec": map[string]any{
			"group": InfrastructureGroup,
			"scope": "Namespaced",
			"names": map[string]any{"kind": kind, "plural": singular + "s", "singular": singular},
			"versions": []any{map[string]any{
				"name": InfrastructureVersion, "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{"spec": anything, "status": anything},
				}},
			}},
		},
	}}
}

// Writes returns how many requests the API server has answered that may have
// changed something, as "VERB resource.group", by its own metrics. Those of the
// API server itself count, too.
func (k *Kube) Writes(ctx context.Context) (map[string]int, error) {
	text, err := k.clients().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("bed: metrics: %w", err)
	}
	writes := map[string]int{}
	for line := range strings.Lines(string(text)) {
		line, ok := strings.CutPrefix(line, "apiserver_request_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(line, "} ")
		l := parseLabels(labels)
		switch l["verb"] {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return nil, fmt.Errorf("bed: metrics: %w", err)
			}
			resource := strings.Trim(l["resource"]+"/"+l["subresource"], "/")
			writes[strings.TrimSuffix(l["verb"]+" "+resource+"."+l["group"], ".")] += int(n)
		}
	}
	return writes, nil
}

// parseLabels takes labels whose values hold neither quotes nor commas.
func parseLabels(text string) map[string]string {
	labels := map[string]string{}
	for _, pair := range strings.Split(text, ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			labels[name] = strings.Trim(value, `"`)
		}
	}
	return labels
}

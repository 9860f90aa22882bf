package bed

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

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

// StartClusterAPI starts a management cluster, a kube-apiserver that knows Cluster API's types, in
// the client's namespace. No controller of Cluster API's runs in it, and it reaches
// its workload clusters only by proxies and tunnels. It runs until Stop, at the latest
// until the bed ends.
func (b *Bed) StartClusterAPI(ctx context.Context) (*Kube, error) {
	k, err := b.StartKube(ctx, b.Network.Client, "management", ClientIP, KubeOptions{CA: pki.NewCA("management")})
	if err != nil {
		return nil, err
	}
	if err := InstallClusterAPI(ctx, k); err != nil {
		k.Stop()
		return nil, err
	}
	return k, nil
}

// AddHost gives the API server's namespace another address, for another API
// server: the proxies reach it as they reach the first.
func (n *Network) AddHost(ctx context.Context, address string) error {
	return n.API.RunIP(ctx, "addr add "+address+"/24 dev eth0")
}

// InstallClusterAPI makes Cluster API's types known to an API server.
func InstallClusterAPI(ctx context.Context, k *Kube) error {
	dir, err := runOutput(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	options := envtest.CRDInstallOptions{MaxTime: pollTimeout, PollInterval: pollEvery, ErrorIfPathMissing: true}
	for _, file := range crds {
		options.Paths = append(options.Paths, filepath.Join(strings.TrimSpace(dir), file))
	}
	if err := envtest.ReadCRDFiles(&options); err != nil {
		return fmt.Errorf("bed: cluster-api: %w", err)
	}
	list := append(options.CRDs, infrastructureCRD(InfrastructureKind), infrastructureCRD(MachineTemplateKind))
	for _, crd := range list {
		// By these Cluster API finds the version that has its contract.
		crd.Labels = map[string]string{"cluster.x-k8s.io/provider": "cluster-api",
			"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"}
	}
	if err := envtest.CreateCRDs(k.Config(), list); err != nil {
		return fmt.Errorf("bed: cluster-api: %w", err)
	}
	if err := envtest.WaitForCRDs(k.Config(), list, options); err != nil {
		return fmt.Errorf("bed: cluster-api: %w", err)
	}
	return nil
}

func infrastructureCRD(kind string) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind)
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + InfrastructureGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: InfrastructureGroup,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: singular + "s", Singular: singular},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: InfrastructureVersion, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
				}},
			}},
		},
	}
}

// Writes returns how many requests the API server has answered that may have
// changed something, as "VERB resource.group", by its own metrics. Those of the
// API server itself count, too.
func (k *Kube) Writes(ctx context.Context) (map[string]int, error) {
	text, err := k.clients().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("bed: metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("bed: metrics: %w", err)
	}
	writes := map[string]int{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		l := map[string]string{}
		for _, pair := range metric.GetLabel() {
			l[pair.GetName()] = pair.GetValue()
		}
		switch l["verb"] {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
			resource := strings.Trim(l["resource"]+"/"+l["subresource"], "/")
			writes[strings.TrimSuffix(l["verb"]+" "+resource+"."+l["group"], ".")] += int(metric.GetCounter().GetValue())
		}
	}
	return writes, nil
}

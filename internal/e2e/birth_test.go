package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

// create makes an object that is deleted with all the rest.
func (m *management) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := m.admin.Create(t.Context(), object); err != nil {
		t.Fatalf("%T %s: %v", object, object.GetName(), err)
	}
}

// namespace makes a namespace, unless it is there.
func (m *management) namespace(t *testing.T, name string) {
	t.Helper()
	err := m.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// A birth is how a Cluster is born.
type birth struct {
	annotations     map[string]string
	noControlPlane  bool // without a controlPlaneRef
	endpoint        kubeconfig.Endpoint
	moreEndpoints   []any // of the infrastructure's status
	withoutCAKey    bool
	availableByGate string // a condition's type
}

// bear makes a Cluster whose infrastructure is provisioned, and its CA.
func (m *management) bear(t *testing.T, namespace, name string, w workload, b birth) *clusterv1.Cluster {
	t.Helper()
	m.namespace(t, namespace)
	if (b.endpoint == kubeconfig.Endpoint{}) {
		b.endpoint = w.endpoint()
	}
	infrastructure := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	infrastructure.SetAPIVersion(bed.InfrastructureGroup + "/" + bed.InfrastructureVersion)
	infrastructure.SetKind(bed.InfrastructureKind)
	infrastructure.SetNamespace(namespace)
	infrastructure.SetName(name)
	m.create(t, infrastructure)
	first := map[string]any{"host": b.endpoint.Host, "port": int64(b.endpoint.Port)}
	infrastructure.Object["status"] = map[string]any{"initialization": map[string]any{"provisioned": true},
		"apiEndpoints": append([]any{first}, b.moreEndpoints...)}
	if err := m.admin.Status().Update(t.Context(), infrastructure); err != nil {
		t.Fatal(err)
	}
	c := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: b.annotations},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: b.endpoint.Host, Port: b.endpoint.Port},
			InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: bed.InfrastructureGroup, Kind: bed.InfrastructureKind, Name: name},
		},
	}
	if !b.noControlPlane {
		c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane", Name: name}
	}
	if b.availableByGate != "" {
		c.Spec.AvailabilityGates = []clusterv1.ClusterAvailabilityGate{{ConditionType: b.availableByGate}}
	}
	m.create(t, c)
	born := c.DeepCopy()
	c.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	c.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	if err := m.admin.Status().Patch(t.Context(), c, client.MergeFrom(born)); err != nil {
		t.Fatal(err)
	}
	m.create(t, caSecret(c, w.kube.CA, !b.withoutCAKey))
	return c
}

// caSecret is Cluster API's Secret of a Cluster's authority.
func caSecret(c *clusterv1.Cluster, ca *pki.CA, withKey bool) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: secret.Name(c.Name, secret.ClusterCA),
			Labels: map[string]string{clusterv1.ClusterNameLabel: c.Name}},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{secret.TLSCrtDataName: ca.CertPEM()},
	}
	if withKey {
		s.Data[secret.TLSKeyDataName] = ca.KeyPEM()
	}
	return s
}

// write makes the kubeconfig Secret of a Cluster by our own hands, as a
// kubeconfig provider does.
func (m *management) write(t *testing.T, c *clusterv1.Cluster, w workload) {
	t.Helper()
	// The extension says of another endpoint what others need not know.
	more := []kubeconfig.Endpoint{{Host: "other.example.com", Port: 6443}}
	config, err := kubeconfig.Spec{Name: c.Name, Endpoint: w.endpoint(), MoreEndpoints: more, CA: w.kube.CA.CertPEM(), TLSServerName: "kubernetes.default.svc",
		Credentials: kubeconfig.Credentials{CAKey: w.kube.CA.KeyPEM()}, Route: w.route}.Build()
	if err != nil {
		t.Fatal(err)
	}
	s, err := kubeconfig.Secret(c.Name, c.Namespace, config, &metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: c.Name, UID: c.UID})
	if err != nil {
		t.Fatal(err)
	}
	m.create(t, s)
}

// stored returns the kubeconfig Secret of a Cluster.
func (m *management) stored(ctx context.Context, c *clusterv1.Cluster) (*corev1.Secret, error) {
	return m.secret(ctx, c.Namespace, c.Name+"-kubeconfig")
}

func (m *management) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	return s, m.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s)
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// The kubeadm control plane's own controller makes the Secret, adopts one that
// it finds, and rotates both; a provider decorates, and takes nothing from it.
func (m *management) testControlPlane(t *testing.T) {
	t.Parallel()
	const namespace = "control-plane"
	annotations := m.routeBy(t, namespace, "route", m.squid.route)
	m.startProvider(t, providerInput{Namespaces: []string{namespace}})
	m.startCAPI(t, capiInput{Namespace: namespace, Controllers: true})
	for _, tt := range []struct {
		name  string
		found bool // there is a Secret before there is a control plane
	}{{"made", false}, {"adopted", true}} {
		t.Run(tt.name, func(t *testing.T) {
			c := m.bear(t, namespace, tt.name, m.squid, birth{annotations: annotations, availableByGate: provider.ConditionRoute})
			leads := func(ctx context.Context) error { return m.reaches(ctx, c, m.squid) }
			if tt.found {
				if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the Secret to lead to the cluster", leads)
			}
			kcp := m.addControlPlane(t, c)
			controlled := func(ctx context.Context) error {
				s, err := m.stored(ctx, c)
				if err != nil {
					return err
				}
				if !metav1.IsControlledBy(s, kcp) || s.Type != clusterv1.ClusterSecretType {
					return fmt.Errorf("got the type %s and the owners %+v", s.Type, s.OwnerReferences)
				}
				return leads(ctx)
			}
			eventually(t, "the control plane's Secret to lead to the cluster", controlled)
			old := m.age(t, c)
			eventually(t, "the old Secret to be decorated still", leads)
			m.change(t, kcp, func() { metav1.SetMetaDataAnnotation(&kcp.ObjectMeta, "example.com/poke", "") })
			eventually(t, "the Secret to be rotated, and to lead to the cluster", func(ctx context.Context) error {
				if s, err := m.stored(ctx, c); err != nil || string(userOf(s).ClientCertificateData) == string(old) {
					return errors.Join(err, errors.New("the certificate is the old one"))
				}
				return controlled(ctx)
			})
			m.routeReady(t, c, metav1.ConditionTrue)
			m.wantGate(t, c, false)
			m.annotate(t, c, map[string]string{provider.AnnotationRouteSecret: "none"})
			m.routeReady(t, c, metav1.ConditionFalse)
			m.wantGate(t, c, true)
		})
	}
}

// addControlPlane makes a control plane that has all it takes to make a
// kubeconfig, and not enough to make machines.
func (m *management) addControlPlane(t *testing.T, c *clusterv1.Cluster) *controlplanev1.KubeadmControlPlane {
	t.Helper()
	template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{}}}}
	template.SetAPIVersion(bed.InfrastructureGroup + "/" + bed.InfrastructureVersion)
	template.SetKind(bed.MachineTemplateKind)
	template.SetNamespace(c.Namespace)
	template.SetName(c.Name)
	m.create(t, template)
	kcp := &controlplanev1.KubeadmControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: c.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster",
				Name: c.Name, UID: c.UID, Controller: ptr.To(true)}}},
		Spec: controlplanev1.KubeadmControlPlaneSpec{
			Version:  bed.KubeVersion(),
			Replicas: ptr.To(int32(1)),
			KubeadmConfigSpec: bootstrapv1.KubeadmConfigSpec{
				ClusterConfiguration: bootstrapv1.ClusterConfiguration{EncryptionAlgorithm: bootstrapv1.EncryptionAlgorithmECDSAP256},
			},
		},
	}
	kcp.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: bed.InfrastructureGroup, Kind: bed.MachineTemplateKind, Name: c.Name}
	m.create(t, kcp)
	return kcp
}

// age gives the Secret a client certificate whose life is nearly over, and
// returns it.
func (m *management) age(t *testing.T, c *clusterv1.Cluster) []byte {
	t.Helper()
	cert, key := pki.PEM(m.squid.kube.CA.Client("kubernetes-admin", "system:masters")) // for a day
	s, err := m.stored(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	m.change(t, s, func() {
		s.Data[kubeconfig.SecretKey], err = kubeconfig.Merge(s.Data[kubeconfig.SecretKey],
			kubeconfig.Spec{Name: c.Name, Credentials: kubeconfig.Credentials{Certificate: cert, Key: key}})
		if err != nil {
			t.Fatal(err)
		}
	})
	return userOf(s).ClientCertificateData
}

// userOf returns the user of a kubeconfig; one without anything if it has none.
func userOf(s *corev1.Secret) *clientcmdapi.AuthInfo {
	if config, err := clientcmd.Load(s.Data[kubeconfig.SecretKey]); err == nil && config.Contexts[config.CurrentContext] != nil {
		if user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]; user != nil {
			return user
		}
	}
	return clientcmdapi.NewAuthInfo()
}

// wantGate waits until what Cluster API says of the Cluster as a whole names
// the route, or does not.
func (m *management) wantGate(t *testing.T, c *clusterv1.Cluster, named bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("the condition Available to name the route: %t", named), func(ctx context.Context) error {
		got := &clusterv1.Cluster{}
		if err := m.admin.Get(ctx, client.ObjectKeyFromObject(c), got); err != nil {
			return err
		}
		available := conditions.Get(got, clusterv1.ClusterAvailableCondition)
		if available == nil || strings.Contains(available.Message, provider.ConditionRoute) != named {
			return fmt.Errorf("got %+v", available)
		}
		return nil
	})
}

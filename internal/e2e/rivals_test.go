package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/causewayproject/causeway/kubeconfig"
)

// A rival writes a Cluster's kubeconfig Secret as another program does.
type rival struct {
	manager string
	watches bool          // it looks at the Secret when that changes, otherwise from time to time
	pause   time.Duration // before it looks: seconds where the program takes minutes
	// write returns what was stored; live is nil if there is no Secret.
	write func(ctx context.Context, r *rivalry, live *corev1.Secret) (*corev1.Secret, error)
}

// A rivalry is what a rival needs to know of one Cluster.
type rivalry struct {
	client.Client // its field manager is the rival's
	cluster       *clusterv1.Cluster
	value         []byte               // the kubeconfig without a route
	wrote         func(version string) // takes the versions that it stored
}

var rivals = []rival{
	// clastix/cluster-api-control-plane-provider-kamaji, controllers/kamajicontrolplane_controller_resources.go: on a watch, an update; data has the value only, labels are added.
	{"kamaji", true, 0, func(ctx context.Context, r *rivalry, _ *corev1.Secret) (*corev1.Secret, error) {
		return r.update(ctx, controllerutil.CreateOrUpdate, func(s *corev1.Secret) {
			s.Labels["kamaji.clastix.io/component"] = "capi"
			s.Data, s.OwnerReferences = r.data(), r.owners("KamajiControlPlane")
		})
	}},
	// loft-sh/cluster-api-provider-vcluster, controllers/vcluster_controller.go: each minute, a merge patch that leaves the value only.
	{"vcluster", false, 2 * time.Second, func(ctx context.Context, r *rivalry, _ *corev1.Secret) (*corev1.Secret, error) {
		return r.update(ctx, controllerutil.CreateOrPatch, func(s *corev1.Secret) { s.Data = r.data() })
	}},
	// kubernetes-sigs/cluster-api-provider-azure, controllers/azuremanagedcontrolplane_reconciler.go: with each reconciliation, an update; data has the value only.
	{"capz-aks", false, 2 * time.Second, func(ctx context.Context, r *rivalry, _ *corev1.Secret) (*corev1.Secret, error) {
		return r.update(ctx, controllerutil.CreateOrUpdate, func(s *corev1.Secret) { s.Data = r.data() })
	}},
	// kubernetes-sigs/cluster-api-provider-azure, controllers/azureasomanagedcontrolplane_controller.go: on a watch, a forced server-side apply of value, label and owner.
	{"capz-manager", true, 0, func(ctx context.Context, r *rivalry, _ *corev1.Secret) (*corev1.Secret, error) {
		s := r.manifest()
		s.Type, s.OwnerReferences = "", r.owners("AzureASOManagedControlPlane")
		return r.apply(ctx, s)
	}},
	// kubernetes-sigs/cluster-api, controlplane/kubeadm/reconcilers/kubeadmcontrolplane/helpers.go: makes a Secret that is gone, patches the owner, and updates the value by what is stored.
	{"kubeadm", false, 15 * time.Second, func(ctx context.Context, r *rivalry, live *corev1.Secret) (*corev1.Secret, error) {
		if live == nil {
			return nil, capikubeconfig.CreateSecret(ctx, r, r.cluster, quickly)
		}
		original := live.DeepCopy()
		live.OwnerReferences = r.owners("KubeadmControlPlane")
		if err := r.Patch(ctx, live, client.MergeFrom(original)); err != nil {
			return nil, err
		}
		if live.ResourceVersion != original.ResourceVersion {
			r.wrote(live.ResourceVersion)
		}
		return live, capikubeconfig.RegenerateSecret(ctx, r, live, quickly)
	}},
	// external-secrets/external-secrets, pkg/controllers/externalsecret/externalsecret_controller.go: creationPolicy Owner, on a watch, an update; data has the value only, and an annotation its hash.
	{"external-secrets", true, 0, func(ctx context.Context, r *rivalry, _ *corev1.Secret) (*corev1.Secret, error) {
		return r.update(ctx, controllerutil.CreateOrUpdate, func(s *corev1.Secret) {
			s.Data, s.OwnerReferences = r.data(), r.owners("ExternalSecret")
			r.sign(s)
		})
	}},
	// The same file: creationPolicy CreateOrMerge keeps the other keys.
	{"external-secrets-merge", true, 0, func(ctx context.Context, r *rivalry, _ *corev1.Secret) (*corev1.Secret, error) {
		return r.update(ctx, controllerutil.CreateOrUpdate, func(s *corev1.Secret) {
			s.Data[kubeconfig.SecretKey] = r.value
			r.sign(s)
		})
	}},
	// argoproj/gitops-engine, pkg/utils/kube/resource_ops.go: ApplyResource is kubectl apply, a strategic merge patch with the manifest as an annotation; selfHeal waits for five seconds.
	{"argocd-apply", true, time.Second, inSync(func(ctx context.Context, r *rivalry, live *corev1.Secret) (*corev1.Secret, error) {
		s := r.manifest()
		text, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, corev1.LastAppliedConfigAnnotation, string(text))
		if live == nil {
			return s, r.Create(ctx, s)
		}
		if text, err = json.Marshal(s); err != nil {
			return nil, err
		}
		return s, r.Patch(ctx, s, client.RawPatch(types.StrategicMergePatchType, text))
	})},
	// The same file: with ServerSideApply=true, a forced server-side apply.
	{"argocd-controller", true, time.Second, inSync(func(ctx context.Context, r *rivalry, _ *corev1.Secret) (*corev1.Secret, error) {
		return r.apply(ctx, r.manifest())
	})},
	// The same file: with Replace=true, kubectl replace: an update that has nothing but the manifest, by the live version.
	{"argocd-replace", true, time.Second, inSync(func(ctx context.Context, r *rivalry, live *corev1.Secret) (*corev1.Secret, error) {
		s := r.manifest()
		if live == nil {
			return s, r.Create(ctx, s)
		}
		s.ResourceVersion = live.ResourceVersion
		return s, r.Update(ctx, s)
	})},
	// The same file: with Force=true beside it, a deletion and a new Secret.
	{"argocd-force", true, time.Second, inSync(func(ctx context.Context, r *rivalry, live *corev1.Secret) (*corev1.Secret, error) {
		s := r.manifest()
		if live != nil {
			if err := client.IgnoreNotFound(r.Delete(ctx, live)); err != nil {
				return nil, err
			}
		}
		return s, r.Create(ctx, s)
	})},
}

// inSync writes only if the value is another one: Argo CD looks at nothing that the manifest lacks.
func inSync(write func(context.Context, *rivalry, *corev1.Secret) (*corev1.Secret, error)) func(context.Context, *rivalry, *corev1.Secret) (*corev1.Secret, error) {
	return func(ctx context.Context, r *rivalry, live *corev1.Secret) (*corev1.Secret, error) {
		if live != nil && bytes.Equal(live.Data[kubeconfig.SecretKey], r.value) {
			return live, nil
		}
		return write(ctx, r, live)
	}
}

func (r *rivalry) data() map[string][]byte { return map[string][]byte{kubeconfig.SecretKey: r.value} }

func (r *rivalry) manifest() *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.cluster.Namespace, Name: r.cluster.Name + "-kubeconfig",
			Labels: map[string]string{clusterv1.ClusterNameLabel: r.cluster.Name}},
		Type: clusterv1.ClusterSecretType, Data: r.data()}
}

// owners has nobody but the rival's own object: the garbage collector does not run.
func (r *rivalry) owners(kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(r.cluster, clusterv1.GroupVersion.WithKind(kind))}
}

func (r *rivalry) sign(s *corev1.Secret) {
	s.Labels["reconcile.external-secrets.io/managed"] = "true"
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, "reconcile.external-secrets.io/data-hash", fmt.Sprintf("%x", sha256.Sum256(s.Data[kubeconfig.SecretKey])))
}

func (r *rivalry) update(ctx context.Context, write func(context.Context, client.Client, client.Object, controllerutil.MutateFn) (controllerutil.OperationResult, error), change func(*corev1.Secret)) (*corev1.Secret, error) {
	s := r.manifest()
	_, err := write(ctx, r, s, func() error {
		change(s)
		return nil
	})
	return s, err
}

func (r *rivalry) apply(ctx context.Context, s *corev1.Secret) (*corev1.Secret, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: object}
	if err := r.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership); err != nil {
		return nil, err
	}
	s.ResourceVersion = u.GetResourceVersion()
	return s, nil
}

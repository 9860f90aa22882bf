package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// A deployment is a command of causeway, with the rights that its manifest gives.
type deployment struct{ program, command, kubeconfig string }

// deploy builds causeway, applies the manifest of one of its commands, and gets a
// token of the ServiceAccount in it. Nothing runs the pods.
func (m *management) deploy(t *testing.T, command, name string) deployment {
	t.Helper()
	dir := t.TempDir()
	d := deployment{filepath.Join(dir, "causeway"), command, filepath.Join(dir, "kubeconfig")}
	goBuild(t, programsModule, dir, "./causeway") // as it is deployed: its memory counts
	admin := filepath.Join(dir, "admin")
	if err := os.WriteFile(admin, m.config, 0o600); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.Open("../../examples/deploy/" + name + "/manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer manifest.Close()
	apply := m.bed.Kubectl(admin, "apply", "-f", "-")
	apply.Stdin = manifest
	out, err := m.bed.Network.Client.Run(t.Context(), apply)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out)
	token := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	if err := m.admin.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	config := m.kubeconfig(t, kubeconfig.Credentials{Token: token.Status.Token})
	if err := os.WriteFile(d.kubeconfig, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// run runs the kubeconfig provider beside the management cluster, until the test
// ends.
func (m *management) run(t *testing.T, args ...string) *bed.Running {
	t.Helper()
	return m.start(t, m.deployed, args...)
}

func (m *management) start(t *testing.T, d deployment, args ...string) *bed.Running {
	t.Helper()
	argv := append([]string{d.program, d.command, "--kubeconfig", d.kubeconfig, "--health", ""}, args...)
	r, err := m.bed.Network.Client.Start(t.Context(), bed.Command{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Stop()
		if t.Failed() {
			t.Logf("%s: %s\n%s", d.command, r.Stdout(), r.Stderr())
		}
	})
	return r
}

// The program does with the rights of its manifest what the modes ask for, and
// what it makes is found by clusterctl move: by its owner.
func (m *management) testProgram(t *testing.T) {
	t.Parallel()
	const namespace = "program"
	annotations := m.routeBy(t, namespace, "route", m.squid.route)
	program := m.run(t, "--namespace", namespace, "--leader-election", "kubeconfig-provider",
		"--proxy-url", annotations[provider.AnnotationProxyURL], "--route-secret", namespace+"/route")
	lead := func(c *clusterv1.Cluster, name string) {
		t.Helper()
		eventually(t, name+" to lead to the cluster", func(ctx context.Context) error {
			s, err := m.secret(ctx, namespace, name)
			if err != nil {
				return err
			}
			if _, err := m.reach(ctx, s.Data[kubeconfig.SecretKey]); err != nil {
				return err
			}
			if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != c.UID || s.Labels[clusterv1.ClusterNameLabel] != c.Name {
				return bed.Stop(fmt.Errorf("got the owners %+v and the labels %v", s.OwnerReferences, s.Labels))
			}
			return nil
		})
		m.routeReady(t, c, metav1.ConditionTrue)
	}
	own := m.bear(t, namespace, "own", m.squid, birth{noControlPlane: true})
	lead(own, "own-kubeconfig")
	decorated := m.bear(t, namespace, "decorated", m.squid, birth{})
	second := m.bear(t, namespace, "second", m.squid, birth{annotations: map[string]string{provider.AnnotationMode: string(provider.Secondary)}})
	for _, c := range []*clusterv1.Cluster{decorated, second} {
		if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
			t.Fatal(err)
		}
	}
	lead(decorated, "decorated-kubeconfig")
	lead(second, "second-proxied")
	m.annotate(t, second, map[string]string{provider.AnnotationMode: string(provider.Off)})
	eventually(t, "the second Secret to be deleted", func(ctx context.Context) error {
		if _, err := m.secret(ctx, namespace, "second-proxied"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v, want that it is not found", err)
		}
		return nil
	})
	m.scan(t, program, []string{namespace})
}

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/kubeconfig"
)

type clusterAPIInput struct {
	Secret  *corev1.Secret
	Cluster string
	ProxyCA []byte
}

type clusterAPIAnswer struct {
	Kubeconfig    []byte
	NeedsRotation bool
}

// renewal is when Cluster API renews a client certificate: half of its year.
const renewal = 365 * 24 * time.Hour / 2

// clusterAPIRole stores a Secret in the API server that it leads to, and reads
// it back with Cluster API's own code.
func clusterAPIRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input clusterAPIInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("cluster-api role: input: %w", err)
	}
	ours, err := newClient(input.Secret.Data[kubeconfig.SecretKey], input.ProxyCA)
	if err != nil {
		return err
	}
	defer ours.Close()
	theirs, err := client.New(ours.Config(), client.Options{})
	if err != nil {
		return err
	}
	if err := theirs.Create(ctx, input.Secret); err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: input.Secret.Namespace, Name: input.Cluster}
	var answer clusterAPIAnswer
	if answer.Kubeconfig, err = capikubeconfig.FromSecret(ctx, theirs, key); err != nil {
		return err
	}
	var stored corev1.Secret
	if err := theirs.Get(ctx, client.ObjectKeyFromObject(input.Secret), &stored); err != nil {
		return err
	}
	if answer.NeedsRotation, err = capikubeconfig.NeedsClientCertRotation(&stored, renewal); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

// Cluster API reads our Secret as its own, and sees no need to rotate it.
func TestClusterAPIReadsSecret(t *testing.T) {
	b := sharedBed(t)
	for _, r := range routes(b) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			name := "capi-" + r.name
			input := clusterAPIInput{Secret: secretFor(t, b, name, r), Cluster: name, ProxyCA: r.proxyCA}
			want := bytes.Clone(input.Secret.Data[kubeconfig.SecretKey])
			var got clusterAPIAnswer
			if err := b.Network.Client.Play(t.Context(), "cluster-api", input, &got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Kubeconfig, want) {
				t.Errorf("FromSecret: got\n%s\nwant\n%s", got.Kubeconfig, want)
			}
			if got.NeedsRotation {
				t.Error("NeedsClientCertRotation: got true, want false")
			}
			t.Logf("FromSecret: %d bytes; NeedsClientCertRotation: %t", len(got.Kubeconfig), got.NeedsRotation)
		})
	}
}

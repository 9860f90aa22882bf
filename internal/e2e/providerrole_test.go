package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

type providerInput struct {
	Kubeconfig []byte // of the management cluster; the administrator's if empty
	Namespaces []string
	Config     provider.Config
	Leader     *provider.LeaderElection
}

// providerRole is a kubeconfig provider, until SIGTERM. It prints all that its
// hooks are told, as a careless program would.
func providerRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input providerInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("provider role: input: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.RESTConfigFromKubeConfig(input.Kubeconfig)
	if err != nil {
		return err
	}
	p, err := provider.New(provider.Options{REST: config, Namespaces: input.Namespaces, Config: input.Config,
		LeaderElection: input.Leader, Hooks: printingHooks(out)})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

func printingHooks(out io.Writer) provider.Hooks {
	var mu sync.Mutex // one line after the other
	print := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
	}
	return provider.Hooks{
		Planned: func(cluster types.NamespacedName, took time.Duration, err error) {
			print("planned %s: %v %#v", cluster, err, err)
		},
		Wrote: func(cluster types.NamespacedName, kind provider.Write, err error) {
			print("wrote %s of %s: %v", kind, cluster, err)
		},
		Probed: func(cluster types.NamespacedName, took time.Duration, report probe.Report) {
			text, err := json.Marshal(report)
			print("probed %s in %v: %s %v %+v", cluster, took, text, err, report.Failed())
		},
		Leading: func(leading bool) { print("leading: %t", leading) },
		Error:   func(err error) { print("error: %v %#v", err, err) },
	}
}

// startProvider starts a provider beside the management cluster, until the test
// ends.
func (m *management) startProvider(t *testing.T, input providerInput) *bed.Running {
	t.Helper()
	if input.Kubeconfig == nil {
		input.Kubeconfig = m.config
	}
	return startRole(t, m.bed.Network.Client, "kubeconfig-provider", input)
}

package probe_test

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

func TestMain(m *testing.M) {
	kubetest.SetDeadEnvironment()
	goleak.VerifyTestMain(m)
}

func newClient(t *testing.T, config *clientcmdapi.Config, opts *connect.Options) *connect.Client {
	t.Helper()
	c, err := connect.New(config, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// proxyFunc is what proxytest.Serve runs.
type proxyFunc = func(context.Context, net.Conn)

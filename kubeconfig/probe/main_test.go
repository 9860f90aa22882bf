package probe_test

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/test/kubetest"
)

func TestMain(m *testing.M) {
	kubetest.SetDeadEnvironment()
	goleak.VerifyTestMain(m)
}

// proxyFunc is what proxytest.Serve runs.
type proxyFunc = func(context.Context, net.Conn)

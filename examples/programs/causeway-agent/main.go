// Causeway-agent is the tunnel's end beside a cluster. It needs no Kubernetes package.
package main

import (
	"context"
	"os"

	"github.com/causewayproject/causeway/examples/programs/internal/agent"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

func main() {
	cli.Main(func(ctx context.Context) (string, error) {
		return "causeway-agent", agent.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	})
}

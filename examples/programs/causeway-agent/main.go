// Causeway-agent is the tunnel's end beside a cluster. It needs no Kubernetes package.
package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/causewayproject/causeway/examples/programs/internal/agent"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

func main() {
	cli.Main(func(ctx context.Context) (string, error) {
		err := agent.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
		if errors.Is(err, flag.ErrHelp) {
			err = nil
		}
		return "causeway-agent", err
	})
}

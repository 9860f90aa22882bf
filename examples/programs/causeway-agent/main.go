// Causeway-agent is the tunnel's end beside a cluster. It needs no Kubernetes package.
package main

import (
	"github.com/causewayproject/causeway/examples/programs/internal/agent"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

func main() { cli.Main(agent.Run) }

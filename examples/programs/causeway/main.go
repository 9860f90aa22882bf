// Causeway is the library's programs in one: causeway COMMAND [flags].
package main

import (
	"context"
	"io"
	"strings"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/doctor"
	"github.com/causewayproject/causeway/examples/programs/internal/injector"
	"github.com/causewayproject/causeway/examples/programs/internal/noproxy"
	"github.com/causewayproject/causeway/examples/programs/internal/propagator"
	"github.com/causewayproject/causeway/examples/programs/internal/provider"
	"github.com/causewayproject/causeway/examples/programs/internal/proxyconfig"
	"github.com/causewayproject/causeway/examples/programs/internal/server"
)

const usage = `usage: causeway COMMAND [flags]

  server, enroll, ticket, kubeconfig, revoke, payload, rotate
  doctor, noproxy, proxyconfig
  provider, propagator, injector

-h after a command lists its flags.
`

func main() { cli.Main(run) }

// run is main with arguments and streams that tests can set.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return cli.UsageError{Text: "causeway: no command"}
	}
	command := args[0]
	args = args[1:]
	switch command {
	case "server":
		return server.Run(ctx, append([]string{"serve"}, args...), stdin, stdout, stderr)
	case "enroll", "ticket", "kubeconfig", "revoke", "payload", "rotate":
		return server.Run(ctx, append([]string{command}, args...), stdin, stdout, stderr)
	case "doctor":
		return doctor.Run(ctx, args, stdin, stdout, stderr)
	case "noproxy":
		return noproxy.Run(ctx, args, stdin, stdout, stderr)
	case "proxyconfig":
		return proxyconfig.Run(ctx, args, stdin, stdout, stderr)
	case "provider":
		return provider.Run(ctx, args, stdin, stdout, stderr)
	case "propagator":
		return propagator.Run(ctx, args, stdin, stdout, stderr)
	case "injector":
		return injector.Run(ctx, args, stdin, stdout, stderr)
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	return cli.UsageError{Text: "causeway: unknown command " + command + "; the commands are\n" + strings.TrimPrefix(usage, "usage:")}
}

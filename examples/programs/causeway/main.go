// Causeway is the library's programs in one: causeway COMMAND [flags].
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/doctor"
	"github.com/causewayproject/causeway/examples/programs/internal/egress"
	"github.com/causewayproject/causeway/examples/programs/internal/injector"
	"github.com/causewayproject/causeway/examples/programs/internal/noproxy"
	"github.com/causewayproject/causeway/examples/programs/internal/propagator"
	"github.com/causewayproject/causeway/examples/programs/internal/provider"
	"github.com/causewayproject/causeway/examples/programs/internal/proxyconfig"
	"github.com/causewayproject/causeway/examples/programs/internal/server"
)

const long = `Reaches Kubernetes clusters through proxies and tunnels, and keeps the proxy settings of
clusters.

Each flag may be a variable instead: --door-cert of server is CAUSEWAY_SERVER_DOOR_CERT, and
--for of noproxy lint is CAUSEWAY_NOPROXY_LINT_FOR. A flag counts more, also than the variable of
its alternative: --state more than CAUSEWAY_SERVER_SECRETS. Commands that work on a server's state
share CAUSEWAY_SERVER_STATE, _SECRETS, _KUBECONFIG and _GATEWAY with it. A variable that is empty
is an empty value, and not the default; one that is no flag of the command is ignored. Those of
former versions, without the command, are taken with a warning.

It ends with status 0 if all went well, 1 if not, and 2 for a mistake on the command line.
A status above 2 is explained in the help of the command that has it.`

func main() {
	cli.Main(func(ctx context.Context) (string, error) {
		cmd, err := command.Execute(ctx, newRoot(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
		return cmd.CommandPath(), err
	})
}

func newRoot() *cobra.Command {
	version := &cobra.Command{
		Use:     "version",
		Short:   "print the version, and what it was built from",
		Example: "  causeway version",
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cli.Build("causeway"))
			return err
		},
	}
	root := command.Parent(&cobra.Command{Use: "causeway", Short: "Reach clusters through proxies and tunnels", Long: long})
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"tunnel", "The tunnel's server, beside the controllers (causeway-agent is the other end):", append(server.Commands(), egress.Command())},
		{"look", "Look into a route and a configuration, and print them:", []*cobra.Command{
			doctor.Command(), noproxy.Command(), proxyconfig.Command()}},
		{"cluster", "Run in a cluster:", []*cobra.Command{
			provider.Command(), propagator.Command(), injector.Command()}},
		{"other", "Others:", []*cobra.Command{version}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	return root
}

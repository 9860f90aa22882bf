// Package command is what the commands of causeway have in common: flags that may be
// variables, mistakes that name the flag as it was typed, and help.
package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

// Execute runs the command below root that args name, and returns it. Mistakes in args
// are a [cli.UsageError].
func Execute(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) (*cobra.Command, error) {
	if err := cli.CheckDashes(args); err != nil {
		return root, err
	}
	root.SetArgs(append([]string{}, args...))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd() // it keeps the output that is set now
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			Parent(cmd)
		}
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return cli.FlagMistake(cmd.Flags(), err) })
	root.SetUsageTemplate(strings.NewReplacer(
		"{{if .Runnable}}\n  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}\n  {{.CommandPath}} [command]{{end}}",
		"\n  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}",
		"rpad .Name .NamePadding", "rpad .Use 27", // with its arguments
	).Replace(root.UsageTemplate()))
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		return cli.ReadVariables(cmd.Flags(), strings.TrimPrefix(cmd.CommandPath(), "causeway "), stderr)
	}
	var helpErr error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) { // which would leave out the error
		var text bytes.Buffer
		cmd.SetOut(&text)
		help(cmd, args)
		_, helpErr = text.WriteTo(stdout)
	})
	cmd, err := root.ExecuteContextC(ctx)
	return cmd, cli.NameSources(cmd.Flags(), cmp.Or(err, helpErr))
}

// Args is for commands that take as many arguments as their line of usage names.
func Args(cmd *cobra.Command, args []string) error {
	want := slices.DeleteFunc(strings.Fields(cmd.Use)[1:], func(word string) bool { return word[0] == '<' })
	switch {
	case len(args) > len(want):
		return cli.Mistake("unexpected argument %q; usage: %s", args[len(want)], cmd.UseLine())
	case len(args) < len(want):
		return cli.Mistake("%s is missing; usage: %s", strings.Join(want[len(args):], " "), cmd.UseLine())
	}
	return nil
}

// Parent makes cmd a command that only has commands below it. Without one of them, it is
// a mistake.
func Parent(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = cobra.ArbitraryArgs // RunE says more about them
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cli.Mistake("COMMAND is missing; usage: %s COMMAND", cmd.CommandPath())
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return cli.Mistake("unknown command %q: did you mean %s?", args[0], cli.JoinOr(near))
		}
		return cli.Mistake("unknown command %q", args[0])
	}
	return cmd
}

// Require returns a mistake that names the flags that have no value.
func Require(cmd *cobra.Command, names ...string) error {
	missing := slices.DeleteFunc(names, func(name string) bool { return cmd.Flags().Lookup(name).Value.String() != "" })
	if len(missing) == 0 {
		return nil
	}
	return cli.Mistake("--%s must be set", strings.Join(missing, " and --"))
}

// LoadCertificate is [webhook.LoadCertificate], which logs what became of a change; the
// listener is a flag's name.
func LoadCertificate(listener, cert, key string, log *slog.Logger) (c *webhook.Certificate, err error) {
	c, err = webhook.LoadCertificate(cert, key, func(err error) {
		if err != nil {
			log.Warn("certificate: the one before stays", "for", listener, "error", errors.Unwrap(err))
			return
		}
		switch now, err := c.Get(nil); {
		case err != nil: // the files have changed again
		case time.Now().After(now.Leaf.NotAfter):
			log.Warn("certificate renewed, by one that has expired", "for", listener, "until", now.Leaf.NotAfter)
		default:
			log.Info("certificate renewed", "for", listener, "until", now.Leaf.NotAfter)
		}
	})
	return c, errors.Unwrap(err)
}

// ClusterFlags are the flags for the fields of a noproxy.Cluster, for
// [cli.FieldMistake].
var ClusterFlags = []string{
	"noproxy: cluster: PodCIDRs", "--pods", "noproxy: cluster: ServiceCIDRs", "--services",
	"noproxy: cluster: NodeCIDRs", "--nodes", "noproxy: cluster: ControlPlaneHosts", "--control-plane",
	"noproxy: cluster: ServiceDomain", "--domain", "noproxy: cluster: Region", "--region",
}

// Consumers are the names that flags take for a [noproxy.Consumer].
func Consumers() (names []string) {
	for _, c := range noproxy.Consumers() {
		names = append(names, c.String())
	}
	return names
}

// Choice adds a flag that takes one of a few values, which completion lists. Its usage
// names them.
func Choice(cmd *cobra.Command, to *string, name, value, usage string, choices ...string) {
	cmd.Flags().Var(cli.NewChoice(to, value, choices...), name, usage)
	Complete(cmd, name, choices...)
}

// Complete lists values that a flag may have, for completion.
func Complete(cmd *cobra.Command, name string, choices ...string) {
	cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

// Package command is what the commands of causeway have in common: flags that may be
// variables, mistakes that name the flag as it was typed, and help.
package command

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

// Execute runs the command below root that args name, and returns it. Mistakes in args
// are a [cli.UsageError].
func Execute(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) (*cobra.Command, error) {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-h") && arg != "-h" { // pflag would take -health for -h
			return root, cli.Mistake("unknown flag %s: flags have two dashes", arg)
		}
	}
	root.SetArgs(append([]string{}, args...))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(describeFlagError)
	root.SetUsageTemplate(strings.NewReplacer(
		"{{if .Runnable}}\n  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}\n  {{.CommandPath}} [command]{{end}}",
		"\n  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}",
		"rpad .Name .NamePadding", "rpad .Use 24", // with its arguments
	).Replace(root.UsageTemplate()))
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return ReadVariables(cmd.Flags()) }
	return root.ExecuteContextC(ctx)
}

// ReadVariables gives each flag that was not given the value of its variable, if there
// is one.
func ReadVariables(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		text, ok := os.LookupEnv(cli.Variable(f.Name))
		if !ok || f.Changed || f.Name == "help" || err != nil {
			return
		}
		if flags.Set(f.Name, text) != nil { // its error shows the value, which may be secret
			err = cli.Mistake("the variable %s is not a value of --%s: want %s", cli.Variable(f.Name), f.Name, f.Value.Type())
		}
	})
	return err
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

// Parent makes cmd a command that only has commands below it, and says so to whoever
// names none of them.
func Parent(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = cobra.ArbitraryArgs // RunE says more about them
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cli.Mistake("COMMAND is missing; usage: %s COMMAND", cmd.CommandPath())
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return cli.Mistake("unknown command %q: did you mean %s?", args[0], joinOr(near))
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

// Choice adds a flag that takes one of a few values, which completion lists. Its usage
// names them.
func Choice(cmd *cobra.Command, to *string, name, value, usage string, choices ...string) {
	*to = value
	cmd.Flags().Var(choice{to, choices}, name, usage)
	cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

// Complete lists values that a flag may have, for completion.
func Complete(cmd *cobra.Command, name string, choices ...string) {
	cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

type choice struct {
	value   *string
	choices []string
}

func (c choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

func (c choice) Set(text string) error {
	if !slices.Contains(c.choices, text) {
		return errors.New("want " + joinOr(c.choices))
	}
	*c.value = text
	return nil
}

func (c choice) Type() string { return strings.Join(c.choices, "|") }

// joinOr returns "a, b or c".
func joinOr(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// describeFlagError makes a mistake of an error of pflag.
func describeFlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return cli.Mistake("%v", err)
	}
	typed, name := "--"+unknown.GetSpecifiedName(), unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		name, _, _ = strings.Cut(short, "=")
		typed = "-" + name
	}
	near := nearestFlag(cmd.Flags(), name)
	switch {
	case near == name:
		return cli.Mistake("unknown flag %s: flags have two dashes: --%s", typed, name)
	case near != "":
		return cli.Mistake("unknown flag %s: did you mean --%s?", typed, near)
	}
	return cli.Mistake("unknown flag %s", typed)
}

// nearestFlag returns the flag that is most like name, or "" if none is.
func nearestFlag(flags *pflag.FlagSet, name string) (near string) {
	least := 3
	flags.VisitAll(func(f *pflag.Flag) {
		if d := editDistance(f.Name, name); d < least {
			near, least = f.Name, d
		}
	})
	return near
}

// editDistance returns how many letters must change, come or go to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

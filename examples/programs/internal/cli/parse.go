package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Parse reads flags, before and after positional arguments, which it returns.
// A flag that is not given has the value of the variable CAUSEWAY_FLAG_NAME, if
// there is one. Help goes to stdout.
func Parse(set *flag.FlagSet, args []string, stdout io.Writer) (positional []string, err error) {
	set.SetOutput(io.Discard)
	for {
		switch err := set.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprintf(stdout, "flags of %s; each may be a variable instead, such as %s:\n", set.Name(), Variable("some-flag"))
			set.SetOutput(stdout)
			set.PrintDefaults()
			return nil, err
		case err != nil:
			return nil, UsageError{set.Name() + ": " + err.Error()}
		}
		if set.NArg() == 0 {
			return positional, fromEnvironment(set)
		}
		positional, args = append(positional, set.Arg(0)), set.Args()[1:]
	}
}

func fromEnvironment(set *flag.FlagSet) (err error) {
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	set.VisitAll(func(f *flag.Flag) {
		text, ok := os.LookupEnv(Variable(f.Name))
		if !ok || given[f.Name] || err != nil {
			return
		}
		if set.Set(f.Name, text) != nil {
			err = UsageError{set.Name() + ": the variable " + Variable(f.Name) + " has a bad value"}
		}
	})
	return err
}

package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Variable returns the name of the variable that stands for a flag.
func Variable(flag string) string {
	return "CAUSEWAY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Parse reads args, and then the variables of flags that were not given. The error is
// pflag.ErrHelp or a [UsageError].
func Parse(flags *pflag.FlagSet, args []string) error {
	if err := CheckDashes(args); err != nil {
		return err
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil:
		return FlagMistake(flags, err)
	}
	return ReadVariables(flags)
}

// ReadVariables gives each flag that was not given the value of its variable, if there
// is one. A newline at its end is left out: a Secret has one that was made from a file.
func ReadVariables(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		text, ok := os.LookupEnv(Variable(f.Name))
		if !ok || f.Changed || f.Name == "help" || err != nil {
			return
		}
		if flags.Set(f.Name, strings.TrimRight(text, "\r\n")) != nil { // its error shows the value, which may be secret
			err = Mistake("the variable %s is not a value of --%s: want %s", Variable(f.Name), f.Name, f.Value.Type())
		}
	})
	return err
}

// CheckDashes refuses -health and the like, which pflag would take for -h.
func CheckDashes(args []string) error {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-h") && arg != "-h" {
			return Mistake("unknown flag %s: flags have two dashes", arg)
		}
	}
	return nil
}

// FlagMistake makes a mistake of an error of pflag.
func FlagMistake(flags *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return Mistake("%v", err)
	}
	typed, name := "--"+unknown.GetSpecifiedName(), unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		name, _, _ = strings.Cut(short, "=")
		typed = "-" + name
	}
	if flags.Lookup(name) != nil {
		return Mistake("unknown flag %s: flags have two dashes: --%s", typed, name)
	}
	return Mistake("unknown flag %s", typed)
}

// NewChoice returns the value of a flag that takes one of a few texts. It sets to.
func NewChoice(to *string, value string, choices ...string) pflag.Value {
	*to = value
	return choice{to, choices}
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
		return errors.New("want " + JoinOr(c.choices))
	}
	*c.value = text
	return nil
}

func (c choice) Type() string { return strings.Join(c.choices, "|") }

// JoinOr returns "a, b or c".
func JoinOr(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// ParseNetwork reads a network, or an address, which is a network of one. Its error says
// what is wrong behind the text.
func ParseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if ip, ipErr := netip.ParseAddr(text); ipErr == nil && ip.Zone() == "" {
		network, err = netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	switch {
	case err != nil:
		return network, errors.New("is not a network, such as 10.0.0.0/24, or an address")
	case network != network.Masked():
		return network, fmt.Errorf("has bits behind its prefix: want %s", network.Masked())
	}
	return network, nil
}

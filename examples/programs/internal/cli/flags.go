package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Variable returns the name of the variable that stands for a flag of a command of causeway,
// such as "noproxy lint"; "" is causeway-agent.
func Variable(command string, f *pflag.Flag) string {
	if f.Annotations[shared] != nil {
		command = "server"
	}
	return "CAUSEWAY_" + strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(strings.TrimSpace(command+" "+f.Name)))
}

// Parse reads args of causeway-agent, and then the variables of flags that were not given. The
// error is pflag.ErrHelp or a [UsageError].
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
	return ReadVariables(flags, "", io.Discard)
}

// The annotations of flags.
const (
	shared   = "shared"   // the variable is the server's
	excludes = "excludes" // names other flags
	variable = "variable" // that the value is from
)

// Share has the variables of flags be the server's, whatever the command: kubectl exec in its pod
// finds them.
func Share(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, shared, []string{})
	}
}

// Exclude notes that a flag is an alternative to each of the others. [ReadVariables] refuses two
// of them, except that one on the command line counts more than the others' variables.
func Exclude(flags *pflag.FlagSet, name string, others ...string) {
	for _, other := range others {
		for one, with := range map[string]string{name: other, other: name} {
			_ = flags.SetAnnotation(one, excludes, append(flags.Lookup(one).Annotations[excludes], with))
		}
	}
}

// excluded returns those of the flag's alternatives that were set.
func excluded(flags *pflag.FlagSet, f *pflag.Flag) []string {
	return slices.DeleteFunc(slices.Clone(f.Annotations[excludes]), func(name string) bool { return !isSet(flags.Lookup(name)) })
}

func isSet(f *pflag.Flag) bool {
	return f.Changed && f.Value.String() != "" && f.Value.String() != "false"
}

// ReadVariables gives each flag of a command that was not given the value of its variable, if
// there is one. A newline at its end is left out: a Secret has one that was made from a file.
// The variable of former versions, without the command, counts if there is no other;
// warnings says so.
func ReadVariables(flags *pflag.FlagSet, command string, warnings io.Writer) (err error) {
	var left []*pflag.Flag // to variables
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed && f.Name != "help" && len(excluded(flags, f)) == 0 {
			left = append(left, f)
		}
	})
	for _, f := range left {
		name, former := Variable(command, f), Variable("", &pflag.Flag{Name: f.Name})
		text, ok := os.LookupEnv(name)
		old, hasOld := os.LookupEnv(former)
		switch hasOld = hasOld && former != name && former != "CAUSEWAY_REVOKE_ALL"; { // once of ticket, now of revoke
		case ok && hasOld:
			fmt.Fprintf(warnings, "warning: the variable %s is ignored, as %s counts\n", former, name)
		case hasOld:
			fmt.Fprintf(warnings, "warning: the variable %s is taken for --%s: write %s, as the next minor version ignores it\n", former, f.Name, name)
			name, text = former, old
		case !ok:
			continue
		}
		if flags.Set(f.Name, strings.TrimRight(text, "\r\n")) != nil { // its error shows the value, which may be secret
			return Mistake("the variable %s is not a value of --%s: want %s", name, f.Name, f.Value.Type())
		}
		_ = flags.SetAnnotation(f.Name, variable, []string{name})
	}
	flags.Visit(func(f *pflag.Flag) {
		if others := excluded(flags, f); err == nil && isSet(f) && len(others) > 0 {
			err = Mistake("--%s and --%s exclude each other: leave one out", f.Name, others[0])
		}
	})
	return err
}

var flagNames = regexp.MustCompile(`--[a-z0-9]+(-[a-z0-9]+)*`)

// NameSources returns an error of a program that names variables instead of the flags that have
// their value of them.
func NameSources(flags *pflag.FlagSet, err error) error {
	if err == nil {
		return nil
	}
	return sourced{err, flagNames.ReplaceAllStringFunc(err.Error(), func(flag string) string {
		if f := flags.Lookup(flag[2:]); f != nil && f.Annotations[variable] != nil {
			return f.Annotations[variable][0]
		}
		return flag
	})}
}

type sourced struct {
	error
	text string
}

func (e sourced) Error() string { return e.text }
func (e sourced) Unwrap() error { return e.error }

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
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
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

func (c choice) String() string { return *c.value }

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

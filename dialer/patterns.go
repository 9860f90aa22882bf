package dialer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/causewayproject/causeway/noproxy"
)

// Patterns is a compiled list of hosts, networks and ports, for a [Route]. It
// never changes, so any number of goroutines may use it at once. The zero
// Patterns matches nothing.
type Patterns struct {
	rules *noproxy.Rules
}

// patternOptions are what a route needs beyond a no_proxy list: nothing is
// implied, and whatever is accepted matches something.
var patternOptions = noproxy.Options{Strict: true, NoImpliedLoopback: true, NetworkPort: true}

// ParsePatterns compiles patterns, which mean what they mean in a no_proxy
// list:
//
//	example.com         the name and every name below it
//	.example.com        the names below it, not the name
//	*.example.com       the same
//	10.0.0.1            the address, also as ::ffff:10.0.0.1
//	2001:db8::1         the address, with any zone
//	10.0.0.0/8          the addresses of the network
//	example.com:8443    the name and those below it, on this port
//	10.0.0.1:8443       the address, on this port
//	[2001:db8::1]:8443  the address, on this port
//	10.0.0.0/8:8443     the addresses of the network, on this port
//	*                   everything
//	*:8443              everything, on this port
//
// There are three differences: the last but two and the last are read, nothing
// is implied (localhost and loopback addresses match where they are listed),
// and a pattern that could match no host is an error, an [*Error] of
// [PhaseConfig] that joins one for each.
func ParsePatterns(patterns ...string) (*Patterns, error) {
	var errs []error
	if len(patterns) == 0 {
		errs = append(errs, errors.New("no pattern: at least one is required"))
	}
	for i, text := range patterns {
		if err := checkPattern(text); err != nil {
			errs = append(errs, fmt.Errorf("pattern %d%w", i+1, err))
		}
	}
	if len(errs) > 0 {
		return nil, &Error{Op: "patterns", Phase: PhaseConfig, Err: errors.Join(errs...)}
	}
	rules, err := patternOptions.Parse(strings.Join(patterns, ","))
	if err != nil {
		return nil, &Error{Op: "patterns", Phase: PhaseConfig, Err: err}
	}
	return &Patterns{rules}, nil
}

// PatternsFromRules returns Patterns that match what rules bypass, for a no_proxy
// list that names what goes one of several ways. The list is read as it was
// parsed: what [noproxy.Parse] implies, localhost and loopback addresses, matches.
// With nil rules nothing does.
func PatternsFromRules(rules *noproxy.Rules) *Patterns { return &Patterns{rules} }

// checkPattern returns what is wrong with one pattern, to be read after
// "pattern 1".
func checkPattern(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New(": it is empty")
	}
	if strings.Contains(text, ",") {
		return errors.New(": it holds a comma: pass several patterns")
	}
	_, err := patternOptions.Parse(text)
	var entry *noproxy.EntryError
	if errors.As(err, &entry) {
		return fmt.Errorf(", %q: %s", printable(entry.Text), entry.Reason)
	}
	return err
}

// String returns the patterns, separated by commas.
func (p *Patterns) String() string {
	if p == nil {
		return ""
	}
	return p.rules.String()
}

func (p *Patterns) match(t target, port string) bool {
	return p.rules != nil && p.rules.Bypass(t.host, port)
}

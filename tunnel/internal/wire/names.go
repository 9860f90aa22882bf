package wire

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/causewayproject/causeway/internal/printable"
)

// MaxReplica is how long the name of a replica may be.
const MaxReplica = 64

// MaxAgentReplica is how long the name of an agent's replica may be: as long as a pod's
// host name.
const MaxAgentReplica = 63

const (
	maxCluster = 253 + 1 + 253 // namespace/name
	maxAgent   = 64
)

// CheckCluster returns an error unless the name may stand for a cluster:
// printable, without spaces, at most as long as namespace/name can be.
func CheckCluster(name string) error {
	return checkName("cluster", name, maxCluster)
}

// CheckAgent returns an error unless the name may stand for an agent.
func CheckAgent(name string) error {
	return checkName("agent", name, maxAgent)
}

// CheckReplica returns an error unless the name may stand for a replica of a
// server.
func CheckReplica(name string) error {
	return checkName("replica", name, MaxReplica)
}

// CheckAgentReplica returns an error unless the name may tell an agent from others with
// its certificate. The empty name may: there are no others.
func CheckAgentReplica(name string) error {
	if name == "" {
		return nil
	}
	return checkName("agent's replica", name, MaxAgentReplica)
}

func checkName(what, name string, most int) error {
	switch {
	case name == "":
		return errors.New("the name of the " + what + " is empty")
	case len(name) > most:
		return errors.New("the name of the " + what + " is too long")
	case !utf8.ValidString(name):
		return errors.New("the name of the " + what + " is not UTF-8")
	case printable.Quote(name) != name || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || r == '|' }):
		return errors.New("the name of the " + what + " holds a space, a bar or a character that does not print")
	}
	return nil
}

package provider

import (
	"errors"
	"time"
)

const timeUnit = time.Second // for the times that are written

// Plan says what is to be done next for a Cluster. It is called again after
// each Action, and whenever something changed: it looks at the present state, not
// at what happened. It only reads its arguments, dials nothing, and knows no time but
// config.Now. Nothing but the keys that it makes differs from call to call.
//
// Action.Condition tells of a wrong configuration or object. An error is a mistake of
// the caller: a Cluster without a name, a Config without Now.
func Plan(cluster Cluster, secrets Secrets, config Config) (Action, error) {
	switch {
	case cluster.Name == "" || cluster.Namespace == "":
		return Action{}, errors.New("provider: Cluster.Name and Namespace are required")
	case config.Now.IsZero():
		return Action{}, errors.New("provider: Config.Now is required")
	case cluster.Paused:
		return Action{}, nil
	}
	s := read(cluster, secrets, config)
	return s.render(decide(s)), nil
}

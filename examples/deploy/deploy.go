// Package deploy holds the kustomize bases of the example programs, each in a
// directory of its program's name; README.md says how to use them.
package deploy

import _ "embed"

//go:embed tunnel-agent/manifest.yaml
var agent string

// Agent returns the manifest of tunnel-agent, for the namespace tunnel-agent.
func Agent() string { return agent }

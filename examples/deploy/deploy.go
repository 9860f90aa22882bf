// Package deploy holds the kustomize bases of the programs; README.md says how to use
// them.
package deploy

import _ "embed"

//go:embed tunnel-agent/manifest.yaml
var agent string

// Agent returns the manifest of causeway-agent, for the namespace tunnel-agent.
func Agent() string { return agent }

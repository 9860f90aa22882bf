// Package deploy holds the kustomize bases of the programs, and what the packages of
// causeway-agent have; README.md says how to use them.
package deploy

import _ "embed"

//go:embed tunnel-agent/manifest.yaml
var agent string

//go:embed systemd/tunnel-agent.service
var agentUnit string

// AgentUnit returns the systemd unit of causeway-agent. Its state is the last argument of
// the command.
func AgentUnit() string { return agentUnit }

// Agent returns the manifest of causeway-agent, for the namespace tunnel-agent.
func Agent() string { return agent }

package controllers_test

import "testing"

// TestTunnelNeverConnected: while the replicas have not found each other yet, nobody knows
// of an agent; that is not one that was lost.
func TestTunnelNeverConnected(t *testing.T) {
	b := newTunnelBed(t)
	one := b.labelled("one")
	b.change(func() { b.silent = "connection refused" })
	b.runTunnel(t)
	b.untilCondition(one, "Unknown NeverConnected: no agent has connected yet, as far as is known: replica two of the server does not answer")
	b.change(func() { b.silent = "" })
	b.untilCondition(one, "False NeverConnected: no agent has connected yet: the Secret one-tunnel-agent")
}

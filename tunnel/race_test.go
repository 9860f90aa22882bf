//go:build race

package tunnel_test

const (
	// slowdown is how much longer than promised something may take here.
	slowdown = 10
	// fewer is how many times fewer strangers come: with the race detector a
	// handshake takes so many times longer.
	fewer = 10
)

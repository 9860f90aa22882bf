//go:build !race

package tunnel_test

const (
	// slowdown is how much longer than promised something may take here: the
	// machine has other work.
	slowdown = 3
	// fewer is how many times fewer strangers come.
	fewer = 1
)

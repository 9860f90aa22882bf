//go:build !race

package tunnel_test

// slowdown is how much longer than promised something may take here: the machine
// has other work.
const slowdown = 3

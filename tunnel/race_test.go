//go:build race

package tunnel_test

// slowdown is how much longer than promised something may take here.
const slowdown = 10

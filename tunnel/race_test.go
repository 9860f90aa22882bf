//go:build race

package tunnel_test

// slowdown is what the race detector makes of a handshake.
const slowdown = 10

//go:build !race

package tunnel_test

const slowdown = 1

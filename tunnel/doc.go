// Package tunnel reaches clusters that have no way in: an agent beside the
// cluster dials out to a server, and the server's process dials in through it.
package tunnel

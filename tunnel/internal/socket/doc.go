// Package socket has what the connections of a tunnel need of the socket below
// them: large reads that hold no buffer while they wait, the options of TCP, and
// a lock that may be held while the network blocks.
package socket

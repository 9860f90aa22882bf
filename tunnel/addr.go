package tunnel

import "net"

// Addr is the address of an end of a stream.
type Addr struct {
	// Cluster is the cluster whose agent dialed.
	Cluster string
	// Target is host:port as it was asked for. It is empty at the end that
	// dialed.
	Target string
}

var _ net.Addr = Addr{}

// Network returns "tunnel".
func (Addr) Network() string { return "tunnel" }

// String returns "namespace/name" or "namespace/name|host:port".
func (a Addr) String() string {
	if a.Target == "" {
		return a.Cluster
	}
	return a.Cluster + "|" + a.Target
}

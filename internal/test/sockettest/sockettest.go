// Package sockettest looks at the sockets below connections, for tests.
package sockettest

import "net"

// Wrapped is what an embedder's dial function may return.
type Wrapped struct{ net.Conn }

// NetConn returns the connection below.
func (w Wrapped) NetConn() net.Conn { return w.Conn }

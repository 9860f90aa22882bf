package tunnel

import "github.com/causewayproject/causeway/tunnel/internal/carrier"

// What the tests of the package see of its inside.

type Carrier = carrier.Conn

var HostOf = hostOf

// KnownClusters is of how many clusters the server knows something.
func (s *Server) KnownClusters() int {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return len(s.registry.clusters)
}

// RevocationName is the name of the record of a revocation.
func RevocationName(id Identity) string { return hashName(id) }

package prometheus

import (
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// CodeOf returns the label code of an error.
func CodeOf(err error) string { return codeOf(err) }

// Codes returns the labels of codes.
func Codes() map[tunnel.Code]string { return codes }

// PeerConnected, PeerDisconnected and Forwarded tell of other replicas.
func (m *Server) PeerConnected(name string) { m.setup().peers.connected(name) }

func (m *Server) PeerDisconnected(name string, err error) { m.setup().peers.disconnected(name, err) }

func (m *Server) Forwarded(cluster string, took time.Duration, err error) {
	m.setup().peers.forwarded(cluster, took, err)
}

// Tracked returns how many sessions the Server's counters remember.
func (m *Server) Tracked() int {
	m.traffic.mu.Lock()
	defer m.traffic.mu.Unlock()
	return len(m.traffic.sessions)
}

package prometheus

import "github.com/causewayproject/causeway/tunnel"

// CodeOf returns the label code of an error.
func CodeOf(err error) string { return codeOf(err) }

// Codes returns the labels of codes.
func Codes() map[tunnel.Code]string { return codes }

// Tracked returns how many sessions the Server's counters remember.
func (m *Server) Tracked() int {
	m.traffic.mu.Lock()
	defer m.traffic.mu.Unlock()
	return len(m.traffic.sessions)
}

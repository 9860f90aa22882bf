package prometheus

// CodeOf returns the label code of an error.
func CodeOf(err error) string { return codeOf(err) }

// Tracked returns how many sessions the Server's counters remember.
func (m *Server) Tracked() int {
	m.traffic.mu.Lock()
	defer m.traffic.mu.Unlock()
	return len(m.traffic.sessions)
}

package gateway

// Status is what a Gateway has done, and does at one moment.
type Status struct {
	// Ready: the Gateway was not shut down.
	Ready bool `json:"ready"`
	// Open connections and HTTP/2 streams, those in their handshake included.
	Open int `json:"open"`
	// Connections since the Gateway began, and those of them that failed
	// before a byte was relayed.
	Total  uint64 `json:"total"`
	Failed uint64 `json:"failed"`
	// BytesIn came from clients, BytesOut went to them, on connections that
	// have ended.
	BytesIn  uint64 `json:"bytesIn"`
	BytesOut uint64 `json:"bytesOut"`
	// Clients are the open connections by Identity; only with MaxPerClient.
	Clients map[string]int `json:"clients,omitempty"`
}

// Status returns what the Gateway knows now.
func (g *Gateway) Status() Status {
	if g.setup() != nil {
		return Status{}
	}
	v := &g.visits
	s := Status{
		Ready: !g.set.Closed(), Total: v.total.Load(), Failed: v.failed.Load(),
		BytesIn: v.in.Load(), BytesOut: v.out.Load(), Clients: map[string]int{},
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s.Open = v.open
	for name, n := range v.clients {
		s.Clients[name] = n
	}
	return s
}

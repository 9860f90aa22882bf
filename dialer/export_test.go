package dialer

// Proxies is how many HTTPConnect p remembers.
func (p *HTTP2) Proxies() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.proxies)
}

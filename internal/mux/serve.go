package mux

// Serve has f called for each stream that the peer opened, those that wait
// first, in the place of Accept: one after the other, in their order. It is the
// session's reader, or whoever else brings f a stream, that calls f: f must not
// wait for anything, nor call the session's Close. Once Close has returned f is
// not called any more. Serve is to be called once at most.
func (s *Session) Serve(f func(*Stream)) {
	s.mu.Lock()
	s.serve = f
	s.mu.Unlock()
	s.handOver()
}

// handOver serves the streams that wait. Who comes while another does so leaves
// it to that one.
func (s *Session) handOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serve == nil || s.serving {
		return
	}
	s.serving = true
	for st := s.nextLocked(); st != nil; st = s.nextLocked() {
		s.mu.Unlock()
		s.serve(st)
		s.mu.Lock()
	}
	s.serving = false
}

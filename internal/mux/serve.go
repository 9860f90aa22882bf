package mux

// Serve has f called for each stream that the peer opened, those that wait
// first, in the place of Accept: one after the other, in their order. Those that
// wait are the caller's to hand over, before Serve returns; the others are the
// session's reader's, so f must not wait for anything, nor call Close. Once Close
// has returned f is not called any more. Serve is to be called once at most.
func (s *Session) Serve(f func(*Stream)) {
	for st := s.nextToServe(f); st != nil; st = s.nextToServe(f) {
		f(st)
	}
}

// nextToServe returns the next stream that waits. If there is none, the reader
// hands over what comes.
func (s *Session) nextToServe(f func(*Stream)) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.accept.pop()
	if st == nil {
		s.serve = f
		return nil
	}
	s.acceptedLocked(st)
	return st
}

// handOver is the reader's, after a frame that opened a stream.
func (s *Session) handOver() {
	s.came = false
	s.mu.Lock()
	f := s.serve
	var st *Stream
	if f != nil {
		// None, if it has ended already. The others were handed over before.
		if st = s.accept.pop(); st != nil {
			s.acceptedLocked(st)
		}
	}
	s.mu.Unlock()
	if st != nil {
		f(st)
	}
}

package mux

// Write returns when all of p is queued; the peer's window and the session's
// queue bound how much that is.
func (st *Stream) Write(p []byte) (int, error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	total := 0
	for {
		n, err := st.writePart(p[total:])
		total += n
		if err != nil || total == len(p) {
			return total, err
		}
	}
}

// writePart queues one frame of p.
func (st *Stream) writePart(p []byte) (int, error) {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p) == 0 {
		return 0, st.opError("write", st.writeErrorLocked())
	}
	if n := st.appendLocked(p); n > 0 {
		return n, nil
	}
	n, err := st.reserveLocked(len(p), false)
	if err != nil {
		return 0, st.opError("write", err)
	}
	class := classFor(headerSize + n)
	if st.nframes > 0 {
		class = max(class, classSmall) // the carrier is slow: there will be more
	}
	b := s.frame(class)
	if n <= smallFrame {
		b.append(p[:n])
		st.enqueueLocked(b)
		s.readyLocked(st, true)
		return n, nil
	}
	s.mu.Unlock()
	b.append(p[:n])
	s.mu.Lock()
	if err := st.commitLocked(b); err != nil {
		return 0, st.opError("write", err)
	}
	return n, nil
}

// appendLocked adds p to a frame that waits, if it fits.
func (st *Stream) appendLocked(p []byte) int {
	if st.nframes == 0 || len(p) > smallFrame || st.writeErrorLocked() != nil {
		return 0
	}
	b := st.frames[st.nframes-1]
	if b.free() < len(p) || st.window.send < len(p) {
		return 0
	}
	b.append(p)
	st.window.send -= len(p)
	st.s.queued += len(p)
	return len(p)
}

// reserveLocked waits until up to want bytes, all of them if whole is set, fit
// into the peer's window and the queues, and takes that room.
func (st *Stream) reserveLocked(want int, whole bool) (int, error) {
	s := st.s
	defer s.returnGrantLocked(st)
	for {
		if err := st.writeErrorLocked(); err != nil {
			return 0, err
		}
		n := min(want, maxPayload, st.window.send)
		if n > 0 && st.nframes < len(st.frames) && (!whole || n == want) {
			if s.roomLocked(st, n) {
				st.window.send -= n
				s.queued += n
				return n, nil
			}
			s.room.push(st)
		}
		st.writable.Wait()
	}
}

// commitLocked queues b, for which room was reserved, unless the stream has
// ended since.
func (st *Stream) commitLocked(b *buffer) error {
	s := st.s
	n := b.w - headerSize
	if err := st.writeErrorLocked(); err != nil {
		s.put(b)
		s.queued -= n
		st.window.send += n
		s.grantLocked()
		return err
	}
	st.enqueueLocked(b)
	s.readyLocked(st, n <= smallFrame)
	return nil
}

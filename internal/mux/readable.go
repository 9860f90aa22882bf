package mux

// AfterReadable has f called, once and in a goroutine of its own, as soon as Read
// need not wait: when data or an end came, or the stream or its session has been
// ended here. That may be at once, and deadlines do not count. In the end each f
// is called; who sets it waits for it, where that matters. One f at a time may
// be set: the next one after this one was called.
func (st *Stream) AfterReadable(f func()) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if st.afterReadable != nil {
		panic("mux: AfterReadable while another function waits")
	}
	if st.first != nil || st.closed || st.readErrorLocked() != nil {
		go f()
		return
	}
	st.afterReadable = f
}

// wakeReaderLocked is called when something came, or an end.
func (st *Stream) wakeReaderLocked() {
	st.readable.Broadcast() // one Read at a time waits
	if f := st.afterReadable; f != nil {
		st.afterReadable = nil
		go f()
	}
}

// AfterReset has f called, once and in a goroutine of its own, when the peer
// resets the stream; if it was reset already, before AfterReset returns. ended says
// that the peer had ended the stream before: it has sent all, and reads no more.
// Once the stream is closed or reset here, or the session has ended, f is not
// called. The session's Close waits for f, so f must not call it. A later call
// replaces f.
func (st *Stream) AfterReset(f func(code uint32, ended bool)) {
	s := st.s
	s.mu.Lock()
	reset, ended := st.reset, st.finCame
	if reset == nil && !st.closed {
		st.afterReset = f
	}
	s.mu.Unlock()
	if reset != nil {
		f(reset.Code, ended)
	}
}

// resetCameLocked is called when st was reset, and not by Reset.
func (s *Session) resetCameLocked(st *Stream) {
	if f, code, ended := st.afterReset, st.reset.Code, st.finCame; f != nil {
		st.afterReset = nil
		s.loops.Go(func() { f(code, ended) })
	}
}

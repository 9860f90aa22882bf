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

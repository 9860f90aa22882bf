package mux

import "io"

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
	defer s.wakeRoomLocked()
	defer s.room.remove(st)
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
		s.wakeRoomLocked()
		return err
	}
	st.enqueueLocked(b)
	s.readyLocked(st, n <= smallFrame)
	return nil
}

// ReadFrom writes what it reads from r until io.EOF, without copying it. While
// it waits for a *net.TCPConn or a stream *net.UnixConn it holds no buffer,
// for another Reader a small one. The error is r's or Write's. That the peer
// has called Close is found by the first write after that, as it is with TCP: a
// relay that ends at the first error would lose what the peer has sent before.
//
// It may be the one who writes to the carrier. Should a carrier that was fast
// block just then, neither a deadline nor Close ends ReadFrom before the carrier
// goes on or the session ends.
func (st *Stream) ReadFrom(r io.Reader) (int64, error) {
	src := &source{s: st.s, r: r, socket: newSocket(r), class: classSmall}
	var total int64
	for {
		limit, err := st.waitWritable()
		if err != nil {
			return total, err
		}
		b, rerr := src.read(limit)
		if b != nil {
			n := b.w - headerSize
			if err := st.writeBuffer(b); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if rerr == io.EOF {
			return total, nil
		}
		if rerr != nil {
			return total, rerr
		}
	}
}

// waitWritable waits until something can be written, and returns how much at
// once. It reserves nothing: what is to be written may come much later.
func (st *Stream) waitWritable() (int, error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	for {
		if st.leftLocked() {
			return maxPayload, nil // which will not be sent
		}
		if err := st.writeErrorLocked(); err != nil {
			return 0, st.opError("write", err)
		}
		if st.window.send > 0 && st.nframes < len(st.frames) {
			return min(st.window.send, maxPayload), nil
		}
		st.writable.Wait()
	}
}

// leftLocked reports whether nothing keeps st from being written to but that the
// peer has closed it, after all that it had to send.
func (st *Stream) leftLocked() bool {
	return st.reset != nil && st.reset.Remote && st.finCame && !st.ended && !st.writeLimit.passed
}

// writeBuffer queues a frame, and sends it if nobody else is sending.
func (st *Stream) writeBuffer(b *buffer) error {
	s, n := st.s, b.w-headerSize
	st.writing.Lock()
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := st.reserveLocked(n, true)
	st.writing.Unlock()
	if err != nil {
		s.put(b)
		return st.opError("write", err)
	}
	turn := s.takeTurnLocked()
	st.enqueueLocked(b)
	s.readyLocked(st, n <= smallFrame)
	if turn {
		s.sendTurnLocked()
	}
	return nil
}

// source reads frames from a Reader.
type source struct {
	s      *Session
	r      io.Reader
	socket *socket // nil: r is read by its Read
	class  int     // of the next buffer
}

// read returns a frame with up to limit bytes, nil if nothing came. What came
// does not hold much more memory than it needs.
func (src *source) read(limit int) (*buffer, error) {
	b, err := src.readBuffer(limit)
	if b == nil {
		return nil, err
	}
	if class := classFor(b.w); class < b.class-1 {
		fits := src.s.get(class)
		fits.append(b.data[:b.w])
		src.s.put(b)
		b = fits
	}
	return b, err
}

func (src *source) readBuffer(limit int) (*buffer, error) {
	if src.socket != nil {
		return src.socket.read(src.s, limit)
	}
	b := src.s.frame(src.class)
	space := b.data[headerSize:]
	n, err := src.r.Read(space[:min(limit, len(space))])
	if n < 0 || n > len(space) {
		panic("mux: a Reader returned an invalid count")
	}
	b.w += n
	// A big buffer only while reads fill a small one.
	src.class = classSmall
	if n >= smallFrame-headerSize {
		src.class = len(sizes) - 1
	}
	if n == 0 {
		src.s.put(b)
		b = nil
	}
	return b, err
}

package mux

import "io"

// ReadFrom writes what it reads from r until io.EOF, without copying it. While
// it waits for a *net.TCPConn or a stream *net.UnixConn it holds no buffer,
// for another Reader a small one. The error is r's or Write's. That the peer
// has called Close is found by the first write after that, as it is with TCP: a
// relay that ends at the first error would lose what the peer has sent before.
//
// It may be the one who writes to the carrier. Should a carrier that was fast
// block just then, neither a deadline nor Close ends ReadFrom before the carrier
// goes on or WriteTimeout ends the session.
func (st *Stream) ReadFrom(r io.Reader) (int64, error) {
	src := newSource(st.s, r)
	var total int64
	for {
		limit, err := st.waitWritable()
		if err != nil {
			return total, st.opErrorUnlocked("write", err)
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
			return 0, err
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
	s := st.s
	turn, err := st.queueBuffer(b)
	if turn {
		s.mu.Lock()
		s.sendTurnLocked()
		s.mu.Unlock()
	}
	return err
}

func (st *Stream) queueBuffer(b *buffer) (turn bool, err error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if _, err := st.reserveLocked(b.w-headerSize, true); err != nil {
		st.s.put(b)
		return false, st.opError("write", err)
	}
	turn = st.s.takeTurnLocked()
	return turn, st.opError("write", st.commitLocked(b))
}

func (st *Stream) opErrorUnlocked(op string, err error) error {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.opError(op, err)
}

// source reads frames from a Reader.
type source struct {
	s      *Session
	r      io.Reader
	socket *socket // nil: r is read by its Read
	class  int     // of the next buffer
}

func newSource(s *Session, r io.Reader) *source {
	return &source{s: s, r: r, socket: newSocket(r), class: classSmall}
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

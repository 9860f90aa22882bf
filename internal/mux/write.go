package mux

import (
	"io"

	"github.com/causewayproject/causeway/internal/budget"
)

// Write returns when all of p is queued. It waits for the peer's window and for
// room in the session's queue.
func (st *Stream) Write(p []byte) (int, error) {
	st.writeMu.Lock()
	defer st.writeMu.Unlock()
	total := 0
	for {
		n, err := st.writePart(p[total:])
		total += n
		if err != nil || total == len(p) {
			return total, err
		}
	}
}

// writePart queues at most one frame of p and returns how much that is. The copy
// into the frame is made without the lock.
func (st *Stream) writePart(p []byte) (int, error) {
	s := st.session
	budget.Keep(s.config.Budget)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p) == 0 {
		return 0, st.opError("write", st.writeErrorLocked())
	}
	if n := st.appendToFrameLocked(p); n > 0 {
		return n, nil
	}
	n, err := st.reserveRoomLocked(len(p), false)
	if err != nil {
		return 0, st.opError("write", err)
	}
	class := classFor(headerSize + n)
	if st.nframes > 0 {
		class = max(class, classSmall) // the carrier is slow: there will be more
	}
	b := s.getFrame(class)
	s.mu.Unlock()
	b.append(p[:n])
	s.mu.Lock()
	if err := st.writeErrorLocked(); err != nil { // it has ended meanwhile: the room is given back
		s.putBuffer(b)
		s.queuedBytes -= n
		st.window.send += n
		s.wakeRoomWaiterLocked()
		return 0, st.opError("write", err)
	}
	st.pushFrameLocked(b)
	s.queueDataLocked(st, n <= smallFrame)
	return n, nil
}

// appendToFrameLocked adds a small p to the last frame that is not sent, if it
// fits, and returns how many bytes it added: all or none.
func (st *Stream) appendToFrameLocked(p []byte) int {
	if st.nframes == 0 || len(p) > smallFrame || st.writeErrorLocked() != nil {
		return 0
	}
	b := st.frames[st.nframes-1]
	if b.freeSpace() < len(p) || st.window.send < len(p) {
		return 0
	}
	b.append(p)
	st.window.send -= len(p)
	st.session.queuedBytes += len(p)
	return len(p)
}

// reserveRoomLocked waits until up to want bytes fit into the peer's window and the
// queue, or all of them if whole is set. It takes that room and returns how much it
// is.
func (st *Stream) reserveRoomLocked(want int, whole bool) (int, error) {
	s := st.session
	defer s.wakeRoomWaiterLocked()
	defer s.roomWaiters.remove(st)
	for {
		if err := st.writeErrorLocked(); err != nil {
			return 0, err
		}
		n := min(want, maxPayload, st.window.send)
		if n > 0 && int(st.nframes) < len(st.frames) && (!whole || n == want) {
			if s.hasRoomLocked(st, n) {
				st.window.send -= n
				s.queuedBytes += n
				return n, nil
			}
			s.roomWaiters.push(st)
		}
		st.writable.Wait()
	}
}

// ReadFrom writes what it reads from r until io.EOF, without copying it. While it
// waits for a *net.TCPConn or a stream *net.UnixConn it holds no buffer, and for
// another Reader a small one. The error is r's or Write's. If the peer has called
// Close, ReadFrom returns only after a write that came later, as with TCP: a relay
// that ends at the first error would otherwise lose what the peer sent before.
//
// ReadFrom may write to the carrier itself. If a carrier that was fast blocks at
// that moment, neither a deadline nor Close ends ReadFrom before the carrier takes
// the bytes or the session ends.
func (st *Stream) ReadFrom(r io.Reader) (int64, error) {
	src := &frameReader{st: st, s: st.session, r: r, socket: newSocket(r), class: classSmall}
	var total int64
	for {
		limit, err := st.waitWritable()
		if err != nil {
			return total, err
		}
		b, rerr := src.read(limit)
		if b != nil {
			budget.Keep(st.session.config.Budget)
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

// waitWritable waits until something can be written, and returns how much. It
// reserves nothing, since the Reader may return much later.
func (st *Stream) waitWritable() (int, error) {
	st.writeMu.Lock()
	defer st.writeMu.Unlock()
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	for {
		// Writes fail only because the peer has called Close, after all its data.
		if st.reset != nil && st.reset.Remote && st.finReceived && !st.writeClosed && !st.writeLimit.passed {
			return maxPayload, nil // writeBuffer will return the error
		}
		if err := st.writeErrorLocked(); err != nil {
			return 0, st.opError("write", err)
		}
		if st.window.send > 0 && int(st.nframes) < len(st.frames) {
			return min(st.window.send, maxPayload), nil
		}
		st.writable.Wait()
	}
}

// writeBuffer queues a frame, and sends it at once if the carrier is free.
func (st *Stream) writeBuffer(b *buffer) error {
	s, n := st.session, b.w-headerSize
	st.writeMu.Lock()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.setKept(len(b.data))
	_, err := st.reserveRoomLocked(n, true)
	st.setKept(0)
	st.writeMu.Unlock()
	if err != nil {
		s.putBuffer(b)
		return st.opError("write", err)
	}
	turn := s.takeCarrierLocked()
	st.pushFrameLocked(b)
	s.queueDataLocked(st, n <= smallFrame)
	if turn {
		s.sendDirectLocked()
	}
	return nil
}

// frameReader reads from a Reader into frames.
type frameReader struct {
	st     *Stream
	s      *Session
	r      io.Reader
	socket *socket // nil: r.Read is called
	class  int     // of the next buffer
}

// read returns a frame with up to limit bytes, or nil if there were none. A frame
// that is mostly empty is copied into a smaller buffer, since it may wait for long.
func (src *frameReader) read(limit int) (*buffer, error) {
	b, err := src.readBuffer(limit)
	if b == nil {
		return nil, err
	}
	if class := classFor(b.w); class < b.class-1 {
		fits := src.s.getBuffer(class)
		fits.append(b.data[:b.w])
		src.s.putBuffer(b)
		b = fits
	}
	return b, err
}

func (src *frameReader) readBuffer(limit int) (*buffer, error) {
	if src.socket != nil {
		return src.socket.read(src.s, limit)
	}
	b := src.s.getFrame(src.class)
	space := b.data[headerSize:]
	src.st.setKept(len(b.data) - sizes[classSmall]) // the Reader may wait for long
	n, err := src.r.Read(space[:min(limit, len(space))])
	src.st.setKept(0)
	if n < 0 || n > len(space) {
		panic("mux: a Reader returned an invalid count")
	}
	b.w += n
	// The next buffer is a large one only if this read filled a small one.
	src.class = classSmall
	if n >= smallFrame-headerSize {
		src.class = len(sizes) - 1
	}
	if n == 0 {
		src.s.putBuffer(b)
		b = nil
	}
	return b, err
}

package gateway

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/net/http2"
)

// frame handles a frame. Its error ends the connection.
func (h *http2Server) frame(f http2.Frame) error {
	if err := h.dispatch(f); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	most := maxQueue
	if !h.admitted {
		most = earlyQueue
	}
	if h.queue.Len() > most || h.refused > maxRefused && !h.admitted {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

func (h *http2Server) dispatch(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return h.headers(f)
	case *http2.DataFrame:
		return h.data(f)
	case *http2.RSTStreamFrame:
		return h.broken(f)
	case *http2.WindowUpdateFrame:
		return h.window(f)
	case *http2.SettingsFrame:
		return h.settings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			data := f.Data
			h.control(func(w *http2.Framer) { w.WritePing(true, data) })
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			h.reset(f.StreamID, http2.ErrCodeProtocol)
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

// headers begins a stream. One that is refused is begun nevertheless: frames for
// it may be on their way.
func (h *http2Server) headers(f *http2.MetaHeadersFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case f.StreamID%2 == 0:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case f.StreamID <= h.last:
		return h.lateHeadersLocked(f.StreamID)
	}
	h.last = f.StreamID
	for h.running >= maxPending && !h.admitted && !h.draining {
		h.room.Wait()
	}
	request, err := parseFields(f)
	switch {
	case h.draining, h.running >= maxStreams:
		h.rstLocked(f.StreamID, http2.ErrCodeRefusedStream)
	case err == errMalformed, f.HasPriority() && f.Priority.StreamDep == f.StreamID:
		h.refused++
		h.rstLocked(f.StreamID, http2.ErrCodeProtocol)
	default:
		h.served = f.StreamID
		h.startLocked(f, request, err)
	}
	return nil
}

// lateHeadersLocked is a header for a stream that was begun before.
func (h *http2Server) lateHeadersLocked(id uint32) error {
	st := h.streams[id]
	switch {
	case st != nil && st.ended:
		h.resetLocked(st, http2.ErrCodeStreamClosed)
	case st != nil: // trailers: a tunnel has none
		h.resetLocked(st, http2.ErrCodeProtocol)
	case !h.wasReset(id):
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (h *http2Server) startLocked(f *http2.MetaHeadersFrame, request *head, err error) {
	ctx, cancel := context.WithCancelCause(h.gr.Context())
	s := &http2Stream{h: h, id: f.StreamID, cancel: cancel, sendWindow: h.initial, window: earlyWindow, ended: f.StreamEnded()}
	if !h.acked {
		s.window = defaultWindow
	}
	s.recvWindow = s.window
	s.cond.L = &h.mu
	h.streams[s.id] = s
	h.enterLocked()
	h.wg.Go(func() {
		defer h.leave(s)
		defer cancel(nil)
		s.serve(ctx, request, err)
	})
}

// errMalformed is a header that RFC 9113 calls malformed (8.1.1). It gets no
// answer.
var errMalformed = errors.New("the header is malformed")

// parseFields is parseHead for HTTP/2. The frame is used again for the next.
func parseFields(f *http2.MetaHeadersFrame) (*head, error) {
	h := &head{method: f.PseudoValue("method"), authority: f.PseudoValue("authority")}
	switch {
	case f.Truncated:
		return nil, errHeaderTooLarge
	case !wellFormed(f):
		return nil, errMalformed
	case h.method != "CONNECT":
		return nil, errMethod
	case f.PseudoValue("protocol") != "":
		return nil, errExtended
	}
	authorized := false
	for _, field := range f.RegularFields() {
		if field.Name != "proxy-authorization" {
			continue
		}
		if authorized {
			return nil, errAuthorization
		}
		authorized = true
		if err := h.authorization(field.Value); err != nil {
			return nil, err
		}
	}
	return h, checkAuthority(h.authority)
}

// wellFormed reports whether a request has the fields that it must have, and
// none that it must not. What the framer checks is not looked at again.
func wellFormed(f *http2.MetaHeadersFrame) bool {
	scheme, path := f.PseudoValue("scheme"), f.PseudoValue("path")
	switch method := f.PseudoValue("method"); {
	case method == "CONNECT" && f.PseudoValue("protocol") == "": // 8.5
		if scheme != "" || path != "" || f.PseudoValue("authority") == "" {
			return false
		}
	case method == "" || scheme == "" || path == "": // 8.3.1
		return false
	}
	for _, field := range f.RegularFields() {
		switch field.Name {
		case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade": // 8.2.2
			return false
		case "te":
			if field.Value != "trailers" {
				return false
			}
		case "content-length": // a CONNECT has no body
			if field.Value != "0" && f.PseudoValue("method") == "CONNECT" {
				return false
			}
		}
	}
	return true
}

func (h *http2Server) data(f *http2.DataFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := int(f.Length) // padding counts
	if h.recvWindow -= n; h.recvWindow < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	st := h.streams[f.StreamID]
	if st != nil && !st.ended && n <= st.recvWindow {
		st.receivedLocked(f)
		return nil
	}
	h.consumedLocked(n)
	switch {
	case st == nil && f.StreamID > h.last:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case st == nil:
		h.rstLocked(f.StreamID, http2.ErrCodeStreamClosed)
	case st.ended:
		h.resetLocked(st, http2.ErrCodeStreamClosed)
	default:
		h.resetLocked(st, http2.ErrCodeFlowControl)
	}
	return nil
}

// consumedLocked lets the client send n more on the connection.
func (h *http2Server) consumedLocked(n int) {
	h.consumed += n
	if h.consumed == 0 || h.consumed < h.recvWindow/4 {
		return
	}
	h.queued.WriteWindowUpdate(0, uint32(h.consumed))
	h.recvWindow += h.consumed
	h.consumed = 0
	h.poke()
}

// broken is a stream that the client has reset.
func (h *http2Server) broken(f *http2.RSTStreamFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.streams[f.StreamID]
	switch {
	case st != nil:
		st.breakLocked(errReset)
	case f.StreamID > h.last:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

// reset ends a stream by a fault of the client's.
func (h *http2Server) reset(id uint32, code http2.ErrCode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if st := h.streams[id]; st != nil {
		h.resetLocked(st, code)
		return
	}
	h.last = max(h.last, id)
	h.refused++
	h.rstLocked(id, code)
}

func (h *http2Server) resetLocked(st *http2Stream, code http2.ErrCode) {
	st.breakLocked(errFault)
	h.rstLocked(st.id, code)
}

// rstLocked tells the client that a stream is closed, unless it was told so before:
// it may have sent more before it knew (RFC 9113, 5.1).
func (h *http2Server) rstLocked(id uint32, code http2.ErrCode) {
	if h.wasReset(id) {
		return
	}
	h.resets[h.nextReset] = id
	h.nextReset = (h.nextReset + 1) % maxResets
	h.queued.WriteRSTStream(id, code)
	h.poke()
}

func (h *http2Server) wasReset(id uint32) bool { return slices.Contains(h.resets[:], id) }

func (h *http2Server) window(f *http2.WindowUpdateFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.StreamID == 0 {
		if h.sendWindow += int64(f.Increment); h.sendWindow > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		for _, st := range h.streams {
			st.cond.Broadcast()
		}
		return nil
	}
	st := h.streams[f.StreamID]
	switch {
	case st == nil && f.StreamID > h.last:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case st == nil:
		return nil
	}
	if st.sendWindow += int64(f.Increment); st.sendWindow > maxWindow {
		h.resetLocked(st, http2.ErrCodeFlowControl)
		return nil
	}
	st.cond.Broadcast()
	return nil
}

// ackedLocked is when the client goes by our settings, for the streams that it
// has begun before, too.
func (h *http2Server) ackedLocked() {
	if h.acked {
		return
	}
	h.acked = true
	for _, st := range h.streams {
		st.window -= defaultWindow - earlyWindow
		st.recvWindow -= defaultWindow - earlyWindow
		if st.admitted {
			st.openLocked()
		}
	}
}

func (h *http2Server) settings(f *http2.SettingsFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.IsAck() {
		h.ackedLocked()
		return nil
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			h.encoder.SetMaxDynamicTableSize(min(s.Val, 4096))
		case http2.SettingInitialWindowSize:
			more := int64(s.Val) - h.initial
			h.initial += more
			for _, st := range h.streams {
				if st.sendWindow += more; st.sendWindow > maxWindow {
					return http2.ConnectionError(http2.ErrCodeFlowControl)
				}
				st.cond.Broadcast()
			}
		}
		return nil
	})
	if err != nil {
		var broken http2.ConnectionError
		if !errors.As(err, &broken) {
			err = http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return err
	}
	h.queued.WriteSettingsAck()
	h.poke()
	return nil
}

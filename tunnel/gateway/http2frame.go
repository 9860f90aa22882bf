package gateway

import (
	"context"
	"errors"

	"golang.org/x/net/http2"
)

// frame handles a frame. Its error ends the connection.
func (h *http2Server) frame(f http2.Frame) error {
	if err := h.dispatch(f); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queue.Len() > maxQueue {
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
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

// headers begins a stream.
func (h *http2Server) headers(f *http2.MetaHeadersFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case f.StreamID%2 == 0:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case f.StreamID <= h.last:
		if st := h.streams[f.StreamID]; st != nil { // trailers: a tunnel has none
			h.resetLocked(st, http2.ErrCodeProtocol)
		}
		return nil
	case h.draining, h.running >= maxStreams:
		h.queued.WriteRSTStream(f.StreamID, http2.ErrCodeRefusedStream)
		h.poke()
		return nil
	}
	h.last = f.StreamID
	h.startLocked(f)
	return nil
}

func (h *http2Server) startLocked(f *http2.MetaHeadersFrame) {
	ctx, cancel := context.WithCancelCause(h.gr.Context())
	s := &http2Stream{h: h, id: f.StreamID, cancel: cancel, sendWindow: h.initial, recvWindow: earlyWindow, ended: f.StreamEnded()}
	if !h.acked {
		s.recvWindow = defaultWindow
	}
	s.cond.L = &h.mu
	h.streams[s.id] = s
	h.enterLocked()
	request, err := parseFields(f)
	h.wg.Go(func() {
		defer h.leave()
		defer cancel(nil)
		s.serve(ctx, request, err)
	})
}

// parseFields is parseHead for HTTP/2. The frame is used again for the next.
func parseFields(f *http2.MetaHeadersFrame) (*head, error) {
	h := &head{method: f.PseudoValue("method"), authority: f.PseudoValue("authority")}
	switch {
	case f.Truncated:
		return nil, errHeaderTooLarge
	case h.method != "CONNECT":
		return nil, errMethod
	case f.PseudoValue("protocol") != "":
		return nil, errExtended
	case f.PseudoValue("scheme") != "" || f.PseudoValue("path") != "":
		return nil, errAuthority
	}
	authorized := false
	for _, field := range f.RegularFields() {
		switch field.Name {
		case "proxy-authorization":
			if authorized {
				return nil, errAuthorization
			}
			authorized = true
			if err := h.authorization(field.Value); err != nil {
				return nil, err
			}
		case "content-length":
			if field.Value != "0" {
				return nil, errBody
			}
		}
	}
	return h, checkAuthority(h.authority)
}

func (h *http2Server) data(f *http2.DataFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := int(f.Length) // padding counts
	if h.received += n; h.received > connWindow {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if h.received >= connWindow/8 {
		h.queued.WriteWindowUpdate(0, uint32(h.received))
		h.received = 0
		h.poke()
	}
	st := h.streams[f.StreamID]
	switch {
	case st == nil && f.StreamID > h.last:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case st == nil: // we have reset it
		return nil
	case st.ended:
		h.resetLocked(st, http2.ErrCodeStreamClosed)
		return nil
	case n > st.recvWindow:
		h.resetLocked(st, http2.ErrCodeFlowControl)
		return nil
	}
	st.recvWindow -= n
	st.received.add(f.Data())
	st.consumedLocked(n - len(f.Data()))
	st.ended = f.StreamEnded()
	st.endedLocked()
	st.cond.Broadcast()
	return nil
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
	h.queued.WriteRSTStream(id, code)
	h.poke()
}

func (h *http2Server) resetLocked(st *http2Stream, code http2.ErrCode) {
	st.breakLocked(errFault)
	h.queued.WriteRSTStream(st.id, code)
	h.poke()
}

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

func (h *http2Server) settings(f *http2.SettingsFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.IsAck() {
		h.acked = true
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

package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/internal/budget"
)

// handleFrame handles a frame. An error is a connection error.
func (h *http2Conn) handleFrame(f http2.Frame) error {
	budget.Keep(h.g.budget())
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.dispatchFrameLocked(f); err != nil {
		return err
	}
	return h.checkLimitsLocked()
}

var (
	errUnread   = calmError("the client does not read what it asks for")
	errRefusals = calmError("too many requests were refused")
)

// checkLimitsLocked returns an error if too much waits to be sent, or too many requests were refused.
func (h *http2Conn) checkLimitsLocked() error {
	most := maxQueue
	if !h.admitted {
		most = earlyQueue
	}
	held := 4 * h.queue.Len() // a Buffer may double, and as much is being written
	budget.Add(h.g.budget(), held-h.queueHeld)
	h.queueHeld = held
	switch {
	case h.queue.Len() > most:
		return errUnread
	case h.refusals > maxRefused && !h.admitted:
		return errRefusals
	}
	return nil
}

func (h *http2Conn) dispatchFrameLocked(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return h.handleHeadersLocked(f)
	case *http2.DataFrame:
		return h.handleDataLocked(f)
	case *http2.RSTStreamFrame:
		return h.handleResetLocked(f)
	case *http2.WindowUpdateFrame:
		return h.handleWindowUpdateLocked(f)
	case *http2.SettingsFrame:
		return h.handleSettingsLocked(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			h.queued.WritePing(true, f.Data)
			h.wakeSender()
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			h.resetIDLocked(f.StreamID, http2.ErrCodeProtocol)
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

// handleHeadersLocked begins a stream (RFC 9113, 5.1.1): the client's have odd identifiers
// that grow. A refused stream counts as begun, too: frames for it may be under way.
func (h *http2Conn) handleHeadersLocked(f *http2.MetaHeadersFrame) error {
	switch {
	case f.StreamID%2 == 0:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case f.StreamID <= h.lastStream:
		return h.lateHeadersLocked(f.StreamID)
	}
	h.lastStream = f.StreamID
	for h.handlers >= maxPending && !h.admitted && !h.draining {
		h.handlerRoom.Wait()
	}
	request, err := parseHTTP2Request(f)
	switch {
	case h.draining, h.handlers >= maxStreams:
		h.queueResetLocked(f.StreamID, http2.ErrCodeRefusedStream)
		if len(h.streams) >= maxStreams && h.settingsAcked {
			return h.meter.take(idlePerStream)
		}
		return h.meter.take(1)
	case err == errMalformed, f.HasPriority() && f.Priority.StreamDep == f.StreamID:
		h.refusals++
		h.queueResetLocked(f.StreamID, http2.ErrCodeProtocol)
		return h.meter.take(1)
	default:
		h.lastServed = f.StreamID
		h.startHandlerLocked(f, request, err)
		return nil
	}
}

// lateHeadersLocked handles a header for a stream that was begun before. Trailers
// are an error: a tunnel carries only DATA (RFC 9113, 8.5).
func (h *http2Conn) lateHeadersLocked(id uint32) error {
	st := h.streams[id]
	switch {
	case st != nil && st.endReceived:
		h.resetStreamLocked(st, http2.ErrCodeStreamClosed)
	case st != nil:
		h.resetStreamLocked(st, http2.ErrCodeProtocol)
	case !h.wasReset(id):
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return h.meter.take(1)
}

// startHandlerLocked starts the handler of a stream.
func (h *http2Conn) startHandlerLocked(f *http2.MetaHeadersFrame, request *connectRequest, err error) {
	ctx, cancel := context.WithCancelCause(h.group.Context())
	s := &http2Stream{h: h, id: f.StreamID, cancel: cancel, window: earlyWindow, endReceived: f.StreamEnded(), received: chunkList{budget: h.g.budget()}}
	if !h.settingsAcked {
		s.window = defaultWindow
	}
	s.recvWindow = s.window
	s.cond.L = &h.mu
	h.streams[s.id] = s
	if h.handlers++; h.handlers == 1 {
		h.raw.SetReadDeadline(time.Time{}) // while there is a handler
	}
	h.wg.Go(func() {
		defer h.handlerDone(s)
		defer cancel(nil)
		s.serve(ctx, request, err)
	})
}

// errMalformed is a malformed request (RFC 9113, 8.1.1). It is reset, not answered.
var errMalformed = errors.New("the header is malformed")

// parseHTTP2Request is parseRequest for HTTP/2. It keeps nothing of the frame, whose
// memory is used for the next one.
func parseHTTP2Request(f *http2.MetaHeadersFrame) (*connectRequest, error) {
	h := &connectRequest{method: f.PseudoValue("method"), authority: f.PseudoValue("authority")}
	switch {
	case f.Truncated:
		return nil, errHeaderTooLarge
	case !isWellFormed(f):
		return nil, errMalformed
	case h.method != "CONNECT":
		return nil, errMethod
	case f.PseudoValue("protocol") != "":
		return nil, errExtended
	}
	for _, field := range f.RegularFields() {
		if field.Name == "proxy-authorization" {
			if err := h.parseAuthorization(field.Value); err != nil {
				return nil, err
			}
		}
	}
	return h, checkAuthority(h.authority)
}

// isWellFormed reports whether a request has the fields that it must have, and none
// that it must not: by section 8.5 for CONNECT, by 8.3.1 for other methods and
// extended CONNECT, and by 8.2.2 for fields of a connection. The framer has checked
// the rest.
func isWellFormed(f *http2.MetaHeadersFrame) bool {
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

func (h *http2Conn) handleDataLocked(f *http2.DataFrame) error {
	n := int(f.Length) // padding counts (RFC 9113, 6.9.1)
	if h.recvWindow -= n; h.recvWindow < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	st := h.streams[f.StreamID]
	if st != nil && !st.endReceived && n <= st.recvWindow {
		st.receivedLocked(f)
		if n > 0 && len(f.Data()) == 0 {
			return h.meter.take(1)
		}
		return nil
	}
	h.returnCreditLocked(n)
	if err := h.meter.take(1); err != nil {
		return err
	}
	switch {
	case st == nil && f.StreamID > h.lastStream:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case st == nil:
		h.queueResetLocked(f.StreamID, http2.ErrCodeStreamClosed)
	case st.endReceived:
		h.resetStreamLocked(st, http2.ErrCodeStreamClosed)
	default:
		h.resetStreamLocked(st, http2.ErrCodeFlowControl)
	}
	return nil
}

// returnCreditLocked gives n bytes of the connection's window back to the client, in
// steps of a quarter of the window.
func (h *http2Conn) returnCreditLocked(n int) {
	h.consumed += n
	if !h.admitted || h.consumed == 0 || h.consumed < h.recvWindow/4 {
		return
	}
	h.queued.WriteWindowUpdate(0, uint32(h.consumed))
	h.recvWindow += h.consumed
	h.consumed = 0
	h.wakeSender()
}

// handleResetLocked handles RST_STREAM (RFC 9113, 6.4). For a stream that was never begun
// it is a connection error.
func (h *http2Conn) handleResetLocked(f *http2.RSTStreamFrame) error {
	st := h.streams[f.StreamID]
	switch {
	case st != nil:
		st.failLocked(errReset)
	case f.StreamID > h.lastStream:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

// resetIDLocked ends a stream for an error of the client (RFC 9113, 5.4.2).
func (h *http2Conn) resetIDLocked(id uint32, code http2.ErrCode) {
	if st := h.streams[id]; st != nil {
		h.resetStreamLocked(st, code)
		return
	}
	h.lastStream = max(h.lastStream, id)
	h.refusals++
	h.queueResetLocked(id, code)
}

func (h *http2Conn) resetStreamLocked(st *http2Stream, code http2.ErrCode) {
	st.failLocked(errFault)
	h.queueResetLocked(st.id, code)
}

// queueResetLocked sends RST_STREAM, unless it was sent before for this stream: the
// client may send more frames before it sees the reset (RFC 9113, 5.1, "closed").
func (h *http2Conn) queueResetLocked(id uint32, code http2.ErrCode) {
	if h.wasReset(id) {
		return
	}
	h.resets[h.nextReset] = id
	h.nextReset = (h.nextReset + 1) % maxResets
	h.queued.WriteRSTStream(id, code)
	h.wakeSender()
}

func (h *http2Conn) wasReset(id uint32) bool { return slices.Contains(h.resets[:], id) }

func (h *http2Conn) handleWindowUpdateLocked(f *http2.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		if h.sendWindow += int64(f.Increment); h.sendWindow > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		h.wakeNextLocked()
		return nil
	}
	st := h.streams[f.StreamID]
	switch {
	case st == nil && f.StreamID > h.lastStream:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case st == nil:
		return nil
	}
	if st.credit += int64(f.Increment); st.sendWindowLocked() > maxWindow {
		h.resetStreamLocked(st, http2.ErrCodeFlowControl)
		return nil
	}
	h.mostCredit = max(h.mostCredit, st.credit)
	st.cond.Broadcast()
	return nil
}

// settingsAckedLocked is called when the client has acknowledged our SETTINGS. From
// then on the initial window is earlyWindow, for streams that it began before, too,
// whose windows shrink by the difference (RFC 9113, 6.9.2).
func (h *http2Conn) settingsAckedLocked() {
	if h.settingsAcked {
		return
	}
	h.settingsAcked = true
	for _, st := range h.streams {
		st.window -= defaultWindow - earlyWindow
		st.recvWindow -= defaultWindow - earlyWindow
		if st.admitted {
			st.openWindowLocked()
		}
	}
}

// handleSettingsLocked takes SETTINGS, and does no work for each stream at each entry: a frame has
// room for 2,700.
func (h *http2Conn) handleSettingsLocked(f *http2.SettingsFrame) error {
	if f.IsAck() {
		h.settingsAckedLocked()
		return nil
	}
	before := h.initialWindow
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			h.encoder.SetMaxDynamicTableSize(min(s.Val, 4096))
		case http2.SettingInitialWindowSize:
			h.initialWindow = int64(s.Val)
		}
		return nil
	})
	if err != nil {
		if _, ok := errors.AsType[http2.ConnectionError](err); !ok {
			err = http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return err
	}
	if h.initialWindow+h.mostCredit > maxWindow {
		h.mostCredit = 0
		for _, st := range h.streams {
			h.mostCredit = max(h.mostCredit, st.credit)
		}
		if h.initialWindow+h.mostCredit > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
	}
	if h.initialWindow > before {
		for st := range h.blocked {
			st.cond.Broadcast()
		}
	}
	h.queued.WriteSettingsAck()
	h.wakeSender()
	return nil
}

// wakeNextLocked wakes one of the streams that wait for the connection's window. It wakes
// the next one when it has taken its part.
func (h *http2Conn) wakeNextLocked() {
	if h.sendWindow > 0 {
		for st := range h.waiting {
			st.cond.Broadcast()
			return
		}
	}
}

package dialer

import (
	"bufio"
	"bytes"
	"io"
	"time"

	"golang.org/x/net/http2"
)

// FollowHTTP2 returns what net/http reads of what a proxy sends on a connection
// with the streams 1 and 3, of which 3 has ended here.
func FollowHTTP2(sent []byte) ([]byte, error) {
	w := newHTTP2Wire(nil, time.Second, func() {})
	w.in = bufio.NewReader(bytes.NewReader(sent))
	for _, h := range []http2.FrameHeader{
		{Type: http2.FrameHeaders, Flags: http2.FlagHeadersEndHeaders, StreamID: 1},
		{Type: http2.FrameHeaders, Flags: http2.FlagHeadersEndHeaders, StreamID: 3},
		{Type: http2.FrameData, Flags: http2.FlagDataEndStream, StreamID: 3},
	} {
		w.trackSentFrameLocked(h)
	}
	return io.ReadAll(struct{ io.Reader }{w})
}

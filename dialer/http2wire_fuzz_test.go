package dialer_test

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/causewayproject/causeway/dialer"
)

// FuzzHTTP2Wire: whatever a proxy sends, net/http gets frames of kinds that it
// knows, none of which it would log or hold much memory for.
func FuzzHTTP2Wire(f *testing.F) {
	answer := func(fr *http2.Framer, stream uint32, end bool) {
		var b bytes.Buffer
		hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: end})
	}
	for _, send := range []func(*http2.Framer){
		func(fr *http2.Framer) {
			answer(fr, 1, false)
			fr.WriteData(1, true, []byte("hi"))
			fr.WriteData(1, false, []byte("late"))
		},
		func(fr *http2.Framer) { answer(fr, 3, true); fr.WriteWindowUpdate(3, 1<<31-1) },
		func(fr *http2.Framer) {
			fr.WriteData(1, false, []byte("early"))
			fr.WriteRSTStream(1, http2.ErrCodeConnect)
		},
		func(fr *http2.Framer) { fr.WriteWindowUpdate(1, 1<<31-1) },
		func(fr *http2.Framer) {
			fr.WriteRawFrame(0x20, 1, 1, []byte("unknown"))
			fr.WriteGoAway(1, http2.ErrCodeNo, nil)
		},
		func(fr *http2.Framer) {
			fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		},
	} {
		var b bytes.Buffer
		fr := http2.NewFramer(&b, nil)
		fr.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1<<24 - 1})
		send(fr)
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		got, err := dialer.FollowHTTP2(sent)
		if err == nil && len(got) > 3*len(sent) {
			t.Errorf("%d bytes became %d", len(sent), len(got))
		}
		ended := map[uint32]bool{}
		for fr := http2.NewFramer(nil, bytes.NewReader(got)); ; {
			frame, err := fr.ReadFrame()
			if err != nil {
				return // cut, or for net/http to refuse
			}
			h := frame.Header()
			switch frame := frame.(type) {
			case *http2.UnknownFrame, *http2.PriorityFrame:
				t.Fatalf("got %v", h)
			case *http2.SettingsFrame:
				if n, ok := frame.Value(http2.SettingMaxFrameSize); ok && n > 16<<10 && n < 1<<24 {
					t.Fatalf("got frames of %d bytes", n)
				}
			case *http2.DataFrame:
				if ended[h.StreamID] {
					t.Fatalf("got %v after the end", h)
				}
				ended[h.StreamID] = frame.StreamEnded() && h.StreamID%2 == 1
			}
		}
	})
}

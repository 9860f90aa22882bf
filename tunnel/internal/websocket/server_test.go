package websocket_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

func TestCheckRequest(t *testing.T) {
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}, "Sec-Websocket-Protocol": {"other, causeway.v1"}}
	but := func(name, value string) http.Header {
		h := upgrade.Clone()
		h.Set(name, value)
		return h
	}
	tests := []struct {
		name, method string
		header       http.Header
		want         int
	}{
		{"a browser", "GET", nil, 426},
		{"no connection header", "GET", but("Connection", "close"), 426},
		{"another upgrade", "GET", but("Upgrade", "h2c"), 426},
		{"another version", "GET", but("Sec-WebSocket-Version", "8"), 426},
		{"another method", "POST", upgrade, 400},
		{"no key", "GET", but("Sec-WebSocket-Key", ""), 400},
		{"a short key", "GET", but("Sec-WebSocket-Key", "AAAA"), 400},
		{"another subprotocol", "GET", but("Sec-WebSocket-Protocol", "chat"), 400},
		{"right", "GET", upgrade, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, "/", nil)
			r.Header = tt.header
			if status, text := websocket.CheckRequest(r); status != tt.want || (text == "") != (tt.want == 0) {
				t.Errorf("got %d %q, want %d and a text unless it is 0", status, text, tt.want)
			}
		})
	}
}

package websocket

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

// UpgradeTimeout is how long a client may take for its request, TLS included,
// and for the answer.
const UpgradeTimeout = 10 * time.Second

// SwitchProtocols writes the answer to a request that passed CheckRequest.
func SwitchProtocols(conn net.Conn, r *http.Request) error {
	_, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n", acceptKey(r.Header.Get("Sec-WebSocket-Key")), subprotocol)
	return errors.Join(err, socket.Flush(conn))
}

// CheckRequest returns zero if the request can be upgraded (RFC 6455, section
// 4.2.1), or the status and text of a refusal.
func CheckRequest(r *http.Request) (status int, text string) {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	switch {
	case r.ProtoMajor != 1, !r.ProtoAtLeast(1, 1), !hasToken(r.Header, "Connection", "upgrade"), !hasToken(r.Header, "Upgrade", "websocket"):
		return http.StatusUpgradeRequired, "agents connect here by WebSocket over HTTP/1.1"
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return http.StatusUpgradeRequired, "the version of WebSocket is 13"
	case r.Method != http.MethodGet:
		return http.StatusBadRequest, "WebSocket takes the method GET"
	case err != nil || len(key) != 16:
		return http.StatusBadRequest, "Sec-WebSocket-Key is not 16 bytes in base64"
	case !hasToken(r.Header, "Sec-WebSocket-Protocol", subprotocol):
		return http.StatusBadRequest, "the subprotocol is " + subprotocol
	}
	return 0, ""
}

package websocket

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/fips140"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/mask"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

const (
	subprotocol = "causeway.v1"
	// maxUpgradeHeader bounds the header of an answer.
	maxUpgradeHeader = 64 << 10
	// maxRefusal is how much of a refusal's body is kept, and refusalWait how long
	// Client waits for it.
	maxRefusal  = 200
	refusalWait = time.Second
)

// ParseURL parses a ws:// or wss:// URL. Its errors do not repeat the address,
// which may hold a password.
func ParseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("the server's address is not a URL")
	case u.Scheme != "ws" && u.Scheme != "wss":
		return nil, errors.New("the scheme of the server's address is neither ws nor wss")
	case u.Hostname() == "":
		return nil, errors.New("the server's address has no host")
	case strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "["):
		return nil, errors.New("the server's address has IPv6 without brackets; write it as in wss://[2001:db8::1]:8443")
	case u.Fragment != "":
		return nil, errors.New("the server's address has a fragment")
	}
	return u, nil
}

// HostPort returns the address to connect to, with the port that is the default
// of the scheme.
func HostPort(u *url.URL) string {
	byDefault := "80"
	if u.Scheme == "wss" {
		byDefault = "443"
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), byDefault))
}

// Client makes the handshake of a client on conn, which belongs to the WebSocket
// from then on: it is closed if the handshake fails. ctx bounds the handshake.
func Client(ctx context.Context, conn net.Conn, u *url.URL) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { socket.Innermost(conn).Close() })
	early, err := upgrade(conn, u)
	if !stop() {
		err = ended.Error(ctx, err)
	}
	if err != nil {
		socket.Innermost(conn).Close()
		conn.Close()
		return nil, fmt.Errorf("websocket upgrade: %w", err)
	}
	return NewConn(conn, true, early), nil
}

// upgrade makes the handshake of RFC 6455, section 4.1, and returns what the
// server sent after it.
func upgrade(conn net.Conn, u *url.URL) (early []byte, err error) {
	var nonce [16]byte
	rand.Read(nonce[:])
	key := base64.StdEncoding.EncodeToString(nonce[:])
	req := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{}}
	if user := u.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	secrets := mask.Header(req.Header)
	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Sec-WebSocket-Version", "13")
	req.Header.Set("Sec-WebSocket-Key", key)
	req.Header.Set("Sec-WebSocket-Protocol", subprotocol)
	if err := errors.Join(req.Write(conn), socket.Flush(conn)); err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: conn, N: maxUpgradeHeader}
	br := bufio.NewReader(limited)
	res, err := http.ReadResponse(br, req)
	for err == nil && res.StatusCode/100 == 1 && res.StatusCode != http.StatusSwitchingProtocols { // 100, 102, 103
		res, err = http.ReadResponse(br, req)
	}
	switch {
	case err != nil && limited.N == 0:
		return nil, fmt.Errorf("the header of the answer is larger than %d bytes", maxUpgradeHeader)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the connection ended before the answer was complete: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return nil, fmt.Errorf("reading the answer: %w", mask.Error(err, secrets))
	case res.StatusCode != http.StatusSwitchingProtocols:
		return nil, upgradeRefusal(res, conn, secrets)
	}
	if err := checkUpgrade(res.Header, key); err != nil {
		return nil, err
	}
	if early, _ = br.Peek(br.Buffered()); len(early) == 0 {
		return nil, nil // and br can go
	}
	return bytes.Clone(early), nil
}

func checkUpgrade(h http.Header, key string) error {
	switch {
	case !hasToken(h, "Upgrade", "websocket"), !hasToken(h, "Connection", "upgrade"):
		return errors.New("the answer is no upgrade to WebSocket")
	case h.Get("Sec-WebSocket-Accept") != acceptKey(key):
		return errors.New("the answer is to another request: its Sec-WebSocket-Accept does not match")
	case h.Get("Sec-WebSocket-Extensions") != "":
		return errors.New("the answer has extensions that were not asked for")
	case h.Get("Sec-WebSocket-Protocol") != subprotocol:
		return fmt.Errorf("the answer is not of the subprotocol %s: the address is another service's", subprotocol)
	}
	return nil
}

// upgradeRefusal returns the status of an answer and its first words, without secrets
// that were sent and that the answer repeats. conn is closed if it does not come in time.
func upgradeRefusal(res *http.Response, conn net.Conn, secrets []string) error {
	stop := socket.CloseAfter(conn, refusalWait)
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	stop()
	status := fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode))
	if words := strings.Join(strings.Fields(mask.Text(string(body), len(body) == maxRefusal, secrets)), " "); words != "" {
		return fmt.Errorf("the answer is %s: %q", status, words)
	}
	return fmt.Errorf("the answer is %s", status)
}

// acceptKey returns the Sec-WebSocket-Accept for a key (RFC 6455, section 4.2.2).
// The SHA-1 only shows that the server speaks WebSocket, and protects nothing, so
// it is allowed in a program that enforces FIPS 140.
func acceptKey(key string) string {
	var sum [sha1.Size]byte
	fips140.WithoutEnforcement(func() {
		sum = sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	})
	return base64.StdEncoding.EncodeToString(sum[:])
}

// hasToken reports whether a header that is a list has the token.
func hasToken(h http.Header, name, token string) bool {
	return httpguts.HeaderValuesContainsToken(h.Values(name), token)
}

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

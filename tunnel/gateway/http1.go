package gateway

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// http2Preface is the beginning of HTTP/2 (RFC 9113, 3.4) without its last six bytes:
// so much is read as the header of a request.
const http2Preface = "PRI * HTTP/2.0\r\n\r\n"

// connectRequest is what the header of a CONNECT request says.
type connectRequest struct {
	method    string
	authority string // host:port
	user      string
	password  string
	bearer    string

	authorized bool // it has a Proxy-Authorization
}

// requestError is why a header is not that of a CONNECT, and the status of the
// answer.
type requestError struct {
	status int
	text   string
}

func (e *requestError) Error() string { return e.text }

var (
	errHeaderTooLarge = &requestError{431, "the header is too large"}
	errRequestLine    = &requestError{400, "the first line is not METHOD TARGET HTTP/1.1"}
	errAuthority      = &requestError{400, "the target of CONNECT is not host:port"}
	errNoEnd          = &requestError{400, "the request ends in its header"}
	errField          = &requestError{400, "a header field is malformed"}
	errBody           = &requestError{400, "a CONNECT has no body"}
	errAuthorization  = &requestError{400, "the Proxy-Authorization is malformed"}
	errHosts          = &requestError{400, "there is more than one Host"} // RFC 9112, 3.2
	errVersion        = &requestError{505, "this proxy speaks HTTP/1 and HTTP/2"}
	errWantsTLS       = &requestError{400, "this door speaks TLS: use an https proxy URL"}
	errIsTLS          = &requestError{400, "this door is plain: use an http proxy URL"}
	errIsSOCKS        = &requestError{400, "this door is an HTTP proxy: use an http proxy URL, not socks"}
	errExtended       = &requestError{501, "this proxy knows only CONNECT, without a :protocol"}
	errMethod         = &requestError{405, "this proxy knows only CONNECT: use an https URL, or make the client tunnel (curl --proxytunnel)"}

	errHTTP2 = errors.New("the client speaks HTTP/2")
)

const headerBufferSize = 2 << 10

// headerBuffers has buffers for headers, which are rarely larger.
var headerBuffers = sync.Pool{New: func() any { return new([headerBufferSize]byte) }}

// readHeader reads until it has a whole header, into buf or into more memory if the
// header is longer. It returns all that was read, and where the header ends. The
// bytes after that belong to the target.
func readHeader(r io.Reader, buf []byte, most int) (all []byte, end int, err error) {
	for from := 0; ; {
		if len(buf) > 0 {
			if err := checkFirstByte(buf[0]); err != nil {
				return buf, 0, err
			}
		}
		if end = headerEnd(buf, from); end > most || end < 0 && len(buf) > most {
			return buf, 0, errHeaderTooLarge
		}
		if end >= 0 {
			return buf, end, nil
		}
		from = max(0, len(buf)-2)
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n == 0 && err != nil {
			switch {
			case len(buf) == 0 && !errors.Is(err, os.ErrDeadlineExceeded):
				err = errSilent
			case err == io.EOF:
				err = errNoEnd
			}
			return buf, 0, err
		}
	}
}

// checkFirstByte returns the error for a first byte that begins no request. Another
// protocol might never complete a header.
func checkFirstByte(first byte) error {
	switch {
	case first == 0x16:
		return errIsTLS
	case first == 4 || first == 5:
		return errIsSOCKS
	case first != '\r' && first != '\n' && !httpguts.IsTokenRune(rune(first)):
		return errRequestLine
	}
	return nil
}

// headerEnd returns where a header's last, empty line ends, or -1. from is
// where the search begins. Empty lines before the first line are ignored (RFC 9112,
// 2.2).
func headerEnd(b []byte, from int) int {
	for i := max(from, countEmptyLines(b)); ; i++ {
		next := bytes.IndexByte(b[i:], '\n')
		if next < 0 {
			return -1
		}
		i += next
		switch rest := b[i+1:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return i + 2
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return i + 3
		}
	}
}

// countEmptyLines returns the number of bytes of empty lines before the first line,
// 4 at most: more are malformed.
func countEmptyLines(b []byte) (n int) {
	for n < min(len(b), 4) && (b[n] == '\r' || b[n] == '\n') {
		n++
	}
	return n
}

// parseRequest parses what readHeader has read. The error is a *requestError. Lines
// may end with a bare LF.
func parseRequest(b []byte) (*connectRequest, error) {
	line, rest := cutLine(b[countEmptyLines(b):])
	h, err := parseRequestLine(string(line))
	if err != nil {
		return nil, err
	}
	host := false
	for {
		if line, rest = cutLine(rest); len(line) == 0 {
			return h, nil
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !httpguts.ValidHeaderFieldName(string(name)) || !httpguts.ValidHeaderFieldValue(string(value)) {
			return nil, errField
		}
		text := string(bytes.Trim(value, " \t"))
		switch strings.ToLower(string(name)) {
		case "proxy-authorization":
			if err := h.parseAuthorization(text); err != nil {
				return nil, err
			}
		case "host":
			if host {
				return nil, errHosts
			}
			host = true
		case "content-length":
			if text != "0" {
				return nil, errBody
			}
		case "transfer-encoding":
			return nil, errBody
		}
	}
}

// cutLine returns the first line of b without its end, and what follows.
func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), rest
}

func parseRequestLine(line string) (*connectRequest, error) {
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	major, _, isHTTP := http.ParseHTTPVersion(version)
	switch {
	case !ok || !httpguts.ValidHeaderFieldName(method) || target == "" || !isHTTP:
		return nil, errRequestLine
	case major != 1:
		return nil, errVersion
	case method != "CONNECT":
		return nil, errMethod
	}
	if err := checkAuthority(target); err != nil {
		return nil, err
	}
	return &connectRequest{method: method, authority: target}, nil
}

// checkAuthority accepts only host:port (RFC 9112, 3.2.3): a name, an IPv4 address
// or an IPv6 address in brackets, without a zone, which is meaningless on another
// machine.
func checkAuthority(s string) error {
	host, port, err := net.SplitHostPort(s)
	n, wrong := strconv.ParseUint(port, 10, 16)
	if err != nil || wrong != nil || n == 0 || !isHostName(host) || strings.HasPrefix(s, "[") != strings.Contains(host, ":") {
		return errAuthority
	}
	return nil
}

// parseAuthorization parses Basic (RFC 7617) and Bearer (RFC 6750). It ignores other
// schemes.
func (h *connectRequest) parseAuthorization(value string) error {
	if h.authorized {
		return errAuthorization
	}
	h.authorized = true
	scheme, text, _ := strings.Cut(value, " ")
	text = strings.TrimLeft(text, " ")
	switch strings.ToLower(scheme) {
	case "basic":
		plain, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return errAuthorization
		}
		var ok bool
		if h.user, h.password, ok = strings.Cut(string(plain), ":"); !ok {
			return errAuthorization
		}
	case "bearer":
		if h.bearer = text; text == "" {
			return errAuthorization
		}
	}
	return nil
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

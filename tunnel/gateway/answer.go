package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/printable"
)

const (
	basicChallenge = `Basic realm="causeway", charset="UTF-8"`
	retryAfter     = time.Second // unless the error knows better
)

// answer is the HTTP answer to a client that is refused.
type answer struct {
	status int
	kind   string // of RFC 9209, 2.3
	detail string // for people; no secret, printable, bounded
	retry  time.Duration
}

var errInternal = &answer{status: 500, kind: "proxy_internal_error"}

// answerFor returns the answer for an *Error or a *requestError.
func answerFor(err error) *answer {
	var (
		e   *Error
		bad *requestError
	)
	switch {
	case errors.As(err, &bad):
		return &answer{status: bad.status, kind: "http_request_error", detail: bad.text}
	case !errors.As(err, &e):
		return errInternal
	}
	detail := asciiLine(e.Err.Error())
	switch e.Phase {
	case PhaseHandshake:
		switch {
		case errors.Is(e.Err, errShutdown):
			return &answer{status: 503, kind: "proxy_internal_response", detail: detail}
		case errors.Is(e.Err, admission.ErrCrowded):
			return &answer{status: 503, kind: "connection_limit_reached", detail: detail}
		}
		return &answer{status: 408, kind: "http_request_error", detail: "the request took too long"}
	case PhaseLimit:
		if limited := (Limited)(nil); errors.As(e.Err, &limited) {
			break
		}
		if errors.Is(e.Err, errTooManyOf) {
			return &answer{status: 429, kind: "connection_limit_reached", detail: detail}
		}
		return &answer{status: 503, kind: "connection_limit_reached", detail: detail}
	case PhaseAuthenticate:
		switch reasonOf(e.Err) {
		case reasonUnavailable:
			return &answer{status: 503, kind: "proxy_internal_error", detail: "nobody can be authenticated at the moment"}
		case reasonForbidden:
			return &answer{status: 403, kind: "http_request_denied", detail: "the client is known, and not let in"}
		}
		if ticket, ok := errors.AsType[*TicketError](e.Err); ok {
			return &answer{status: 407, kind: "http_request_denied", detail: asciiLine(ticket.Error())}
		}
		return &answer{status: 407, kind: "http_request_denied", detail: "the credentials are missing or wrong"}
	case PhaseRoute:
		switch reasonOf(e.Err) {
		case reasonForbidden:
			return &answer{status: 403, kind: "http_request_denied", detail: detail}
		case reasonUnavailable:
			return &answer{status: 503, kind: "destination_unavailable", detail: detail}
		}
		return &answer{status: 400, kind: "destination_not_found", detail: detail}
	}
	r := reasonOf(e.Err)
	a := &answer{status: r.status, kind: r.kind, detail: detail}
	if limited := (Limited)(nil); errors.As(e.Err, &limited) {
		a.kind, a.retry = reasonLimited.kind, limited.RetryAfter()
	}
	return a
}

// text is one line for people. It is the reason phrase, because net/http, and so
// kubectl, shows nothing else of an answer.
func (a *answer) text() string {
	s := http.StatusText(a.status)
	if a.detail != "" {
		s += ": " + a.detail
	}
	return s
}

// connectAnswer is the CONNECT door's answer once the target is connected.
func connectAnswer(target net.Conn) string {
	status := connectedStatus(target)
	if status == "" {
		return "HTTP/1.1 200 OK\r\n\r\n"
	}
	return "HTTP/1.1 200 OK\r\nProxy-Status: " + status + "\r\n\r\n"
}

// connectedStatus returns the Proxy-Status for a target that is connected: who has
// connected it (RFC 9209, 2.3.2), if the address of its other end has a method NextHop.
func connectedStatus(target net.Conn) string {
	far, ok := target.RemoteAddr().(interface{ NextHop() string })
	if !ok || far.NextHop() == "" {
		return ""
	}
	return "causeway; next-hop=" + quoteField(asciiLine(far.NextHop()))
}

// quoteField returns a string of RFC 8941.
func quoteField(line string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(line) + `"`
}

// fields yields the header fields, except the ones for the body's framing.
func (a *answer) fields(yield func(name, value string) bool) {
	status := "causeway; error=" + a.kind
	if a.detail != "" {
		status += "; details=" + quoteField(a.detail)
	}
	if !yield("Proxy-Status", status) || !yield("Content-Type", "text/plain; charset=utf-8") {
		return
	}
	switch a.status {
	case 407:
		yield("Proxy-Authenticate", basicChallenge)
	case 405:
		yield("Allow", "CONNECT")
	case 429, 503:
		wait := cmp.Or(a.retry, retryAfter)
		yield("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	}
}

// body repeats the reason phrase, which HTTP/2 does not have.
func (a *answer) body() string { return a.text() + "\n" }

// appendTo appends the answer in the form of HTTP/1.1.
func (a *answer) appendTo(b []byte) []byte {
	b = fmt.Appendf(b, "HTTP/1.1 %d %s\r\n", a.status, a.text())
	for name, value := range a.fields {
		b = fmt.Appendf(b, "%s: %s\r\n", name, value)
	}
	b = append(b, "Connection: close\r\nContent-Length: "+strconv.Itoa(len(a.body()))+"\r\n\r\n"...)
	return append(b, a.body()...)
}

// asciiLine makes a line of ASCII, of at most 200 bytes, of any text.
func asciiLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, printable.Text(s, 200))
}

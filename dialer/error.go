package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Phase is a step of a dial.
type Phase string

// The phases of a dial, in their order. Each hop of a chain has its own.
const (
	// PhaseConfig: a field of the dialer or the address that was asked for is
	// not usable. Nothing was dialed.
	PhaseConfig Phase = "config"
	// PhaseDNS is the lookup of a name by this process.
	PhaseDNS Phase = "dns"
	// PhaseTCP is the connection to the proxy, or to the target if there is no
	// proxy.
	PhaseTCP Phase = "tcp"
	// PhaseTLS is the TLS handshake with an https proxy.
	PhaseTLS Phase = "tls"
	// PhaseConnect is the request to the proxy to connect to the target.
	PhaseConnect Phase = "connect"
	// PhaseAuth is the authentication to the proxy.
	PhaseAuth Phase = "auth"
)

const (
	opDirect = "direct"
	opHTTP   = "http connect"
	opSOCKS5 = "socks5"
	opProxy  = "x/net/proxy"
)

// Error is the error of every dialer of this package. It holds no
// credentials: they are in none of its fields and not in its text.
type Error struct {
	// Op is the kind of dialer: "direct", "http connect", "socks5", "failover",
	// "x/net/proxy". For a mistake that was found before anything was dialed it
	// may also be "router", "swap", "chain" and the like.
	Op string
	// Phase is the step that failed.
	Phase Phase
	// Proxy is the proxy as scheme://host:port, without user info. Empty if
	// there is none, or if its address can't be used.
	Proxy string
	// Addr is the address that was asked for.
	Addr string
	// Status is the answer of the proxy, if it gave one: an HTTP status code,
	// or the code of a SOCKS5 reply (RFC 1928, section 6). Otherwise zero.
	Status int
	// Err is the cause: a [*Refusal], a [SOCKSReply], an error of package net
	// or crypto/tls, an http2.StreamError or http2.ConnectionError of
	// golang.org/x/net, or the context's.
	Err error
}

// Error says which target, proxy and phase, and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("dialer: ")
	if e.Addr != "" {
		b.WriteString(printable(e.Addr))
		if e.Proxy != "" {
			b.WriteString(" through ")
		} else {
			b.WriteString(": ")
		}
	}
	if e.Proxy != "" {
		b.WriteString(printable(e.Proxy))
		b.WriteString(": ")
	}
	b.WriteString(string(e.Phase))
	b.WriteString(": ")
	b.WriteString(strings.TrimPrefix(fmt.Sprint(e.Err), "dialer: "))
	b.WriteString(e.advice())
	return b.String()
}

// advice is for the refusal that nearly everyone meets first: squid's
// default configuration allows CONNECT to port 443 alone, and API servers
// listen on 6443.
func (e *Error) advice() string {
	_, port, err := net.SplitHostPort(e.Addr)
	if err != nil || port == "443" || e.Op != opHTTP || e.Status != http.StatusForbidden {
		return ""
	}
	return " (many proxies allow CONNECT to port 443 only by default: allow port " + printable(port) + " there)"
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether the dial ran out of time.
func (e *Error) Timeout() bool { return timedOut(e.Err) }

// Temporary is there for [net.Error] and is always false.
func (e *Error) Temporary() bool { return false }

// Is reports a timeout as [os.ErrDeadlineExceeded], whatever ran out.
func (e *Error) Is(target error) bool {
	return target == os.ErrDeadlineExceeded && e.Timeout()
}

var _ net.Error = (*Error)(nil)

// Refusal is the answer of an HTTP proxy that did not connect.
type Refusal struct {
	// StatusCode and Reason are those of the status line.
	StatusCode int
	Reason     string
	// Header is the header of the answer.
	Header http.Header
	// Body is the beginning of the body, at most 4 KiB.
	Body []byte
}

// Error is the status line, with the proxy's own error code where it sends
// one (X-Squid-Error). The body is left out.
func (r *Refusal) Error() string {
	reason := r.Reason
	if reason == "" {
		reason = http.StatusText(r.StatusCode)
	}
	s := "the proxy answered " + strconv.Itoa(r.StatusCode)
	if reason != "" {
		s += " " + printable(reason)
	}
	if squid := r.Header.Get("X-Squid-Error"); squid != "" {
		s += " (X-Squid-Error: " + printable(squid) + ")"
	}
	return s
}

// SOCKSReply is the code with which a SOCKS5 proxy refuses a request
// (RFC 1928, section 6). Codes 3 to 5 are also the system's errors that they
// stand for: errors.Is(err, syscall.ECONNREFUSED) holds for code 5.
type SOCKSReply byte

var socksReplies = [...]string{
	1: "general failure",
	2: "connection not allowed by ruleset",
	3: "network unreachable",
	4: "host unreachable",
	5: "connection refused",
	6: "TTL expired",
	7: "command not supported",
	8: "address type not supported",
}

// Error is the meaning of the code.
func (r SOCKSReply) Error() string {
	text := "unassigned code"
	if int(r) < len(socksReplies) && socksReplies[r] != "" {
		text = socksReplies[r]
	}
	return fmt.Sprintf("the proxy answered %d %s", byte(r), text)
}

// Is reports whether target is the system's error for r.
func (r SOCKSReply) Is(target error) bool {
	switch r {
	case 3:
		return target == syscall.ENETUNREACH
	case 4:
		return target == syscall.EHOSTUNREACH
	case 5:
		return target == syscall.ECONNREFUSED
	}
	return false
}

// ErrNoAuthMethod is the cause when a SOCKS5 proxy accepts none of the
// authentication methods that were offered (method 0xFF of RFC 1928).
var ErrNoAuthMethod = errors.New("dialer: the proxy accepts none of the authentication methods offered")

// ErrLogin is the cause when a SOCKS5 proxy refuses the user name and
// password.
var ErrLogin = errors.New("dialer: the proxy refused the user name and password")

// contextError is ctx's error if ctx has ended, otherwise err: a conn that
// was closed because of a cancel must not read "use of closed connection".
func contextError(ctx context.Context, err error) error {
	ended := ctx.Err()
	if deadline, ok := ctx.Deadline(); ok && ended == nil && !time.Now().Before(deadline) && timedOut(err) {
		ended = context.DeadlineExceeded // a socket's deadline may come before its context hears of it
	}
	if ended == nil || err != ended && errors.Is(err, ended) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ended) {
		return fmt.Errorf("%w: %w", ended, cause)
	}
	return ended
}

// printable keeps what a proxy or an address brings from breaking a log line.
func printable(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufeff' || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

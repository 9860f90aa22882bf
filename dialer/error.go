package dialer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http2"
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
		b.WriteString(sanitizeText(e.Addr))
		if e.Proxy != "" {
			b.WriteString(" through ")
		} else {
			b.WriteString(": ")
		}
	}
	if e.Proxy != "" {
		b.WriteString(sanitizeText(e.Proxy))
		b.WriteString(": ")
	}
	b.WriteString(string(e.Phase))
	b.WriteString(": ")
	b.WriteString(strings.TrimPrefix(fmt.Sprint(e.Err), "dialer: "))
	b.WriteString(e.portAdvice())
	return b.String()
}

// portAdvice is for the refusal that nearly everyone meets first: squid's
// default configuration allows CONNECT to port 443 alone, and API servers
// listen on 6443.
func (e *Error) portAdvice() string {
	_, port, err := net.SplitHostPort(e.Addr)
	if err != nil || port == "443" || e.Op != opHTTP || e.Status != http.StatusForbidden {
		return ""
	}
	return " (many proxies allow CONNECT to port 443 only by default: allow port " + sanitizeText(port) + " there)"
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
		s += " " + sanitizeText(reason)
	}
	if squid := r.Header.Get("X-Squid-Error"); squid != "" {
		s += " (X-Squid-Error: " + sanitizeText(squid) + ")"
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

// sanitizeText keeps what a proxy or an address brings from breaking a log line.
func sanitizeText(s string) string {
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

// Failures is the cause of a [Failover]'s error, and of what is made of one
// ([Fallback], [Resolve]): the Dialers that failed, in the order in which they did. The last one ended the dial. errors.Is and
// errors.As look into each; range over it for what one of them says.
type Failures []Failure

// Failure is the failure of one Dialer of a [Failover].
type Failure struct {
	// Member is the index in Failover.Dialers, or among the addresses.
	Member int
	// Err is what it returned.
	Err error
}

// Error says which members failed, counted from 1, and why.
func (f Failures) Error() string {
	var b strings.Builder
	for i, failure := range f {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString("member ")
		b.WriteString(strconv.Itoa(failure.Member + 1))
		b.WriteString(": ")
		b.WriteString(strings.TrimPrefix(failure.Err.Error(), "dialer: "))
	}
	return b.String()
}

// Unwrap returns the errors.
func (f Failures) Unwrap() []error {
	errs := make([]error, len(f))
	for i, failure := range f {
		errs[i] = failure.Err
	}
	return errs
}

// Timeout reports whether the last one ran out of time.
func (f Failures) Timeout() bool {
	return len(f) > 0 && timedOut(f[len(f)-1].Err)
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// ProxyFailed reports whether err, the error of a dial, is the fault of the
// proxy, so that another one may do better. It is what a [Failover] goes by:
//
//   - The proxy, or for [Direct] the target, could not be looked up or
//     connected to, or the TLS handshake with it failed.
//   - It gave no answer in time, or ended the connection or the stream of
//     HTTP/2 before it answered. What ends the authentication is an answer.
//   - A proxy before it in a chain could not reach it (502 to 504, HTTP/2's
//     CONNECT_ERROR, or the SOCKS5 replies 1 and 3 to 6).
//
// Every other answer is no fault: 403 and 407, a login that was refused, and
// from the proxy that was asked for the target 502 to 504, CONNECT_ERROR or a
// SOCKS5 reply, which are about the target. Neither is a mistake in the configuration or the
// address ([PhaseConfig]), an answer in another protocol, and a dial that was
// cancelled. Of an error that is not an [*Error] count timeouts, the end of a
// connection, and failures to dial, read and write.
func ProxyFailed(err error) bool {
	e := decisiveError(err)
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case e == nil:
		return isUnanswered(err)
	}
	// What a Forward says is a cause of this phase.
	if hop := decisiveError(e.Err); hop != nil && e.Phase == PhaseTCP {
		return ProxyFailed(hop) || isTargetUnreached(hop)
	}
	switch e.Phase {
	case PhaseDNS, PhaseTCP, PhaseTLS:
		// Without a proxy's name, it is the word of a dialer that does not know
		// the phase.
		return e.Proxy != "" || isUnanswered(e.Err)
	case PhaseConnect:
		return isUnanswered(e.Err)
	}
	return false
}

// isUnanswered reports whether err is the end of a connection rather than what
// was said over it.
func isUnanswered(err error) bool {
	var dns *net.DNSError
	return timedOut(err) || isConnFailure(err) || errors.As(err, &dns) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, errHTTP2NoStreams)
}

// isConnFailure looks for the failure of a system call or of TLS in err. Dialers
// of other packages also put what a proxy has answered into a net.OpError.
func isConnFailure(err error) bool {
	var op *net.OpError
	for errors.As(err, &op) {
		switch op.Op {
		case "dial", "read", "write", "remote error":
			return true
		}
		err = op.Err
	}
	return false
}

// isTargetUnreached reports whether e is the answer of a proxy that could not
// reach what it was asked for.
func isTargetUnreached(e *Error) bool {
	switch e.Op {
	case opHTTP:
		var reset *resetError
		if errors.As(e.Err, &reset) {
			return reset.stream.Code == http2.ErrCodeConnect
		}
		return http.StatusBadGateway <= e.Status && e.Status <= http.StatusGatewayTimeout
	case opSOCKS5:
		return isUnreachableReply(e.Status)
	}
	return false
}

// targetFailed reports whether err is about the target, whose failure is no
// reason to avoid the proxy for others: it could not be reached directly or
// through the proxy, or this process could not look it up.
func targetFailed(err error) bool {
	e := decisiveError(err)
	if e == nil {
		return false
	}
	host, _, _ := net.SplitHostPort(e.Addr)
	var dns *net.DNSError
	return e.Op == opDirect || isTargetUnreached(e) || errors.As(e.Err, &dns) && dns.Name == host
}

// decisiveError returns the error that ended a dial: of a Failover's members that
// of the last. nil if err is another dialer's.
func decisiveError(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		return nil
	}
	var failures Failures
	if e.Op == opFailover && errors.As(e.Err, &failures) {
		return decisiveError(failures[len(failures)-1].Err)
	}
	return e
}

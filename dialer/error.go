package dialer

import (
	"cmp"
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

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/printable"
)

// A Phase is a step of a dial.
type Phase string

// The phases of a dial, in their order. Each hop of a chain has its own.
const (
	// PhaseConfig is before anything is dialed: a field of the dialer, or the address
	// that was asked for, can't be used.
	PhaseConfig Phase = "config"
	// PhaseDNS is the lookup of a name by this process.
	PhaseDNS Phase = "dns"
	// PhaseTCP is the connection to the proxy, or to the target without a proxy.
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

// Error is the error of every dialer of this package. Neither its fields nor its text
// have credentials in them.
type Error struct {
	// Op is the kind of dialer: "direct", "http connect", "socks5", "resolve",
	// "failover" or "x/net/proxy". In [PhaseConfig] it may also be another part of
	// this package, such as "router", "swap" or "chain".
	Op string
	// Phase is the step that failed.
	Phase Phase
	// Proxy is the proxy as scheme://host:port, without user info. Empty if
	// there is none, or if its address can't be used.
	Proxy string
	// Addr is the address that was asked for.
	Addr string
	// Status is the answer of the proxy: an HTTP status code, or the code of a SOCKS5
	// reply (RFC 1928, section 6). Zero if the proxy gave no answer.
	Status int
	// Err is the cause: a [*Refusal], a [SOCKSReply], [Failures], the [*Error] of
	// another dialer, an error of package net or crypto/tls, an http2.StreamError or
	// http2.ConnectionError of golang.org/x/net, or the context's.
	Err error
}

const (
	maxText  = 200     // bytes of what a proxy or a configuration says
	maxCause = 2 << 10 // of all that a Failover's members have failed with
)

// Error returns the target, the proxy, the phase and the cause in one line that prints.
func (e *Error) Error() string {
	where := printable.Text(e.Addr, maxText)
	if where != "" && e.Proxy != "" {
		where += " through "
	}
	if where += printable.Text(e.Proxy, maxText); where != "" {
		where += ": "
	}
	return "dialer: " + where + string(e.Phase) + ": " + printable.Text(strings.TrimPrefix(fmt.Sprint(e.Err), "dialer: "), maxCause) + e.portAdvice()
}

// portAdvice returns a hint for a very common refusal: by default squid allows CONNECT
// only to port 443, and API servers listen on 6443.
func (e *Error) portAdvice() string {
	_, port, err := net.SplitHostPort(e.Addr)
	if err != nil || port == "443" || e.Op != opHTTP || e.Status != http.StatusForbidden {
		return ""
	}
	if r, ok := errors.AsType[*Refusal](e.Err); ok && r.Header.Get("Proxy-Status") != "" {
		return "" // the proxy says why (RFC 9209)
	}
	return " (many proxies allow CONNECT to port 443 only by default: allow port " + printable.Text(port, maxText) + " there)"
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether the dial ran out of time.
func (e *Error) Timeout() bool { return ended.TimedOut(e.Err) }

// Temporary implements [net.Error]. It always returns false.
func (e *Error) Temporary() bool { return false }

// Is makes errors.Is find [os.ErrDeadlineExceeded] in every timeout.
func (e *Error) Is(target error) bool {
	return target == os.ErrDeadlineExceeded && e.Timeout()
}

var _ net.Error = (*Error)(nil)

// Refusal is the answer of an HTTP proxy that did not connect. Where the proxy has
// repeated the credentials, or another long value of a header, that it was sent, it
// says *** in their place.
type Refusal struct {
	// StatusCode and Reason are from the status line. Reason may be empty.
	StatusCode int
	Reason     string
	// Header is the header of the answer. Nil if it could not be read.
	Header http.Header
	// Body is the beginning of the body, at most 4 KiB. It may be empty.
	Body []byte
}

// Error returns the status line, and squid's error code if there is one
// (X-Squid-Error). It does not return the body.
func (r *Refusal) Error() string {
	reason := cmp.Or(r.Reason, http.StatusText(r.StatusCode))
	s := "the proxy answered " + strconv.Itoa(r.StatusCode)
	if reason != "" {
		s += " " + printable.Text(reason, maxText)
	}
	if squid := r.Header.Get("X-Squid-Error"); squid != "" {
		s += " (X-Squid-Error: " + printable.Text(squid, maxText) + ")"
	}
	return s
}

// SOCKSReply is the code with which a SOCKS5 proxy refuses a request (RFC 1928,
// section 6). For codes 3 to 5 errors.Is finds the system's error too:
// syscall.ENETUNREACH, EHOSTUNREACH and ECONNREFUSED.
type SOCKSReply byte

// socksReplies are the meanings of the codes, and the system's errors.
var socksReplies = map[SOCKSReply]struct {
	text string
	is   error
}{
	1: {"general failure", nil},
	2: {"connection not allowed by ruleset", nil},
	3: {"network unreachable", syscall.ENETUNREACH},
	4: {"host unreachable", syscall.EHOSTUNREACH},
	5: {"connection refused", syscall.ECONNREFUSED},
	6: {"TTL expired", nil},
	7: {"command not supported", nil},
	8: {"address type not supported", nil},
}

// Error returns the code and its meaning.
func (r SOCKSReply) Error() string {
	return fmt.Sprintf("the proxy answered %d %s", byte(r), cmp.Or(socksReplies[r].text, "unassigned code"))
}

// Is reports whether target is the system's error for r.
func (r SOCKSReply) Is(target error) bool { return target == socksReplies[r].is }

// ErrNoAuthMethod is the cause when a SOCKS5 proxy accepts none of the
// authentication methods that were offered (method 0xFF of RFC 1928).
var ErrNoAuthMethod = errors.New("dialer: the proxy accepts none of the authentication methods offered")

// ErrLogin is the cause when a SOCKS5 proxy refuses the user name and
// password.
var ErrLogin = errors.New("dialer: the proxy refused the user name and password")

// LoginStatus is an [ErrLogin] with the status of a SOCKS5 proxy (RFC 1929, section 2),
// which is not zero. Proxies have numbers of their own. A tunnel's gateway says 2 if the
// ticket has ended, and 3 if it was revoked.
type LoginStatus byte

// Error returns the text of ErrLogin, with the status unless it is 1.
func (s LoginStatus) Error() string {
	if s == 1 {
		return ErrLogin.Error()
	}
	return fmt.Sprintf("%v (status %d)", ErrLogin, byte(s))
}

// Is reports whether target is ErrLogin.
func (LoginStatus) Is(target error) bool { return target == ErrLogin }

// Failures is the cause of the error of a dialer that tried several members: the
// Dialers of a [Failover], or the addresses of a name ([Resolve],
// SOCKS5.Resolver). It has the failures in the order in which they happened. The last
// one ended the dial. errors.Is and errors.As look into each of them.
type Failures []Failure

// Failure is the failure of one member.
type Failure struct {
	// Member is the index in Failover.Dialers, or of the address, from 0. It is not an
	// index of [Failures].
	Member int
	// Err is the error of the dial with this member.
	Err error
}

// Error says which members failed, counted from 1, and why.
func (f Failures) Error() string {
	texts := make([]string, len(f))
	for i, failure := range f {
		texts[i] = fmt.Sprintf("member %d: %s", failure.Member+1, strings.TrimPrefix(failure.Err.Error(), "dialer: "))
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors.
func (f Failures) Unwrap() []error {
	errs := make([]error, len(f))
	for i, failure := range f {
		errs[i] = failure.Err
	}
	return errs
}

// Timeout reports whether the last failure is a timeout.
func (f Failures) Timeout() bool {
	return len(f) > 0 && ended.TimedOut(f[len(f)-1].Err)
}

// ProxyFailed reports whether err, the error of a dial, is the fault of the proxy, so
// that another proxy may succeed. It is the default of [Failover]. It is true in these
// cases:
//
//   - The proxy, or for [Direct] the target, could not be looked up or connected to,
//     or the TLS handshake with it failed.
//   - The proxy gave no answer in time, or ended the connection or the HTTP/2 stream
//     before its answer. The end of an authentication counts as an answer.
//   - A proxy before it in a chain could not reach it (502 to 504, HTTP/2's
//     CONNECT_ERROR, or the SOCKS5 replies 1 and 3 to 6).
//
// It is false for every other answer, also if the time was over before all of it had
// come: 403, 407, and a login that was refused. The last
// proxy's 502 to 504, CONNECT_ERROR and SOCKS5 replies are about the target, so it is
// false for them too. It is also false for an error of [PhaseConfig], an answer in
// another protocol, a failure of the field Auth or Credentials, and a dial that was
// cancelled. Of an error that is not an [*Error] it is true for timeouts, the end of a
// connection, and failures to dial, read and write.
func ProxyFailed(err error) bool {
	e := decisiveError(err)
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case e == nil:
		return isUnanswered(err)
	}
	// The error of a Forward is the cause in this phase.
	if hop := decisiveError(e.Err); hop != nil && e.Phase == PhaseTCP {
		return ProxyFailed(hop) || isTargetUnreached(hop)
	}
	switch e.Phase {
	case PhaseDNS, PhaseTCP, PhaseTLS:
		// Without a proxy the error may be FromProxy's, which does not know the phase.
		return e.Proxy != "" || isUnanswered(e.Err)
	case PhaseAuth:
		return e.Status == 0 && ended.TimedOut(e.Err) && !errors.As(e.Err, new(credentialsError))
	case PhaseConnect:
		return e.Status == 0 && isUnanswered(e.Err)
	}
	return false
}

// credentialsError is an error of the field Auth or Credentials, so not the proxy's.
type credentialsError struct{ error }

func (e credentialsError) Unwrap() error { return e.error }

// isUnanswered reports whether err is a failure of a connection, and not an answer
// that came over it.
func isUnanswered(err error) bool {
	var dns *net.DNSError
	return ended.TimedOut(err) || isConnFailure(err) || errors.As(err, &dns) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, errHTTP2NoStreams)
}

// isConnFailure reports whether err has a failure of a system call or of TLS in it.
// The op is checked because dialers of other packages put a proxy's answer into a
// net.OpError too.
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

// isTargetUnreached reports whether e is a proxy's answer that it could not reach what
// it was asked for.
func isTargetUnreached(e *Error) bool {
	switch e.Op {
	case opHTTP:
		if reset, ok := errors.AsType[*resetError](e.Err); ok {
			return reset.stream.Code == http2.ErrCodeConnect
		}
		return http.StatusBadGateway <= e.Status && e.Status <= http.StatusGatewayTimeout
	case opSOCKS5:
		return isUnreachableReply(e.Status)
	}
	return false
}

// targetFailed reports whether err is about the target, and so no reason to avoid the
// proxy for other targets: the target could not be reached, directly or by the proxy,
// or this process could not look it up.
func targetFailed(err error) bool {
	e := decisiveError(err)
	if e == nil {
		return false
	}
	host, _, _ := net.SplitHostPort(e.Addr)
	var dns *net.DNSError
	return e.Op == opDirect || isTargetUnreached(e) || errors.As(e.Err, &dns) && dns.Name == host
}

// decisiveError returns the error that ended a dial, for a Failover that of its last
// member. It returns nil if err has no [*Error] in it.
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

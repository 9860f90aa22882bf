package dialer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/net/http2"
)

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
	e := decisive(err)
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case e == nil:
		return unanswered(err)
	}
	// What a Forward says is a cause of this phase.
	if hop := decisive(e.Err); hop != nil && e.Phase == PhaseTCP {
		return ProxyFailed(hop) || unreachedBeyond(hop)
	}
	switch e.Phase {
	case PhaseDNS, PhaseTCP, PhaseTLS:
		// Without a proxy's name, it is the word of a dialer that does not know
		// the phase.
		return e.Proxy != "" || unanswered(e.Err)
	case PhaseConnect:
		return unanswered(e.Err)
	}
	return false
}

// unanswered reports whether err is the end of a connection rather than what
// was said over it.
func unanswered(err error) bool {
	var dns *net.DNSError
	return timedOut(err) || brokenOff(err) || errors.As(err, &dns) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, errHTTP2Gone)
}

// brokenOff looks for the failure of a system call or of TLS in err. Dialers
// of other packages also put what a proxy has answered into a net.OpError.
func brokenOff(err error) bool {
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

// unreachedBeyond reports whether e is the answer of a proxy that could not
// reach what it was asked for.
func unreachedBeyond(e *Error) bool {
	switch e.Op {
	case opHTTP:
		var reset *resetError
		if errors.As(e.Err, &reset) {
			return reset.stream.Code == http2.ErrCodeConnect
		}
		return http.StatusBadGateway <= e.Status && e.Status <= http.StatusGatewayTimeout
	case opSOCKS5:
		return unreachable(e.Status)
	}
	return false
}

// targetFailed reports whether err is about the target, whose failure is no
// reason to avoid the proxy for others: it could not be reached directly or
// through the proxy, or this process could not look it up.
func targetFailed(err error) bool {
	e := decisive(err)
	if e == nil {
		return false
	}
	host, _, _ := net.SplitHostPort(e.Addr)
	var dns *net.DNSError
	return e.Op == opDirect || unreachedBeyond(e) || errors.As(e.Err, &dns) && dns.Name == host
}

// decisive returns the error that ended a dial: of a Failover's members that
// of the last. nil if err is another dialer's.
func decisive(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		return nil
	}
	var failures Failures
	if e.Op == opFailover && errors.As(e.Err, &failures) {
		return decisive(failures[len(failures)-1].Err)
	}
	return e
}

package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Code says why something failed. The numbers below 128 are those of SPEC.md; the
// others are never sent.
type Code uint32

const (
	// CodeInternal is a failure that has no code of its own.
	CodeInternal Code = 1

	// Codes of a dial: what the agent answers.

	// CodeDenied: the agent's policy does not allow the target.
	CodeDenied Code = 2
	// CodeRefused: the target refused the connection.
	CodeRefused Code = 3
	// CodeNotFound: the agent found no address for the target's name.
	CodeNotFound Code = 4
	// CodeTimeout: the target, or the other end, did not answer in time.
	CodeTimeout Code = 5
	// CodeUnreachable: the agent has no route to the target.
	CodeUnreachable Code = 6
	// CodeTooManyStreams: the session carries as many streams as it may.
	CodeTooManyStreams Code = 7
	// CodeDraining: the other end takes no new streams.
	CodeDraining Code = 8
	// CodeBadRequest: the other end could not read a message.
	CodeBadRequest Code = 9
	// CodeReset: the target reset the connection.
	CodeReset Code = 10
	// CodeBudget: too much waited for somebody who did not read. See [Budget].
	CodeBudget Code = 11

	// Codes of a session or an enrolment: what the server answers.

	// CodeVersion: the two ends have no version of the protocol in common.
	CodeVersion Code = 32
	// CodeCertificateExpired: the agent's certificate has expired.
	CodeCertificateExpired Code = 33
	// CodeRevoked: the agent was revoked, by itself or with all agents of its cluster.
	CodeRevoked Code = 34
	// CodeBadCertificate: the certificate is not one that the server's
	// authority issued to an agent.
	CodeBadCertificate Code = 35
	// CodeTokenUnknown: no authority of the server signed the token, it is not in the
	// Store (any more), or all invitations of its cluster were revoked. Or
	// Server.Enroller does not accept it.
	CodeTokenUnknown Code = 36
	// CodeTokenExpired: the token has expired.
	CodeTokenExpired Code = 37
	// CodeTokenUsed: other keys were enrolled with the token, as many as it is for.
	CodeTokenUsed Code = 38
	// CodeWrongCluster: the token or certificate is for another cluster.
	CodeWrongCluster Code = 39
	// CodeBadProof: the certificate signing request can't be read, or the other
	// end has not proven that it holds the key.
	CodeBadProof Code = 40
	// CodeHeld: the agent has a session with this server already, or with one of its
	// zone, and is looking for another server. It tries again; nothing is wrong.
	CodeHeld Code = 41

	// codeNotHere: the other server has no session of the cluster that takes
	// the dial. Only servers send it; the caller gets CodeNoAgent.
	codeNotHere Code = 42

	// Codes that are never sent.

	// CodeNoAgent: no agent of the cluster is connected.
	CodeNoAgent Code = 128
	// CodeForbidden: the server's policy does not allow the dial.
	CodeForbidden Code = 129
	// CodeLost: the carrier or the session ended.
	CodeLost Code = 130
	// CodeClosed: the Server or Agent was closed.
	CodeClosed Code = 131
	// CodePin: the server showed no certificate of the pinned authority.
	CodePin Code = 132
	// CodeConfig: a field of the configuration, or an argument, is wrong.
	CodeConfig Code = 133
	// CodeCanceled: the caller's context ended.
	CodeCanceled Code = 134
	// CodeNoIdentity: the agent has neither a certificate nor a token.
	CodeNoIdentity Code = 135
	// CodeServerCertificate: the server's certificate is not one that the
	// agent's authorities issued to a server.
	CodeServerCertificate Code = 136
)

// codes says of each code its name, what it means in words, where to look if a dial fails with
// it (zero: SideTunnel), and the error that errors.Is finds for it besides its cause.
var codes = map[Code]struct {
	name, text string
	side       Side
	is         error
}{
	CodeInternal:           {name: "internal", text: "internal error"},
	CodeDenied:             {name: "denied", text: "the agent's policy does not allow the target", side: SidePolicy, is: syscall.EACCES},
	CodeRefused:            {name: "refused", text: "the target refused the connection", side: SideTarget, is: syscall.ECONNREFUSED},
	CodeNotFound:           {name: "not_found", text: "the agent finds no address for the target's name", side: SideTarget},
	CodeTimeout:            {name: "timeout", text: "no answer in time", side: SideTarget, is: os.ErrDeadlineExceeded},
	CodeUnreachable:        {name: "unreachable", text: "the agent has no route to the target", side: SideTarget, is: syscall.EHOSTUNREACH},
	CodeTooManyStreams:     {name: "too_many_streams", text: "too many streams"},
	CodeDraining:           {name: "draining", text: "the other side is draining"},
	CodeBadRequest:         {name: "bad_request", text: "malformed or unknown message"},
	CodeReset:              {name: "reset", text: "the target reset the connection", side: SideTarget, is: syscall.ECONNRESET},
	CodeBudget:             {name: "budget", text: "too much waits that nobody reads", is: syscall.ECONNRESET},
	CodeVersion:            {name: "version", text: "no version of the protocol in common"},
	CodeCertificateExpired: {name: "certificate_expired", text: "the agent's certificate has expired; it needs a new token, or a new certificate"},
	CodeRevoked:            {name: "revoked", text: "the agent was revoked"},
	CodeBadCertificate:     {name: "bad_certificate", text: "the certificate is not one of an agent of this server"},
	CodeTokenUnknown:       {name: "token_unknown", text: "unknown token"},
	CodeTokenExpired:       {name: "token_expired", text: "the token has expired"},
	CodeTokenUsed:          {name: "token_used", text: "the token was used by another agent"},
	CodeWrongCluster:       {name: "wrong_cluster", text: "the token or certificate belongs to another cluster"},
	CodeBadProof:           {name: "bad_proof", text: "the certificate signing request does not prove its key"},
	CodeHeld:               {name: "held", text: "the agent has a session with this server, or with one of its zone, already"},
	codeNotHere:            {text: "no agent of the cluster is connected here"},
	CodeNoAgent:            {name: "no_agent", text: "no agent is connected"},
	CodeForbidden:          {name: "forbidden", text: "the server's policy does not allow the dial", side: SidePolicy, is: syscall.EACCES},
	CodeLost:               {name: "lost", text: "the session was lost", is: syscall.ECONNRESET},
	CodeClosed:             {name: "closed", text: "closed", is: net.ErrClosed},
	CodePin:                {name: "pin", text: "the server's certificate is not of the pinned authority"},
	CodeConfig:             {name: "config", text: "configuration", side: SideCaller},
	CodeCanceled:           {name: "canceled", text: "canceled", side: SideCaller},
	CodeNoIdentity:         {name: "no_identity", text: "no certificate and no token"},
	CodeServerCertificate:  {name: "server_certificate", text: "the server's certificate is not trusted"},
}

// String returns the code in words.
func (c Code) String() string { return cmp.Or(codes[c].text, fmt.Sprintf("code %d", uint32(c))) }

// Name returns the code as one word, such as too_many_streams, for metrics; empty if c is
// none of the codes above.
func (c Code) Name() string { return codes[c].name }

// Side says where to look for the cause of a dial that failed with c.
func (c Code) Side() Side { return cmp.Or(codes[c].side, SideTunnel) }

// Error is the error of a dial, a session, an enrolment or a configuration. Its
// text never contains a token or a key, and is one line that prints, whatever a peer says.
type Error struct {
	// Op is "dial", "connect", "enroll", "renew", "push", "status", "serve" or
	// "config".
	Op string
	// Cluster is the cluster in question; empty if none is known.
	Cluster string
	// Addr is the target of a dial, or the server's address. Empty if it is about neither.
	Addr string
	Code Code
	// Err is the cause; nil if Code says it all.
	Err error
}

// Error returns "tunnel: dial prod/a kubernetes.default.svc:443: cause".
func (e *Error) Error() string {
	about := slices.DeleteFunc([]string{e.Op, e.Cluster, e.Addr}, func(s string) bool { return s == "" })
	return "tunnel: " + strings.Join(about, " ") + ": " + e.reasonText()
}

// reasonText returns the code and the cause, in words.
func (e *Error) reasonText() string {
	switch {
	case e.Err == nil:
		return e.Code.String()
	case e.Code == CodeConfig: // this side's own, of any length
		text := e.Err.Error()
		return printable.Text(text, len(text))
	case e.Code == CodeInternal:
		return causeText(e.Err)
	}
	if lost, ok := errors.AsType[*mux.LostError](e.Err); ok && e.Code == CodeLost { // it says it in full
		return lost.Error()
	}
	cause := e.Err
	if op, ok := cause.(*net.OpError); ok && op.Net == "tunnel" { // of a stream, which is no matter of the reader
		cause = op.Err
	}
	if e.Code == CodeLost && (e.Op == "connect" || e.Op == "enroll") {
		return "no session: " + causeText(cause)
	}
	return e.Code.String() + ": " + causeText(cause)
}

// causeText returns the text of an error that may quote a peer, a certificate or a proxy.
func causeText(err error) string { return printable.Text(err.Error(), 1<<10) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error that stands for the code: CodeRefused is
// syscall.ECONNREFUSED, CodeTimeout os.ErrDeadlineExceeded and context.DeadlineExceeded,
// CodeUnreachable EHOSTUNREACH, CodeLost and CodeReset ECONNRESET, CodeDenied and
// CodeForbidden EACCES, CodeClosed net.ErrClosed.
func (e *Error) Is(target error) bool {
	if e.Code == CodeTimeout && target == context.DeadlineExceeded {
		return true // the agent has the caller's deadline, and may tell of it first
	}
	err := codes[e.Code].is
	return err != nil && err == target
}

// As finds a [*net.DNSError] in a CodeNotFound, as net.Dialer's error for such a name has one.
func (e *Error) As(target any) bool {
	dns, ok := target.(**net.DNSError)
	if ok = ok && e.Code == CodeNotFound; ok {
		host, _, _ := net.SplitHostPort(e.Addr)
		*dns = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return ok
}

// Timeout reports whether the failure is a timeout.
func (e *Error) Timeout() bool {
	return e.Code == CodeTimeout || ended.TimedOut(e.Err)
}

// Unavailable reports whether another attempt may succeed soon: no agent is
// connected, or it takes no more streams. Proxies answer 503.
func (e *Error) Unavailable() bool {
	return e.Code == CodeNoAgent || e.Code == CodeDraining || e.Code == CodeTooManyStreams
}

// Temporary is deprecated in net.Error, which Error implements.
func (e *Error) Temporary() bool { return e.Timeout() }

var _ net.Error = (*Error)(nil)

// contextCode returns the code for the error of a context.
func contextCode(err error) Code {
	if errors.Is(err, context.DeadlineExceeded) {
		return CodeTimeout
	}
	return CodeCanceled
}

func codeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

func configError(format string, args ...any) *Error {
	return &Error{Op: "config", Code: CodeConfig, Err: fmt.Errorf(format, args...)}
}

// refusalMessage returns the message that tells the other end why it is refused.
// The text must not contain what the other end should not know.
func refusalMessage(kind wire.Kind, code Code, text string) *wire.Message {
	return wire.New(kind).AddUint(wire.TagCode, uint64(code)).AddString(wire.TagText, text)
}

// messageCode returns the code in a message; zero is success.
func messageCode(m *wire.Message) Code { return codeFromWire(m.Uint(wire.TagCode)) }

// codeFromWire returns CodeInternal for the codes that are never sent.
func codeFromWire(n uint64) Code {
	if n >= uint64(CodeNoAgent) {
		return CodeInternal
	}
	return Code(n)
}

// messageError returns the error in a message; nil if it reports success.
func messageError(m *wire.Message, op, cluster, addr string) error {
	code := messageCode(m)
	if code == 0 {
		return nil
	}
	e := &Error{Op: op, Cluster: cluster, Addr: addr, Code: code}
	if text := m.Text(wire.TagText); text != "" && text != code.String() {
		e.Err = errors.New(printable.Text(text, printable.Most))
	}
	return e
}

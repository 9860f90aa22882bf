package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"

	"github.com/causewayproject/causeway/internal/admission"
)

// RFC 1928 and RFC 1929.
const (
	socksVersion = 5
	loginVersion = 1

	methodNone  = 0
	methodLogin = 2

	commandConnect = 1

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4

	recordTLS = 22 // the first byte of a client that speaks TLS

	replySucceeded          = 0
	replyFailed             = 1
	replyForbidden          = 2
	replyNetworkUnreachable = 3
	replyHostUnreachable    = 4
	replyRefused            = 5
	replyExpired            = 6
	replyCommand            = 7
	replyAddressType        = 8
)

// socksError is why a client is refused, and the reply that says so.
type socksError struct {
	reply string
	text  string
	cause error // what Hooks have seen
}

func (e *socksError) Error() string { return e.text }
func (e *socksError) Unwrap() error { return e.cause }

var (
	errSOCKS4      = &socksError{reply: "\x00\x5b\x00\x00\x00\x00\x00\x00", text: "the client speaks SOCKS4, SOCKS5 is needed"}
	errWithoutTLS  = &socksError{reply: noMethod, text: "the client speaks plain SOCKS5, this door has TLS"}
	errNotHTTP     = &socksError{reply: notHTTP, text: "the client speaks HTTP, this is a SOCKS5 proxy"}
	errNotPlain    = &socksError{reply: alertRecord(alertUnexpectedMessage), text: "the client speaks TLS, this door is plain"}
	errNotSOCKS    = &socksError{text: "the client does not speak SOCKS5"}
	errNoMethod    = &socksError{reply: noMethod, text: "the client offers neither a user name and password nor no authentication"}
	errLogin       = &socksError{reply: loginWrong, text: "the message with user name and password is malformed"}
	errNotRequest  = &socksError{reply: socksReply(replyFailed), text: "the request is not one of SOCKS5"}
	errCommand     = &socksError{reply: socksReply(replyCommand), text: "the client asks for another command than CONNECT"}
	errAddressType = &socksError{reply: socksReply(replyAddressType), text: "the target's address type is unknown"}
	errTarget      = &socksError{reply: socksReply(replyFailed), text: "the target has no name, address or port"}
)

const (
	noMethod   = "\x05\xff"
	loginRight = "\x01\x00"
	loginWrong = "\x01\x01"
	// Any status except 0 is a failure (RFC 1929, 2). These two are our own.
	loginEnded   = "\x01\x02"
	loginRevoked = "\x01\x03"

	// notHTTP answers a client that takes the door for an HTTP proxy.
	notHTTP = "HTTP/1.1 400 Bad Request: this is a SOCKS5 proxy\r\n" +
		"Content-Type: text/plain\r\nContent-Length: 24\r\nConnection: close\r\n\r\nThis is a SOCKS5 proxy.\n"
)

// socksReply returns a reply with the zero address as BND.ADDR: the address that the
// gateway dials from is not shown to clients.
func socksReply(code byte) string {
	return string([]byte{socksVersion, code, 0, addressIPv4, 0, 0, 0, 0, 0, 0})
}

var socks5Protocol = protocol{
	door: DoorSOCKS5, negotiate: negotiateSOCKS5, connected: func(net.Conn) string { return socksReply(replySucceeded) }, refusal: socksRefusal,
}

// negotiateSOCKS5 negotiates and reads the request.
func negotiateSOCKS5(ctx context.Context, c *clientConn) (early []byte, err error) {
	if err := c.startTLS(); err != nil {
		if header, ok := errors.AsType[tls.RecordHeaderError](err); ok && header.RecordHeader[0] == socksVersion {
			err = errWithoutTLS
		}
		return nil, err
	}
	c.awaitClient(admission.Silent)
	s := &socksNegotiation{clientConn: c, buf: make([]byte, 0, socksBuffer)}
	address, err := s.readRequest(ctx)
	if err != nil {
		return nil, err
	}
	c.early = bytes.Clone(s.buf[s.used:])
	return nil, c.request.route(ctx, address)
}

// socksBuffer has room for the longest message, that of RFC 1929.
const socksBuffer = 768

// socksNegotiation is what is said before the reply.
type socksNegotiation struct {
	*clientConn
	buf  []byte // all that was read
	used int    // bytes of buf that are parsed
}

func socksRefusal(err error) string {
	var (
		bad *socksError
		e   *Error
	)
	switch {
	case errors.As(err, &bad):
		return bad.reply
	case errors.Is(err, errShutdown): // wherever the client is, it reads a failure in this
		return socksReply(replyFailed)
	case errors.Is(err, admission.ErrCrowded):
		return noMethod
	case !errors.As(err, &e), e.Phase == PhaseHandshake:
		return "" // the client said nothing, or not all
	}
	return socksReply(reasonOf(e.Err).socks)
}

// readRequest authenticates the client, and returns the target that it asks for. The
// error is a *socksError, or that of a read or a write.
func (s *socksNegotiation) readRequest(ctx context.Context) (address string, err error) {
	methods, err := s.readMethods()
	if err != nil {
		return "", err
	}
	// A client that offers a password is asked for it, even if it may do without.
	switch {
	case bytes.IndexByte(methods, methodLogin) >= 0:
		err = s.readPassword(ctx)
	case bytes.IndexByte(methods, methodNone) >= 0:
		err = s.authenticate(ctx, "", "", noMethod, "\x05\x00")
	default:
		err = errNoMethod
	}
	if err != nil {
		return "", err
	}
	return s.readTarget()
}

// readMethods returns the methods that the client offers.
func (s *socksNegotiation) readMethods() ([]byte, error) {
	b, err := s.readBytes(1)
	if err != nil {
		return nil, err
	}
	switch version := b[0]; {
	case version == socksVersion:
		return s.readCounted()
	case version == 4:
		return nil, errSOCKS4
	case version == recordTLS:
		return nil, errNotPlain
	case 'A' <= version && version <= 'Z':
		return nil, errNotHTTP
	}
	return nil, errNotSOCKS
}

// readPassword asks for user name and password (RFC 1929), and authenticates them.
func (s *socksNegotiation) readPassword(ctx context.Context) error {
	if _, err := io.WriteString(s.conn, "\x05\x02"); err != nil {
		return err
	}
	s.awaitClient(admission.Greeting)
	b, err := s.readBytes(1)
	if err != nil {
		return err
	}
	if b[0] != loginVersion {
		return errLogin
	}
	if b, err = s.readCounted(); err != nil {
		return err
	}
	user := string(b)
	if b, err = s.readCounted(); err != nil {
		return err
	}
	password := string(b)
	clear(b)
	return s.authenticate(ctx, user, password, loginWrong, loginRight)
}

// authenticate calls Authenticate, and sends right if the client is let in. Otherwise
// wrong is the reply of the error.
func (s *socksNegotiation) authenticate(ctx context.Context, user, password, wrong, right string) error {
	c := Credentials{
		Door: DoorSOCKS5, User: user, Password: password,
		Certificates: s.verifiedCertificates(), ServerName: s.tls.ServerName, Remote: s.raw.RemoteAddr(),
	}
	s.beginAuthenticate()
	err := s.request.authenticate(ctx, c)
	if err != nil {
		s.endAuthenticate(admission.Greeting)
		if ticket, ok := errors.AsType[*TicketError](err); ok && wrong == loginWrong {
			wrong = loginEnded
			if ticket.Revoked {
				wrong = loginRevoked
			}
		}
		return &socksError{reply: wrong, text: "the client is not let in", cause: err}
	}
	s.endAuthenticate(admission.Proven)
	_, err = io.WriteString(s.conn, right)
	return err
}

// readTarget reads the request.
func (s *socksNegotiation) readTarget() (string, error) {
	head, err := s.readBytes(4)
	if err != nil {
		return "", err
	}
	version, command, kind := head[0], head[1], head[3]
	if version != socksVersion {
		return "", errNotRequest
	}
	host, err := s.readHost(kind)
	if err != nil {
		return "", err
	}
	b, err := s.readBytes(2)
	if err != nil {
		return "", err
	}
	port := binary.BigEndian.Uint16(b)
	switch {
	case command != commandConnect:
		return "", errCommand
	case host == "" || port == 0:
		return "", errTarget
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
}

// readHost reads the target's address. It is empty if that is no host name.
func (s *socksNegotiation) readHost(kind byte) (string, error) {
	var b []byte
	var err error
	switch kind {
	case addressIPv4:
		b, err = s.readBytes(4)
	case addressIPv6:
		b, err = s.readBytes(16)
	case addressName:
		if b, err = s.readCounted(); err != nil || !isHostName(string(b)) {
			return "", err
		}
		return string(b), nil
	default:
		return "", errAddressType
	}
	if err != nil {
		return "", err
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip.Unmap().String(), nil
}

// readBytes returns the next n bytes. They are valid until the next call.
func (s *socksNegotiation) readBytes(n int) ([]byte, error) {
	if s.used+n > cap(s.buf) {
		s.buf = s.buf[:copy(s.buf, s.buf[s.used:])]
		s.used = 0
	}
	for len(s.buf)-s.used < n {
		m, err := s.conn.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+m]
		if err != nil && len(s.buf)-s.used < n {
			switch {
			case err == io.EOF && len(s.buf) == 0:
				err = errSilent
			case err == io.EOF:
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	b := s.buf[s.used : s.used+n]
	s.used += n
	return b, nil
}

// readCounted reads a length of one byte, and returns that many bytes.
func (s *socksNegotiation) readCounted() ([]byte, error) {
	n, err := s.readBytes(1)
	if err != nil {
		return nil, err
	}
	return s.readBytes(int(n[0]))
}

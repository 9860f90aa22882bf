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
	"syscall"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
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

// badSOCKS is why a client is not served, and the last word to it.
type badSOCKS struct {
	word string
	text string
	told error // what Hooks have seen
}

func (e *badSOCKS) Error() string { return e.text }
func (e *badSOCKS) Unwrap() error { return e.told }

var (
	errSOCKS4     = &badSOCKS{word: "\x00\x5b\x00\x00\x00\x00\x00\x00", text: "the client speaks SOCKS4, SOCKS5 is needed"}
	errWithoutTLS = &badSOCKS{word: noMethod, text: "the client speaks plain SOCKS5, this door has TLS"}
	errNotHTTP    = &badSOCKS{word: notHTTP, text: "the client speaks HTTP, this is a SOCKS5 proxy"}
	errNotPlain   = &badSOCKS{word: alertRecord(alertUnexpectedMessage), text: "the client speaks TLS, this door is plain"}
	errNotSOCKS   = &badSOCKS{text: "the client does not speak SOCKS5"}
	errMethod5    = &badSOCKS{word: noMethod, text: "the client offers neither a user name and password nor to do without"}
	errLogin      = &badSOCKS{word: loginWrong, text: "the message with user name and password is malformed"}
	errVersion5   = &badSOCKS{word: socksReply(replyFailed), text: "the request is not one of SOCKS5"}
	errCommand    = &badSOCKS{word: socksReply(replyCommand), text: "the client asks for something else than CONNECT"}
	errKind       = &badSOCKS{word: socksReply(replyAddressType), text: "the target's address type is unknown"}
	errTarget     = &badSOCKS{word: socksReply(replyFailed), text: "the target has no name, address or port"}
)

const (
	noMethod   = "\x05\xff"
	loginRight = "\x01\x00"
	loginWrong = "\x01\x01"
	// RFC 1929 has no other failures: any status but 0 is one.
	loginEnded   = "\x01\x02"
	loginRevoked = "\x01\x03"

	// notHTTP is for who takes the door for an HTTP proxy.
	notHTTP = "HTTP/1.1 400 Bad Request: this is a SOCKS5 proxy\r\n" +
		"Content-Type: text/plain\r\nContent-Length: 24\r\nConnection: close\r\n\r\nThis is a SOCKS5 proxy.\n"
)

// socksReply has the zero address: what is bound is nobody's business.
func socksReply(code byte) string {
	return string([]byte{socksVersion, code, 0, addressIPv4, 0, 0, 0, 0, 0, 0})
}

// socks5 serves one connection.
func (g *Gateway) socks5(gr *group.Group, conn net.Conn) { g.speak(&speaksSOCKS5, gr, conn) }

var speaksSOCKS5 = protocol{
	door: DoorSOCKS5, hear: hearSOCKS5, connected: socksReply(replySucceeded), sorry: socksWord,
}

// hearSOCKS5 negotiates and reads the request.
func hearSOCKS5(ctx context.Context, c *caller) (early []byte, err error) {
	if err := c.startTLS(); err != nil {
		var header tls.RecordHeaderError
		if errors.As(err, &header) && header.RecordHeader[0] == socksVersion {
			err = errWithoutTLS
		}
		return nil, err
	}
	c.awaitClient(admission.Silent)
	s := &socksTalk{caller: c, buf: make([]byte, 0, socksBuffer)}
	address, err := s.request(ctx)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(s.buf[s.used:]), c.v.route(ctx, address)
}

// socksBuffer has room for the longest message, that of RFC 1929.
const socksBuffer = 768

// socksTalk is all that is said before the reply.
type socksTalk struct {
	*caller
	buf  []byte // has been read
	used int    // of it
}

// socksWord is the last one to a client for an error.
func socksWord(err error) string {
	var (
		bad *badSOCKS
		e   *Error
	)
	switch {
	case errors.As(err, &bad):
		return bad.word
	case err == errShutdown: // wherever the client is, it reads a failure in this
		return socksReply(replyFailed)
	case !errors.As(err, &e):
		return "" // nothing was said, or not all
	case errors.Is(err, admission.ErrCrowded):
		return noMethod
	}
	return socksReply(socksCode(e))
}

// request lets the client show who it is, and returns the target that it asks
// for. The error is a *badSOCKS, or that of a read or a write.
func (s *socksTalk) request(ctx context.Context) (address string, err error) {
	methods, err := s.greeting()
	if err != nil {
		return "", err
	}
	// A client that can show who it is should, even if it need not.
	switch {
	case bytes.IndexByte(methods, methodLogin) >= 0:
		err = s.login(ctx)
	case bytes.IndexByte(methods, methodNone) >= 0:
		err = s.identify(ctx, "", "", noMethod, "\x05\x00")
	default:
		err = errMethod5
	}
	if err != nil {
		return "", err
	}
	return s.target()
}

// greeting returns the methods that the client offers.
func (s *socksTalk) greeting() ([]byte, error) {
	b, err := s.need(1)
	if err != nil {
		return nil, err
	}
	switch version := b[0]; {
	case version == socksVersion:
		return s.counted()
	case version == 4:
		return nil, errSOCKS4
	case version == recordHandshake:
		return nil, errNotPlain
	case 'A' <= version && version <= 'Z':
		return nil, errNotHTTP
	}
	return nil, errNotSOCKS
}

// login asks for user name and password (RFC 1929).
func (s *socksTalk) login(ctx context.Context) error {
	if _, err := io.WriteString(s.conn, "\x05\x02"); err != nil {
		return err
	}
	s.awaitClient(admission.Greeting)
	b, err := s.need(1)
	if err != nil {
		return err
	}
	if b[0] != loginVersion {
		return errLogin
	}
	if b, err = s.counted(); err != nil {
		return err
	}
	user := string(b)
	if b, err = s.counted(); err != nil {
		return err
	}
	password := string(b)
	clear(b)
	return s.identify(ctx, user, password, loginWrong, loginRight)
}

// identify asks Authenticate, and answers the client if it is let in. wrong is
// what to answer otherwise.
func (s *socksTalk) identify(ctx context.Context, user, password, wrong, right string) error {
	c := Credentials{
		Door: DoorSOCKS5, User: user, Password: password,
		Certificates: s.certificates(), ServerName: s.tls.ServerName, Remote: s.raw.RemoteAddr(),
	}
	s.beginAsking()
	err := s.v.authenticate(ctx, c)
	if err != nil {
		s.endAsking(admission.Greeting)
		if ticket := (*TicketError)(nil); errors.As(err, &ticket) && wrong == loginWrong {
			wrong = loginEnded
			if ticket.Revoked {
				wrong = loginRevoked
			}
		}
		return &badSOCKS{word: wrong, text: "the client is not let in", told: err}
	}
	s.endAsking(admission.Proven)
	_, err = io.WriteString(s.conn, right)
	return err
}

// target reads the request.
func (s *socksTalk) target() (string, error) {
	head, err := s.need(4)
	if err != nil {
		return "", err
	}
	version, command, kind := head[0], head[1], head[3]
	if version != socksVersion {
		return "", errVersion5
	}
	host, err := s.host(kind)
	if err != nil {
		return "", err
	}
	b, err := s.need(2)
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

// host reads the target's address; it is empty if there is none to be had.
func (s *socksTalk) host(kind byte) (string, error) {
	var b []byte
	var err error
	switch kind {
	case addressIPv4:
		b, err = s.need(4)
	case addressIPv6:
		b, err = s.need(16)
	case addressName:
		if b, err = s.counted(); err != nil || !isHost(string(b)) {
			return "", err
		}
		return string(b), nil
	default:
		return "", errKind
	}
	if err != nil {
		return "", err
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip.Unmap().String(), nil
}

// need reads until there are n bytes that were not used, and uses them. They
// are valid until the next call.
func (s *socksTalk) need(n int) ([]byte, error) {
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

// counted reads a byte and then as many as it says.
func (s *socksTalk) counted() ([]byte, error) {
	n, err := s.need(1)
	if err != nil {
		return nil, err
	}
	return s.need(int(n[0]))
}

// socksCode is the reply to a request that failed.
func socksCode(e *Error) byte {
	switch r := reasonOf(e.Err); {
	case e.Phase == PhaseLimit:
		return replyFailed
	case r == reasonForbidden:
		return replyForbidden
	case r == reasonUnavailable, r == reasonUnreachable && errors.Is(e.Err, syscall.ENETUNREACH):
		return replyNetworkUnreachable
	case r == reasonUnreachable, r == reasonNotFound:
		return replyHostUnreachable
	case r == reasonRefused:
		return replyRefused
	case r == reasonTimeout:
		return replyExpired
	}
	return replyFailed
}

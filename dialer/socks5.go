package dialer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/causewayproject/causeway/internal/ended"
)

// SOCKS5 dials through a SOCKS5 proxy (RFC 1928), without authentication or with a
// user name and password (RFC 1929). It is safe for concurrent use once its fields are
// set.
//
// The connection that it returns is the one that Forward returned, and its RemoteAddr
// is the proxy's.
type SOCKS5 struct {
	// Addr is the proxy's host:port, or unix:/path of its socket. Required. A URL and
	// user info are errors: for credentials see Credentials.
	Addr string
	// Credentials authenticate to the proxy if it asks for them. User name and
	// password have at most 255 bytes each, and the name is not empty. If nil, only
	// proxies without authentication can be used.
	Credentials Credentials
	// Resolver looks names up in this process, and the proxy gets an address (socks5://
	// for curl). If nil, the proxy gets the name and looks it up (socks5h://).
	//
	// Several addresses are tried as [Resolve] does, each on a connection of its own,
	// while the proxy can't connect to one. A failure of the proxy itself, such as a
	// refused password, ends the dial. A Resolve in front of the proxy would go on.
	// Also, Timeout bounds the lookup and all addresses together.
	Resolver Resolver
	// Forward dials the proxy. If nil, it is Direct{}.
	Forward Dialer
	// Timeout bounds one DialContext, Forward included. If zero, it is 30 seconds; if
	// negative, only the context bounds the dial.
	Timeout time.Duration
}

// DialContext asks the proxy to connect to address, a host:port. network is "tcp",
// "tcp4" or "tcp6". The error is an [*Error]; nothing is left open then. If a Resolver
// has found several addresses, errors.As finds [Failures] in the error, with a member
// for each address that was tried.
func (d *SOCKS5) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	s := &socksDial{SOCKS5: d, proxyDial: proxyDial{
		op: opSOCKS5, scheme: "socks5", dialer: d, configured: d.Addr, forward: d.Forward,
		trace: contextTrace(ctx), address: address, began: time.Now(),
	}}
	err := s.prepare(ctx, network)
	if err == nil && len(s.target.host) > 255 {
		err = fmt.Errorf("the host of the address has %d bytes, SOCKS5 carries 255", len(s.target.host))
	}
	if err != nil {
		return nil, s.newError(ctx, PhaseConfig, err)
	}
	ctx, cancel := withTimeout(ctx, d.Timeout)
	defer cancel()
	if err := s.getLogin(ctx); err != nil {
		return nil, err
	}
	if d.Resolver == nil || s.target.addr.IsValid() {
		return s.dial(ctx)
	}
	return s.dialResolved(ctx, network)
}

// socksDial is one call of DialContext.
type socksDial struct {
	*SOCKS5
	proxyDial
	username, password string
}

// getLogin gets the credentials, and checks before anything is dialed that the
// protocol can carry them.
func (s *socksDial) getLogin(ctx context.Context) (err error) {
	if s.Credentials == nil {
		return nil
	}
	if s.username, s.password, err = s.Credentials(ctx); err == nil {
		err = checkLogin(s.username, s.password)
	}
	if err != nil {
		return s.newError(ctx, PhaseAuth, credentialsError{err})
	}
	return nil
}

// dialResolved looks the target's name up and dials its addresses.
func (s *socksDial) dialResolved(ctx context.Context, network string) (net.Conn, error) {
	// The lookup may use this proxy, but must not need another lookup for it.
	lookedUp := &s.SOCKS5.Resolver
	if isLooping(ctx, lookedUp) {
		return nil, s.newError(ctx, PhaseConfig, ErrLoop)
	}
	span := s.trace.startPhase(PhaseDNS, "", s.target.authority)
	addrs, err := lookupAddrs(withOuterDial(ctx, lookedUp), s.Resolver, network, s.target.host)
	span.endPhase(err)
	if err != nil {
		return nil, s.newError(ctx, PhaseDNS, err)
	}
	if len(addrs) == 1 {
		s.target = addrTarget(addrs[0].WithZone(""), s.target.port)
		return s.dial(ctx)
	}
	conn, err := dialAddrs(ctx, network, s.address, addrs, isAddrFailure, func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
		own := *s
		own.target = addrTarget(addr.WithZone(""), s.target.port)
		own.address = own.target.authority
		return own.dial(ctx)
	})
	return conn, s.addrsError(ctx, err)
}

// isAddrFailure reports whether the proxy works and has not connected to the address,
// so that it may connect to another one.
func isAddrFailure(err error) bool {
	e, ok := err.(*Error)
	return ok && e.Phase == PhaseConnect
}

// addrsError returns the error of this dialer for one of dialAddrs: with what the
// proxy answered for each address, or the failure of the proxy itself.
func (s *socksDial) addrsError(ctx context.Context, err error) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	if last := decisiveError(e); last != nil && last.Phase != PhaseConnect {
		e = last
	}
	return &Error{Op: opSOCKS5, Phase: e.Phase, Proxy: s.displayName(), Addr: s.address, Status: e.Status, Err: ended.Error(ctx, e.Err)}
}

// isUnreachableReply reports whether a reply says that the proxy could not reach what
// it was asked for.
func isUnreachableReply(status int) bool {
	return status == 1 || 3 <= status && status <= 6
}

func (s *socksDial) dial(ctx context.Context) (net.Conn, error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	err = handshake(ctx, conn, func() error {
		method, err := s.chooseMethod(ctx, conn)
		if err == nil && method == methodPassword {
			err = s.sendLogin(ctx, conn)
		}
		if err != nil {
			return err
		}
		return s.sendConnect(ctx, conn)
	})
	if err != nil {
		return nil, s.newError(ctx, PhaseConnect, err)
	}
	return conn, nil
}

const (
	socksVersion    = 5
	loginVersion    = 1
	methodNone      = 0
	methodPassword  = 2
	methodNoneFits  = 0xff
	commandConnect  = 1
	addressIPv4     = 1
	addressName     = 3
	addressIPv6     = 4
	replySucceeded  = 0
	loginSuccessful = 0
)

// chooseMethod offers the authentication methods and returns the proxy's choice.
func (s *socksDial) chooseMethod(ctx context.Context, conn net.Conn) (method byte, err error) {
	span := s.startPhase(PhaseConnect, s.Addr)
	defer func() { span.endPhase(err) }()
	offer := []byte{socksVersion, 1, methodNone}
	if s.Credentials != nil {
		offer = []byte{socksVersion, 2, methodNone, methodPassword}
	}
	var answer [2]byte
	if err := exchange(conn, offer, answer[:]); err != nil {
		return 0, s.newError(ctx, PhaseConnect, err)
	}
	switch method = answer[1]; {
	case answer[0] != socksVersion:
		return 0, s.newError(ctx, PhaseConnect, notSOCKS5(answer[0]))
	case method == methodNone, method == methodPassword && s.Credentials != nil:
		return method, nil
	case method == methodNoneFits:
		offered := "no authentication, user name and password"
		if s.Credentials == nil {
			offered = "no authentication; set Credentials if it wants a user name"
		}
		err = fmt.Errorf("%w (%s)", ErrNoAuthMethod, offered)
	default:
		err = fmt.Errorf("the proxy chose authentication method %d, which was not offered", method)
	}
	return 0, s.newError(ctx, PhaseAuth, err)
}

func notSOCKS5(version byte) error {
	switch version {
	case 0, 4:
		return errors.New("the proxy speaks SOCKS4, SOCKS5 is needed")
	case 'H':
		return errors.New("the answer is HTTP: the proxy is not a SOCKS5 proxy, use HTTPConnect or http://")
	}
	return fmt.Errorf("the answer has version %d, not 5: the proxy is not a SOCKS5 proxy", version)
}

func (s *socksDial) sendLogin(ctx context.Context, conn net.Conn) (err error) {
	span := s.startPhase(PhaseAuth, s.Addr)
	defer func() { span.endPhase(err) }()
	b := make([]byte, 0, 3+len(s.username)+len(s.password))
	b = append(b, loginVersion, byte(len(s.username)))
	b = append(b, s.username...)
	b = append(b, byte(len(s.password)))
	b = append(b, s.password...)
	var answer [2]byte
	err = exchange(conn, b, answer[:])
	// Some proxies answer with version 5 here. Only the status counts.
	if err == nil && answer[1] != loginSuccessful {
		err = LoginStatus(answer[1])
	}
	return s.newError(ctx, PhaseAuth, err)
}

// sendConnect asks for the target and reads the reply. The address at its end, which
// the proxy has bound, is skipped: what follows belongs to the target.
func (s *socksDial) sendConnect(ctx context.Context, conn net.Conn) (err error) {
	span := s.startPhase(PhaseConnect, s.target.authority)
	defer func() { span.endPhase(err) }()
	b := append(make([]byte, 0, 262), socksVersion, commandConnect, 0)
	b = appendAddress(b, s.target)
	var answer [4]byte
	err = exchange(conn, b, answer[:])
	switch {
	case err != nil:
	case answer[0] != socksVersion:
		err = notSOCKS5(answer[0])
	case answer[1] != replySucceeded:
		err = SOCKSReply(answer[1])
	default:
		err = skipAddress(conn, answer[3])
	}
	return s.newError(ctx, PhaseConnect, err)
}

func appendAddress(b []byte, t target) []byte {
	switch addr := t.addr; {
	case addr == netip.Addr{}:
		b = append(b, addressName, byte(len(t.host)))
		b = append(b, t.host...)
	case addr.Is4():
		b = append(b, addressIPv4)
		b = append(b, addr.AsSlice()...)
	default:
		b = append(b, addressIPv6)
		b = append(b, addr.AsSlice()...)
	}
	return binary.BigEndian.AppendUint16(b, t.port)
}

func skipAddress(conn net.Conn, kind byte) error {
	var buf [257]byte
	n := 0
	switch kind {
	case addressIPv4:
		n = net.IPv4len
	case addressIPv6:
		n = net.IPv6len
	case addressName:
		if err := readFull(conn, buf[:1]); err != nil {
			return err
		}
		n = int(buf[0])
	default:
		return fmt.Errorf("the reply has address type %d, which SOCKS5 does not know", kind)
	}
	return readFull(conn, buf[:n+2])
}

// exchange writes a request and reads an answer of exactly len(answer) bytes.
func exchange(conn net.Conn, request, answer []byte) error {
	_, werr := conn.Write(request)
	err := readFull(conn, answer)
	if err != nil && werr != nil {
		return werr
	}
	return err
}

func readFull(conn net.Conn, p []byte) error {
	_, err := io.ReadFull(conn, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errCutOff
	}
	return err
}

package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"strings"

	"github.com/causewayproject/causeway/internal/admission"
)

var sniProtocol = protocol{door: DoorSNI, negotiate: negotiateSNI, refusal: sniRefusal}

// negotiateSNI reads the ClientHello and authorizes the client by its name.
func negotiateSNI(ctx context.Context, c *clientConn) (early []byte, err error) {
	c.pending.Begin()
	c.pending.Limit(math.MaxInt) // helloReader counts itself
	hello, name, err := readHello(&admission.Conn{Conn: c.raw, Place: c.pending}, cmp.Or(c.g.MaxHeader, 64<<10))
	c.pending.End(0)
	if err != nil {
		return nil, err
	}
	c.beginAuthenticate()
	defer c.endAuthenticate(admission.Greeting)
	return hello, c.request.authorize(ctx, Credentials{Door: DoorSNI, ServerName: name, Remote: c.raw.RemoteAddr()})
}

// helloError is why there is no server name to go by. Its alert tells the client.
type helloError struct {
	alert byte
	text  string
}

func (e *helloError) Error() string { return e.text }

// Alerts of TLS (RFC 8446, 6.2; RFC 6066, 3).
const (
	alertUnexpectedMessage = 10
	alertIllegalParameter  = 47
	alertAccessDenied      = 49
	alertDecodeError       = 50
	alertProtocolVersion   = 70
	alertInternalError     = 80
	alertUnrecognizedName  = 112
)

var (
	errNotTLS      = &helloError{alertUnexpectedMessage, "the client speaks no TLS"}
	errHTTP        = &helloError{0, "the client speaks HTTP"}
	errSSLv2       = &helloError{alertProtocolVersion, "the client speaks SSL 2"}
	errHelloLength = &helloError{alertDecodeError, "the ClientHello is too large"}
	errHelloName   = &helloError{alertIllegalParameter, "the server name is no host name"}

	errHelloRead = errors.New("the ClientHello was read") // what stops crypto/tls
)

// readHello has crypto/tls read a ClientHello from conn, at most max bytes, and
// returns what was read, which the target must get, and the server name; empty
// if the client asks for none. With an Encrypted ClientHello (RFC 9849) it is the
// outer name, which is the one that can be seen. The error is errSilent, a
// *helloError or that of conn.
func readHello(conn net.Conn, max int) (hello []byte, name string, err error) {
	r := &helloReader{Conn: conn, max: max}
	err = tls.Server(r, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		name = info.ServerName
		return nil, errHelloRead
	}}).Handshake()
	var header tls.RecordHeaderError
	switch {
	case errors.Is(err, errHelloRead) && (name == "" || isHostName(name)):
		return r.hello, name, nil
	case errors.Is(err, errHelloRead):
		return nil, "", errHelloName
	case err == io.EOF && len(r.hello) == 0:
		return nil, "", errSilent
	case r.alert == alertProtocolVersion:
		return nil, "", errSSLv2
	case r.alert == alertInternalError: // the one length that crypto/tls refuses, of 64 KiB
		return nil, "", errHelloLength
	case r.alert != 0:
		return nil, "", &helloError{r.alert, fmt.Sprintf("the ClientHello is malformed: %v", err)}
	case errors.As(err, &header) && 'A' <= header.RecordHeader[0] && header.RecordHeader[0] <= 'Z':
		return nil, "", errHTTP
	case errors.As(err, &header):
		return nil, "", errNotTLS
	}
	return nil, "", err
}

// helloReader is a connection of which crypto/tls reads the ClientHello: it keeps
// what was read, and the alert that crypto/tls would send.
type helloReader struct {
	net.Conn
	max   int
	hello []byte
	alert byte
}

func (r *helloReader) Read(p []byte) (int, error) {
	room := r.max - len(r.hello)
	if room <= 0 {
		return 0, errHelloLength
	}
	n, err := r.Conn.Read(p[:min(len(p), room)])
	if need := len(r.hello) + n; need > cap(r.hello) {
		r.hello = append(make([]byte, 0, min(2*need, r.max)), r.hello...)
	}
	r.hello = append(r.hello, p[:n]...)
	return n, err
}

func (r *helloReader) Write(p []byte) (int, error) {
	r.alert = p[len(p)-1]
	return len(p), nil
}

// isHostName reports whether s can be looked up and shown: a name, or an IP
// address, which clients should not send as one.
func isHostName(s string) bool {
	if s == "" || len(s) > 255 {
		return false
	}
	if strings.Contains(s, ":") {
		ip, err := netip.ParseAddr(s)
		return err == nil && ip.Zone() == ""
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r >= 0x80 || !isAlphanumeric(byte(r)) && r != '.' && r != '-' && r != '_'
	})
}

// alertRecord is a fatal alert before a version was agreed on: clients of TLS
// 1.0 to 1.3 read it.
func alertRecord(alert byte) string {
	const recordAlert, fatal = 21, 2
	return string([]byte{recordAlert, 3, 3, 0, 2, fatal, alert})
}

// notHTTPS answers a client that speaks HTTP to a port for HTTPS.
const notHTTPS = "HTTP/1.1 400 Bad Request: this port speaks TLS\r\n" +
	"Content-Type: text/plain\r\nContent-Length: 26\r\nConnection: close\r\n\r\nUse an https URL instead.\n"

func sniRefusal(err error) string {
	var (
		bad *helloError
		e   *Error
	)
	switch {
	case errors.Is(err, errHTTP):
		return notHTTPS
	case errors.As(err, &bad):
		return alertRecord(bad.alert)
	case !errors.As(err, &e):
		return alertRecord(alertInternalError)
	}
	switch r := reasonOf(e.Err); {
	case e.Phase == PhaseHandshake && !errors.Is(e.Err, errShutdown) && !errors.Is(e.Err, admission.ErrCrowded):
		return "" // the client said nothing, or not all
	case e.Phase == PhaseAuthenticate, r == reasonForbidden && e.Phase != PhaseHandshake:
		return alertRecord(alertAccessDenied)
	case e.Phase == PhaseRoute && r == reasonFailed:
		return alertRecord(alertUnrecognizedName)
	}
	return alertRecord(alertInternalError)
}

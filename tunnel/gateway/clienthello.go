package gateway

import (
	"io"
	"net/netip"
	"strings"

	"github.com/causewayproject/causeway/internal/tlsread"
)

// hello is a TLS ClientHello (RFC 8446, 4.1.2) on its way in.
type hello struct {
	raw []byte // all that was read: the target gets it
	end int    // of the records in raw that are in msg
	msg []byte // the handshake message, as far as it has come
}

// badHello is why there is no server name to go by. Its alert tells the client.
type badHello struct {
	alert byte
	text  string
}

func (e *badHello) Error() string { return e.text }

// Alerts of TLS (RFC 8446, 6.2; RFC 6066, 3).
const (
	alertUnexpectedMessage = 10
	alertRecordOverflow    = 22
	alertIllegalParameter  = 47
	alertAccessDenied      = 49
	alertDecodeError       = 50
	alertProtocolVersion   = 70
	alertInternalError     = 80
	alertUnrecognizedName  = 112
)

var (
	errNotTLS       = &badHello{alertUnexpectedMessage, "the client speaks no TLS"}
	errHTTP         = &badHello{0, "the client speaks HTTP"}
	errSSLv2        = &badHello{alertProtocolVersion, "the client speaks SSL 2"}
	errNotHello     = &badHello{alertUnexpectedMessage, "the client's first message is no ClientHello"}
	errRecordLength = &badHello{alertRecordOverflow, "a TLS record is empty or too long"}
	errHelloLength  = &badHello{alertDecodeError, "the ClientHello is too large"}
	errHelloFormat  = &badHello{alertDecodeError, "the ClientHello is malformed"}
	errHelloName    = &badHello{alertIllegalParameter, "the server name is no host name"}
)

const (
	recordHeader    = 5
	recordHandshake = 22
	recordMax       = 16 << 10
	messageHeader   = 4
	messageHello    = 1

	extensionServerName = 0
	nameTypeHost        = 0
)

// read reads until the ClientHello is whole, and no more than most bytes, and
// returns the server name that it asks for; empty if it asks for none. What has
// come by then stays in raw, behind the ClientHello too. The error is a
// *badHello or that of the reader.
func (h *hello) read(r io.Reader, most int) (name string, err error) {
	h.raw = make([]byte, 0, min(2<<10, most))
	for {
		if len(h.raw) == cap(h.raw) {
			if len(h.raw) >= most {
				return "", errHelloLength
			}
			grown := make([]byte, 0, min(2*cap(h.raw), most))
			h.raw = append(grown, h.raw...)
		}
		n, err := r.Read(h.raw[len(h.raw):cap(h.raw)])
		h.raw = h.raw[:len(h.raw)+n]
		if n > 0 {
			if whole, herr := h.records(most); herr != nil || whole {
				return h.name(herr)
			}
		}
		switch {
		case err == io.EOF && len(h.raw) == 0:
			return "", errSilent
		case err == io.EOF:
			return "", io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		}
	}
}

// records takes the records that are whole, and reports whether the message is.
func (h *hello) records(most int) (whole bool, err error) {
	for {
		rest := h.raw[h.end:]
		if err := checkRecord(rest, h.end == 0); err != nil {
			return false, err
		}
		if len(rest) < recordHeader {
			return false, nil
		}
		size := recordHeader + int(rest[3])<<8 + int(rest[4])
		if len(rest) < size {
			return false, nil
		}
		h.end += size
		if h.msg == nil { // most often it is one record: that is not copied
			h.msg = rest[recordHeader:size:size]
		} else {
			h.msg = append(h.msg, rest[recordHeader:size]...)
		}
		if h.msg[0] != messageHello {
			return false, errNotHello
		}
		if len(h.msg) < messageHeader {
			continue
		}
		end := messageHeader + int(h.msg[1])<<16 + int(h.msg[2])<<8 + int(h.msg[3])
		if end > most {
			return false, errHelloLength
		}
		if len(h.msg) >= end {
			h.msg = h.msg[:end]
			return true, nil
		}
	}
}

// checkRecord judges the header of a record by as much of it as has come.
func checkRecord(b []byte, first bool) error {
	switch {
	case first && len(b) > 0 && b[0]&0x80 != 0:
		// RFC 5246, E.2: two bytes of length, and a ClientHello.
		if len(b) < 3 {
			return nil
		}
		if b[2] == messageHello {
			return errSSLv2
		}
		return errNotTLS
	case len(b) > 0 && b[0] != recordHandshake:
		switch {
		case !first:
			return errNotHello
		case 'A' <= b[0] && b[0] <= 'Z':
			return errHTTP
		}
		return errNotTLS
	case len(b) > 1 && b[1] >= 0x10:
		// The version is to be ignored (RFC 8446, 5.1), which crypto/tls does
		// for as long as it could be one.
		return errNotTLS
	case len(b) >= recordHeader:
		if size := int(b[3])<<8 + int(b[4]); size == 0 || size > recordMax {
			return errRecordLength
		}
	}
	return nil
}

// name returns the server name of the whole message, and forgets the message.
func (h *hello) name(err error) (string, error) {
	msg := h.msg
	h.msg = nil
	if err != nil {
		return "", err
	}
	return serverName(msg[messageHeader:])
}

// serverName finds the name in the body of a ClientHello. Where an Encrypted
// ClientHello (RFC 9849) is inside, it is the outer name, the one that can be
// seen.
func serverName(body tlsread.Cursor) (string, error) {
	extensions, ok := tlsread.Extensions(body)
	if !ok {
		return "", errHelloFormat
	}
	name, found := "", false
	for len(extensions) > 0 {
		kind, _ := extensions.Number(2)
		data, ok := extensions.Vector(2)
		if !ok {
			return "", errHelloFormat
		}
		if kind != extensionServerName {
			continue
		}
		if found { // which one the target would take is not to be guessed
			return "", errHelloFormat
		}
		var err error
		if name, err = nameOf(data); err != nil {
			return "", err
		}
		found = true
	}
	return name, nil
}

// nameOf finds the host name in the extension (RFC 6066, 3). There is one at
// most.
func nameOf(data tlsread.Cursor) (string, error) {
	list, ok := data.Vector(2)
	if !ok || len(data) > 0 || len(list) == 0 {
		return "", errHelloFormat
	}
	var host tlsread.Cursor
	for len(list) > 0 {
		kind, _ := list.Number(1)
		name, ok := list.Vector(2)
		if !ok || len(name) == 0 || kind == nameTypeHost && host != nil {
			return "", errHelloFormat
		}
		if kind == nameTypeHost {
			host = name
		}
	}
	if host == nil {
		return "", nil
	}
	name := string(host)
	if !isHost(name) {
		return "", errHelloName
	}
	return name, nil
}

// isHost reports whether s can be looked up and shown: a name, or an IP
// address, which clients should not send as one.
func isHost(s string) bool {
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

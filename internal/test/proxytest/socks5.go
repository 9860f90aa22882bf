package proxytest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"

	"github.com/causewayproject/causeway/internal/relay"
)

// SOCKS5 is a SOCKS5 proxy (RFC 1928, RFC 1929) for CONNECT.
type SOCKS5 struct {
	// Username and Password are what it asks for. If both are empty, nothing.
	Username, Password string
	// Dial connects to targets. If nil, net.Dialer.
	Dial dialFunc
	// Log, if not nil, is called for each request, and for each client that
	// it turns away (with an empty Target).
	Log func(Request)
}

// Handle serves one client. It is the function for [Serve].
func (p *SOCKS5) Handle(ctx context.Context, conn net.Conn) {
	if err := p.negotiate(conn); err != nil {
		if errors.Is(err, errTurnedAway) && p.Log != nil {
			p.Log(Request{})
		}
		return
	}
	target, err := readRequest(conn)
	if err != nil {
		return
	}
	if p.Log != nil {
		p.Log(Request{Target: target, Accepted: true})
	}
	far, err := dialTarget(ctx, p.Dial, target)
	if _, werr := conn.Write([]byte{5, replyFor(err), 0, 1, 0, 0, 0, 0, 0, 0}); err != nil {
		return
	} else if werr != nil {
		far.Close()
		return
	}
	relay.Relay(ctx, conn, far)
}

var errTurnedAway = errors.New("proxytest: client turned away")

func (p *SOCKS5) negotiate(conn net.Conn) error {
	methods, err := readCounted(conn, 5)
	if err != nil {
		return err
	}
	want := byte(0)
	if p.Username != "" || p.Password != "" {
		want = 2
	}
	if bytes.IndexByte(methods, want) < 0 {
		conn.Write([]byte{5, 0xff})
		return errTurnedAway
	}
	if _, err := conn.Write([]byte{5, want}); err != nil || want == 0 {
		return err
	}
	username, err := readCounted(conn, 1)
	if err != nil {
		return err
	}
	password, err := readBytes(conn)
	if err != nil {
		return err
	}
	if string(username) != p.Username || string(password) != p.Password {
		conn.Write([]byte{1, 1})
		return errTurnedAway
	}
	_, err = conn.Write([]byte{1, 0})
	return err
}

func readRequest(conn net.Conn) (target string, err error) {
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return "", err
	}
	if head[0] != 5 || head[1] != 1 {
		return "", errors.New("proxytest: not a SOCKS5 CONNECT")
	}
	var host string
	switch head[3] {
	case 1, 4:
		b := make([]byte, map[byte]int{1: 4, 4: 16}[head[3]])
		if _, err := io.ReadFull(conn, b); err != nil {
			return "", err
		}
		addr, _ := netip.AddrFromSlice(b)
		host = addr.String()
	case 3:
		b, err := readBytes(conn)
		if err != nil {
			return "", err
		}
		host = string(b)
	default:
		return "", errors.New("proxytest: unknown address type")
	}
	var port [2]byte
	if _, err := io.ReadFull(conn, port[:]); err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port[:])))), nil
}

// readCounted reads a version and a counted string.
func readCounted(r io.Reader, version byte) ([]byte, error) {
	var v [1]byte
	if _, err := io.ReadFull(r, v[:]); err != nil {
		return nil, err
	}
	if v[0] != version {
		return nil, errors.New("proxytest: unexpected version")
	}
	return readBytes(r)
}

func readBytes(r io.Reader) ([]byte, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, n[0])
	_, err := io.ReadFull(r, b)
	return b, err
}

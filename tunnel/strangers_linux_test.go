package tunnel_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

// strangersVariable has the test binary be a crowd of strangers instead: what
// they need is then not in the memory of the server that is measured. Its value
// is the name of the attack, the address, the source address and how many.
const strangersVariable = "CAUSEWAY_TEST_STRANGERS"

// strangers are a process that attacks a server until they are told to stop.
type strangers struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Scanner
}

// attack starts n strangers, who come from the address source, and returns once
// each has done what it does. With again they come back whenever they are closed.
func attack(t *testing.T, name, address, source string, n int, again bool) *strangers {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStrangers$", "-test.v")
	cmd.Env = append(os.Environ(), strangersVariable+"="+strings.Join([]string{name, address, source, strconv.Itoa(n), strconv.FormatBool(again)}, "|"))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &strangers{t: t, cmd: cmd, stdin: stdin, out: bufio.NewScanner(out)}
	s.expect("ready")
	return s
}

// expect returns what follows the word in the next line that begins with it.
func (s *strangers) expect(word string) string {
	s.t.Helper()
	for s.out.Scan() {
		if rest, ok := strings.CutPrefix(s.out.Text(), "strangers: "+word); ok {
			return strings.TrimSpace(rest)
		}
	}
	s.t.Fatalf("the strangers ended before they said %q", word)
	return ""
}

// stop ends them, and returns how many connections they made.
func (s *strangers) stop() int {
	s.t.Helper()
	s.stdin.Close()
	n, err := strconv.Atoi(s.expect("connections"))
	if err != nil {
		s.t.Error(err)
	}
	s.cmd.Wait()
	return n
}

// TestStrangers is no test but the process of the strangers.
func TestStrangers(t *testing.T) {
	args := strings.Split(os.Getenv(strangersVariable), "|")
	if len(args) != 5 {
		t.Skip("it is run by other tests")
	}
	n, _ := strconv.Atoi(args[3])
	c := &crowd{address: args[1], dialer: net.Dialer{Timeout: 10 * time.Second}, again: args[4] == "true"}
	if args[2] != "" {
		c.dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(args[2])}
	}
	do := attacks[args[0]]
	if do == nil {
		t.Fatalf("no attack %q", args[0])
	}
	ctx, stop := context.WithCancel(t.Context())
	var first, all sync.WaitGroup
	setUp := make(chan struct{}, 64) // some at a time
	for range n {
		first.Add(1)
		all.Go(func() { c.run(ctx, do, setUp, first.Done) })
	}
	first.Wait()
	fmt.Println("strangers: ready")
	io.Copy(io.Discard, os.Stdin)
	stop()
	all.Wait()
	fmt.Println("strangers: connections", c.connections.Load())
}

// crowd is strangers at one address.
type crowd struct {
	address     string
	dialer      net.Dialer
	again       bool
	connections atomic.Int64
}

// run is one stranger: it calls did when it has done what it does once.
func (c *crowd) run(ctx context.Context, do func(*crowd, net.Conn), setUp chan struct{}, did func()) {
	once := sync.OnceFunc(did)
	defer once()
	for ctx.Err() == nil {
		setUp <- struct{}{}
		conn, err := c.dialer.DialContext(ctx, "tcp", c.address)
		if err != nil {
			<-setUp
			continue
		}
		c.connections.Add(1)
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		conn.(*net.TCPConn).SetLinger(0)                  // no port is kept
		conn.SetDeadline(time.Now().Add(3 * time.Second)) // of what it does
		do(c, conn)
		conn.SetDeadline(time.Time{})
		<-setUp
		once()
		awaitEnd(conn)
		stop()
		conn.Close()
		if !c.again {
			return
		}
	}
}

// awaitEnd returns when the other side has closed, and reads nothing before.
func awaitEnd(conn net.Conn) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	raw.Read(func(fd uintptr) bool { return hungUp(fd) })
}

// attacks are what a stranger does with a connection; it then holds that.
var attacks = map[string]func(*crowd, net.Conn){
	"silent":            func(c *crowd, conn net.Conn) {},
	"half hello":        func(c *crowd, conn net.Conn) { conn.Write(clientHello()[:100]) },
	"hello":             func(c *crowd, conn net.Conn) { conn.Write(clientHello()) },
	"long hello":        func(c *crowd, conn net.Conn) { longHello(conn, 64<<10, 1<<14) },
	"4 KiB of a hello":  func(c *crowd, conn net.Conn) { longHello(conn, 4000, 1<<10) },
	"15 KiB of a hello": func(c *crowd, conn net.Conn) { longHello(conn, 15<<10, 1<<10) },

	"certificate of 200 KiB": func(c *crowd, conn net.Conn) { handshake(conn, sessionProtocol, longCertificate(200<<10)) },
	"half of a certificate": func(c *crowd, conn net.Conn) {
		handshake(&cutConn{Conn: conn, bytes: 12 << 10}, sessionProtocol, longCertificate(14<<10))
	},
	"certificate without a proof": func(c *crowd, conn net.Conn) {
		handshake(&cutConn{Conn: conn, records: 1}, sessionProtocol, longCertificate(10<<10))
	},

	"340 key shares":  func(c *crowd, conn net.Conn) { conn.Write(manyKeyShares(340)) },
	"700 key shares":  func(c *crowd, conn net.Conn) { conn.Write(manyKeyShares(700)) },
	"1,500 protocols": func(c *crowd, conn net.Conn) { manyProtocols(conn, 1500) },
	"800 URIs, no proof": func(c *crowd, conn net.Conn) {
		handshake(&cutConn{Conn: conn, records: 1}, sessionProtocol, manyURIs(800))
	},
	"800 URIs":   func(c *crowd, conn net.Conn) { handshake(conn, sessionProtocol, manyURIs(800)) },
	"2,600 URIs": func(c *crowd, conn net.Conn) { handshake(conn, sessionProtocol, manyURIs(2600)) },

	// It leaves as soon as it can, and comes again.
	"handshakes": func(c *crowd, conn net.Conn) { handshake(conn, sessionProtocol, nil); conn.Close() },

	"no certificate":                func(c *crowd, conn net.Conn) { handshake(conn, sessionProtocol, nil) },
	"60,000 SYN":                    func(c *crowd, conn net.Conn) { floodFrames(conn, sessionProtocol, nil, opens, 60000) },
	"60,000 SYN with a certificate": func(c *crowd, conn net.Conn) { floodFrames(conn, sessionProtocol, longCertificate(100), opens, 60000) },
	"60,000 SYN of a peer":          func(c *crowd, conn net.Conn) { floodFrames(conn, "causeway-peer/1", nil, opens, 60000) },
	"data":                          func(c *crowd, conn net.Conn) { floodFrames(conn, sessionProtocol, nil, data, 64) },
	"pings":                         func(c *crowd, conn net.Conn) { floodFrames(conn, sessionProtocol, nil, pings, 60000) },
	"HELLO that claims much":        func(c *crowd, conn net.Conn) { floodFrames(conn, sessionProtocol, nil, claim, 1) },

	"ENROLL that claims much": func(c *crowd, conn net.Conn) {
		sendTo(handshake(conn, "causeway-enroll/1", nil), []byte{0, 32, 0, 0, 127, 0})
	},
	"ENROLL of 31 KiB": func(c *crowd, conn net.Conn) {
		sendTo(handshake(conn, "causeway-enroll/1", nil), append([]byte{0, 32, 0, 0, 127, 0}, make([]byte, 31<<10)...))
	},

	"half a request": func(c *crowd, conn net.Conn) { io.WriteString(conn, "GET /agent HTTP/1.1\r\nHost: x\r\nUpgr") },
	"a request of 60 KiB": func(c *crowd, conn net.Conn) {
		io.WriteString(conn, "GET /agent HTTP/1.1\r\nHost: x\r\nA: "+strings.Repeat("x", 60<<10))
	},
	"many short headers": func(c *crowd, conn net.Conn) {
		io.WriteString(conn, "GET /agent HTTP/1.1\r\nHost: x\r\n"+strings.Repeat("a:\r\n", 10<<10))
	},
	"websocket, silent":     func(c *crowd, conn net.Conn) { upgrade(conn) },
	"websocket, half hello": func(c *crowd, conn net.Conn) { sendTo(upgrade(conn), clientHello()[:100]) },
	"websocket, 60,000 SYN": func(c *crowd, conn net.Conn) {
		if ws := upgrade(conn); ws != nil {
			floodFrames(ws, sessionProtocol, nil, opens, 60000)
		}
	},
}

const sessionProtocol = "causeway-tunnel/1"

// clientHello is what crypto/tls sends first.
var clientHello = sync.OnceValue(func() []byte {
	near, far := net.Pipe()
	defer near.Close()
	go tls.Client(far, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{sessionProtocol}}).Handshake()
	b := make([]byte, 16<<10)
	n, _ := near.Read(b)
	return b[:n]
})

// longHello sends n bytes of a ClientHello of 64 KiB, in records of that size, and
// never the last one.
func longHello(conn net.Conn, n, size int) {
	hello := append([]byte{1, 0, 0xff, 0xfb}, make([]byte, 0xfffb)...)
	var b []byte
	for len(hello) > 0 {
		record := hello[:min(len(hello), size)]
		hello = hello[len(record):]
		b = append(b, 22, 3, 1)
		b = binary.BigEndian.AppendUint16(b, uint16(len(record)))
		b = append(b, record...)
	}
	b = b[:min(n, len(b)-1)]
	for len(b) > 0 {
		if _, err := conn.Write(b[:min(len(b), 1000)]); err != nil {
			return
		}
		b = b[min(len(b), 1000):]
	}
}

// manyKeyShares is a ClientHello with so many, for groups that nobody has, and then
// one that the server takes.
func manyKeyShares(n int) []byte {
	with16 := func(p ...byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...) }
	extension := func(id byte, p ...byte) []byte { return append([]byte{0, id}, with16(p...)...) }
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	shares := bytes.Repeat([]byte{0x7a, 0x7a, 0, 1, 0}, n)
	shares = append(append(shares, 0, 29), with16(key.PublicKey().Bytes()...)...)
	extensions := slices.Concat(
		extension(43, 2, 3, 4),     // TLS 1.3
		extension(13, 0, 2, 4, 3),  // ECDSA
		extension(10, 0, 2, 0, 29), // X25519
		extension(51, with16(shares...)...),
		extension(16, with16(append([]byte{byte(len(sessionProtocol))}, sessionProtocol...)...)...),
	)
	hello := slices.Concat([]byte{3, 3}, make([]byte, 32+1), []byte{0, 2, 0x13, 1, 1, 0}, with16(extensions...))
	return slices.Concat([]byte{22, 3, 1}, with16(append([]byte{1, 0, byte(len(hello) >> 8), byte(len(hello))}, hello...)...))
}

// manyProtocols sends a ClientHello that names n protocols, and no more.
func manyProtocols(conn net.Conn, n int) {
	names := []string{sessionProtocol}
	for range n {
		names = append(names, "a")
	}
	tls.Client(&cutConn{Conn: conn, records: 1}, &tls.Config{
		InsecureSkipVerify: true, NextProtos: names, CurvePreferences: []tls.CurveID{tls.X25519},
	}).Handshake()
}

// handshake returns nil if the server did not take it.
func handshake(conn net.Conn, protocol string, cert *tls.Certificate) *tls.Conn {
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}, DynamicRecordSizingDisabled: true}
	if cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	c := tls.Client(conn, config)
	if c.Handshake() != nil {
		return nil
	}
	return c
}

// longCertificate is of a stranger's own making, with that many bytes of ballast.
func longCertificate(size int) *tls.Certificate {
	return certificateWith("ballast", size, pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: make([]byte, size)})
}

// manyURIs is a certificate with n names that are as short as can be, four bytes
// each.
func manyURIs(n int) *tls.Certificate {
	names, err := asn1.Marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: bytes.Repeat([]byte("\x86\x02a:"), n)})
	if err != nil {
		panic(err)
	}
	return certificateWith("URIs", n, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: names})
}

// certificateWith makes a certificate of each kind and number once.
func certificateWith(kind string, n int, extension pkix.Extension) *tls.Certificate {
	certificatesMu.Lock()
	defer certificatesMu.Unlock()
	name := fmt.Sprint(kind, n)
	if c := certificates[name]; c != nil {
		return c
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{extension}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	certificates[name] = c
	return c
}

var (
	certificatesMu sync.Mutex
	certificates   = map[string]*tls.Certificate{}
)

// cutConn sends no more than that many encrypted records or bytes of those, and
// then, if it is asked for more, ends its side of the handshake but not the
// connection.
type cutConn struct {
	net.Conn
	records, bytes int
}

var errCutHere = errors.New("no more is sent")

func (c *cutConn) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 5; {
		size := 5 + int(binary.BigEndian.Uint16(rest[3:]))
		record := rest[:min(size, len(rest))]
		rest = rest[len(record):]
		if record[0] == 23 && c.bytes > 0 && len(record) > c.bytes {
			c.Conn.Write(record[:c.bytes])
			return 0, errCutHere
		}
		if _, err := c.Conn.Write(record); err != nil {
			return 0, err
		}
		if record[0] == 23 && c.records == 1 {
			return 0, errCutHere
		}
	}
	return len(p), nil
}

// sendTo sends p, if there is a connection.
func sendTo(conn net.Conn, p []byte) {
	if c, ok := conn.(*tls.Conn); ok && c == nil || conn == nil {
		return
	}
	conn.Write(p)
}

// floodFrames sends frame(i) so many times, and reads nothing.
func floodFrames(conn net.Conn, protocol string, cert *tls.Certificate, frame func(i int) []byte, times int) {
	c := handshake(conn, protocol, cert)
	if c == nil {
		return
	}
	var b bytes.Buffer
	for i := range times {
		b.Write(frame(i))
		if b.Len() > 8<<10 || i == times-1 {
			if _, err := c.Write(b.Bytes()); err != nil {
				return
			}
			b.Reset()
		}
	}
}

// yamuxFrame is a frame of yamux.
func yamuxFrame(kind byte, flags uint16, id, length uint32, payload int) []byte {
	b := []byte{0, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, id)
	b = binary.BigEndian.AppendUint32(b, length)
	return append(b, make([]byte, payload)...)
}

func opens(i int) []byte { return yamuxFrame(1, 1, uint32(2*i+1), 0, 0) }
func pings(i int) []byte { return yamuxFrame(2, 1, 0, uint32(i), 0) }
func claim(int) []byte   { return append(yamuxFrame(0, 1, 1, 6, 0), 0, 1, 0, 0, 16, 0) }

// data is 4 KiB each of up to 64 streams.
func data(i int) []byte {
	if i == 0 {
		return yamuxFrame(0, 1, 1, 4<<10, 4<<10)
	}
	return yamuxFrame(0, 0, 1, 4<<10, 4<<10)
}

// upgrade is a WebSocket on conn; nil if the server refused it.
func upgrade(conn net.Conn) net.Conn {
	io.WriteString(conn, "GET /agent HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: causeway.v1\r\n\r\n")
	answer := make([]byte, 0, 1<<10)
	for !bytes.HasSuffix(answer, []byte("\r\n\r\n")) {
		n, err := conn.Read(answer[len(answer) : len(answer)+1])
		if err != nil {
			return nil
		}
		answer = answer[:len(answer)+n]
	}
	return websocket.NewConn(conn, true, nil)
}

// hungUp reports whether the peer of a socket has closed, whatever there is to
// be read.
func hungUp(fd uintptr) bool {
	var b [1]byte
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	if err == syscall.EAGAIN {
		return false
	}
	if err != nil || n == 0 {
		return true
	}
	return drainOne(fd)
}

// drainOne takes what is there, to come to the end.
func drainOne(fd uintptr) bool {
	b := make([]byte, 4<<10)
	for {
		n, err := syscall.Read(int(fd), b)
		if err == syscall.EAGAIN {
			return false
		}
		if err != nil || n == 0 {
			return true
		}
	}
}

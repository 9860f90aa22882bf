package gateway_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/fips140"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

const maxHello = 64 << 10

// extension is one of a ClientHello.
func extension(kind uint16, data string) string {
	return string(binary.BigEndian.AppendUint16(nil, kind)) + vector(2, data)
}

// vector is data behind its length, in size bytes.
func vector(size int, data string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	return string(b[4-size:]) + data
}

// sniOf is the extension of RFC 6066 with names.
func sniOf(names ...string) string {
	list := ""
	for _, name := range names {
		list += "\x00" + vector(2, name)
	}
	return extension(0, vector(2, list))
}

// message is a ClientHello with extensions, those that Go needs among them.
func message(extensions ...string) string {
	body := "\x03\x03" + strings.Repeat("r", 32) + vector(1, "") + vector(2, "\x13\x01\xc0\x2f") + vector(1, "\x00")
	if len(extensions) > 0 {
		body += vector(2, strings.Join(extensions, ""))
	}
	return "\x01" + vector(3, body)
}

// records cuts a message in records of size bytes.
func records(message string, size int) string {
	s := ""
	for len(message) > 0 {
		n := min(size, len(message))
		s += "\x16\x03\x01" + vector(2, message[:n])
		message = message[n:]
	}
	return s
}

// oneRecord is message in one record.
func oneRecord(extensions ...string) string { return records(message(extensions...), 16<<10) }

func TestHello(t *testing.T) {
	sni := sniOf("api.example.com")
	grease := extension(0x2a2a, "")
	ech := extension(0xfe0d, "\x00\x00\x01\x00\x01\x07"+vector(2, strings.Repeat("k", 32))+vector(2, strings.Repeat("inner.example.com", 10)))
	tests := []struct {
		name, say string
		want      string
		alert     byte
		text      string
	}{
		{name: "plain", say: oneRecord(sni), want: "api.example.com"},
		{name: "GREASE first", say: oneRecord(grease, sni), want: "api.example.com"},
		{name: "last", say: oneRecord(extension(21, strings.Repeat("\x00", 500)), sni), want: "api.example.com"},
		{name: "ECH: the outer name", say: oneRecord(ech, sniOf("outer.example.com")), want: "outer.example.com"},
		{name: "ECH without an outer name", say: oneRecord(ech)},
		{name: "no extensions", say: oneRecord()},
		{name: "empty extensions", say: oneRecord("")},
		{name: "none of names", say: oneRecord(grease)},
		{name: "other type of name", say: oneRecord(extension(0, vector(2, "\x07"+vector(2, "x")+"\x00"+vector(2, "a.b")))), want: "a.b"},
		{name: "other type alone", say: oneRecord(extension(0, vector(2, "\x07"+vector(2, "x"))))},
		{name: "case is kept", say: oneRecord(sniOf("API.Example.com")), want: "API.Example.com"},
		{name: "IPv4", say: oneRecord(sniOf("192.0.2.1")), want: "192.0.2.1"},
		{name: "IPv6", say: oneRecord(sniOf("2001:db8::1")), want: "2001:db8::1"},
		{name: "20 KiB", say: records(message(extension(0x2a2a, strings.Repeat("x", 20<<10)), sni), 16<<10), want: "api.example.com"},
		{name: "60 KiB", say: records(message(extension(0x2a2a, strings.Repeat("x", 60<<10)), sni), 16<<10), want: "api.example.com"},
		{name: "a message behind it", say: records(message(sni)+"\x0b\x00\x00\x01x", 16<<10), want: "api.example.com"},
		{name: "records of a byte", say: records(message(sni), 1), want: "api.example.com"},
		{name: "records of 3 bytes", say: records(message(sni), 3), want: "api.example.com"},

		{name: "dot at the end", say: oneRecord(sniOf("api.example.com.")), alert: 50, text: "malformed"},
		{name: "two names", say: oneRecord(sniOf("a.b", "c.d")), alert: 50, text: "malformed"},
		{name: "two extensions of names", say: oneRecord(sniOf("a.b"), sniOf("c.d")), alert: 50, text: "malformed"},
		{name: "empty name", say: oneRecord(sniOf("")), alert: 50, text: "malformed"},
		{name: "empty list", say: oneRecord(extension(0, vector(2, ""))), alert: 50, text: "malformed"},
		{name: "empty extension", say: oneRecord(extension(0, "")), alert: 50, text: "malformed"},
		{name: "more behind the list", say: oneRecord(extension(0, vector(2, "\x00"+vector(2, "a.b"))+"x")), alert: 50, text: "malformed"},
		{name: "list cut", say: oneRecord(extension(0, "\x00\x09\x00\x00\x03a.b")), alert: 50, text: "malformed"},
		{name: "extension cut", say: oneRecord("\x00\x00\x00\x09abc"), alert: 50, text: "malformed"},
		{name: "type cut", say: oneRecord(sni, "\x00"), alert: 50, text: "malformed"},
		{name: "message cut", say: records("\x01"+vector(3, "\x03\x03"+strings.Repeat("r", 32)+"\x05"), 100), alert: 50, text: "malformed"},
		{name: "empty message", say: records("\x01\x00\x00\x00", 100), alert: 50, text: "malformed"},
		{name: "more behind the extensions", say: records("\x01"+vector(3, message(sni)[4:]+"x"), 1000), alert: 50, text: "malformed"},
		{name: "NUL in the name", say: oneRecord(sniOf("a\x00b")), alert: 47, text: "no host name"},
		{name: "UTF-8 in the name", say: oneRecord(sniOf("\u00fc.example")), alert: 47, text: "no host name"},
		{name: "line end in the name", say: oneRecord(sniOf("a\r\nb")), alert: 47, text: "no host name"},
		{name: "zone", say: oneRecord(sniOf("fe80::1%eth0")), alert: 47, text: "no host name"},
		{name: "256 bytes", say: oneRecord(sniOf(strings.Repeat("a", 256))), alert: 47, text: "no host name"},
		{name: "too large", say: records(message(extension(0x2a2a, strings.Repeat("x", 65000)), sni), 100), alert: 50, text: "too large"},
		{name: "says it is too large", say: records("\x01\x01\x00\x01", 100), alert: 50, text: "too large"},
		{name: "empty record", say: "\x16\x03\x01\x00\x00" + oneRecord(sni), alert: 10, text: "malformed"},
		{name: "record too long", say: "\x16\x03\x01\x48\x01", alert: 22, text: "malformed"},
		{name: "another record in between", say: records(message(sni)[:20], 20) + "\x14\x03\x01\x00\x01\x01", alert: 10, text: "no TLS"},
		{name: "another message", say: records("\x02"+vector(3, strings.Repeat("x", 100)), 200), alert: 50, text: "malformed"},
		{name: "alert", say: "\x15\x03\x01\x00\x02\x01\x00", text: "EOF"},
		{name: "the record's version is ignored", say: "\x16\x00\x7f" + oneRecord(sni)[3:], want: "api.example.com"},
		{name: "no version at all", say: "\x16\x10\x01\x00\x02", alert: 10, text: "no TLS"},
		{name: "SSL 2", say: "\x80\x2e\x01\x00\x02\x00\x15", alert: 70, text: "SSL 2"},
		{name: "not even SSL 2", say: "\x81\x2e\x07\x00\x02", alert: 10, text: "no TLS"},
		{name: "SSH", say: "SSH-2.0-x\r\n", text: "HTTP"},
		{name: "nothing", say: "", text: "without a request"},
		{name: "cut", say: oneRecord(sni)[:30], text: io.ErrUnexpectedEOF.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.say), iotest.OneByteReader(strings.NewReader(tt.say)), iotest.DataErrReader(strings.NewReader(tt.say))} {
				raw, name, alert, err := gateway.ReadHello(r, maxHello)
				if tt.text == "" && (err != nil || name != tt.want) || alert != tt.alert {
					t.Errorf("got %q, alert %d, %v; want %q, %d", name, alert, err, tt.want, tt.alert)
				}
				if tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text)) {
					t.Errorf("got %q, %v; want %q", name, err, tt.text)
				}
				if rest, _ := io.ReadAll(r); err == nil && string(raw)+string(rest) != tt.say {
					t.Errorf("got %d bytes and %d, want all of %d", len(raw), len(rest), len(tt.say))
				}
			}
			differ(t, []byte(tt.say))
		})
	}
}

// TestHelloBound: no more is read, or allocated, than is allowed.
func TestHelloBound(t *testing.T) {
	say := records(message(extension(0x2a2a, strings.Repeat("x", 5000)), sniOf("a.b")), 1)
	for _, most := range []int{1, 100, 4000, 5000, len(say) - 1} {
		r := strings.NewReader(say)
		raw, _, _, err := gateway.ReadHello(r, most)
		if err == nil || cap(raw) > most || len(say)-r.Len() > most {
			t.Errorf("bound of %d bytes: got %d of %d, %v", most, len(raw), cap(raw), err)
		}
	}
	if _, name, _, err := gateway.ReadHello(strings.NewReader(say), len(say)); name != "a.b" || err != nil {
		t.Errorf("got %q, %v at the bound, want a.b", name, err)
	}
}

// TestHelloMemory: what crypto/tls takes for a ClientHello, an ordinary one and
// those that take most for their size. Of the long ones 32 are read at once, see
// package admission.
func TestHelloMemory(t *testing.T) {
	many := func(kind uint16, size int, item string) string {
		return extension(kind, vector(size, strings.Repeat(item, 60_000/len(item))))
	}
	for _, tt := range []struct {
		name, say string
		most      uint64
	}{
		{"Go's", string(goHellos(t)["TLS 1.3"]), 20 << 10},
		{"key shares", records(message(many(51, 2, "\x00\x1d\x00\x01x"), extension(43, "\x02\x03\x04")), 16<<10), 4 << 20},
		{"protocols", records(message(many(16, 2, "\x02ab")), 16<<10), 4 << 20},
		{"signature algorithms", records(message(many(13, 2, "\x04\x03")), 16<<10), 4 << 20},
		{"records of a byte", records(message(extension(0x2a2a, strings.Repeat("x", 10_000))), 1), 4 << 20},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, _, err := gateway.ReadHello(strings.NewReader(tt.say), maxHello)
		runtime.ReadMemStats(&after)
		t.Logf("%s, %d bytes: %d bytes, %v", tt.name, len(tt.say), after.TotalAlloc-before.TotalAlloc, err)
		if got := after.TotalAlloc - before.TotalAlloc; err != nil || got > tt.most {
			t.Errorf("%s, %d bytes: got %d bytes allocated, %v, want %d at most", tt.name, len(tt.say), got, err, tt.most)
		}
	}
}

// onlyRead is a connection that takes what is written and says what it says.
type onlyRead struct {
	net.Conn
	r io.Reader
}

func (c onlyRead) Read(p []byte) (int, error)  { return c.r.Read(p) }
func (c onlyRead) Write(p []byte) (int, error) { return len(p), nil }
func (c onlyRead) Close() error                { return nil }

// goName is the server name that crypto/tls finds.
func goName(b []byte) (name string, ok bool) {
	stop := errors.New("stop")
	tls.Server(onlyRead{r: bytes.NewReader(b)}, &tls.Config{
		MinVersion: tls.VersionTLS10,
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			name, ok = info.ServerName, true
			return nil, stop
		},
	}).Handshake()
	return name, ok
}

// differ fails if crypto/tls understands a ClientHello otherwise. It checks
// more of it, and so understands fewer.
func differ(t *testing.T, b []byte) {
	t.Helper()
	name, ok := goName(b)
	if !ok {
		return
	}
	raw, got, alert, err := gateway.ReadHello(bytes.NewReader(b), maxHello)
	switch {
	case err == nil && got != name:
		t.Errorf("got %q, crypto/tls %q", got, name)
	case err != nil && alert != 47 && len(b) <= maxHello: // it knows no bad name
		t.Errorf("got %v, crypto/tls %q", err, name)
	case !bytes.HasPrefix(b, raw):
		t.Errorf("got %x of %x", raw, b)
	}
}

// goHellos are what crypto/tls's client says.
func goHellos(t testing.TB) map[string][]byte {
	hellos := map[string][]byte{}
	for name, cfg := range map[string]*tls.Config{
		"TLS 1.3":       {},
		"TLS 1.2":       {MaxVersion: tls.VersionTLS12},
		"TLS 1.0":       {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10},
		"without SNI":   {ServerName: "192.0.2.1"},
		"ALPN":          {NextProtos: []string{"h2", "http/1.1"}},
		"no PQ":         {CurvePreferences: []tls.CurveID{tls.X25519}},
		"no tickets":    {SessionTicketsDisabled: true},
		"much ALPN":     {NextProtos: manyProtocols()},
		"ECH":           {EncryptedClientHelloConfigList: echConfig(t), MinVersion: tls.VersionTLS13},
		"a single name": {ServerName: "localhost"},
	} {
		if fips140.Enabled() && (name == "TLS 1.0" || name == "no PQ") {
			continue // crypto/tls has neither TLS 1.0 nor a bare X25519 then
		}
		cfg.InsecureSkipVerify = true
		if cfg.ServerName == "" {
			cfg.ServerName = "api.example.com"
		}
		client, server := net.Pipe()
		go func() {
			tls.Client(client, cfg).Handshake()
			client.Close()
		}()
		b := make([]byte, 1<<17)
		n, err := io.ReadAtLeast(server, b, 5)
		for err == nil && n < 5+int(binary.BigEndian.Uint16(b[3:])) { // one record, or the first
			var m int
			m, err = server.Read(b[n:])
			n += m
		}
		for err == nil && name == "much ALPN" && n < 40_000 {
			var m int
			m, err = server.Read(b[n:])
			n += m
		}
		server.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		hellos[name] = b[:n]
	}
	return hellos
}

func manyProtocols() (protocols []string) {
	for range 160 {
		protocols = append(protocols, strings.Repeat("p", 250))
	}
	return protocols
}

// echConfig is an ECHConfigList (RFC 9849, 4) with the public name
// outer.example.com.
func echConfig(t testing.TB) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	contents := "\x07" + "\x00\x20" + vector(2, string(key.PublicKey().Bytes())) + vector(2, "\x00\x01\x00\x01") +
		"\x20" + vector(1, "outer.example.com") + vector(2, "")
	return []byte(vector(2, extension(0xfe0d, contents)))
}

// TestHelloOfGo: as crypto/tls says it, and cut in other records.
func TestHelloOfGo(t *testing.T) {
	want := map[string]string{"without SNI": "", "ECH": "outer.example.com", "a single name": "localhost"}
	for name, b := range goHellos(t) {
		t.Run(name, func(t *testing.T) {
			wanted, ok := want[name]
			if !ok {
				wanted = "api.example.com"
			}
			message := ""
			for rest := b; len(rest) >= 5; {
				size := int(binary.BigEndian.Uint16(rest[3:]))
				message += string(rest[5 : 5+size])
				rest = rest[5+size:]
			}
			for _, size := range []int{16 << 10, 1000, 100, 7} {
				say := records(message, size)
				if _, got, _, err := gateway.ReadHello(strings.NewReader(say), 1<<20); got != wanted || err != nil {
					t.Errorf("records of %d: got %q, %v; want %q", size, got, err, wanted)
				}
			}
			if got, ok := goName(b); !ok || got != wanted {
				t.Errorf("crypto/tls found %q, %v; want %q", got, ok, wanted)
			}
			differ(t, b)
		})
	}
}

func FuzzClientHello(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		differ(t, b)
		raw, name, _, err := gateway.ReadHello(bytes.NewReader(b), maxHello)
		_, again, _, err2 := gateway.ReadHello(iotest.OneByteReader(bytes.NewReader(b)), maxHello)
		if again != name || (err == nil) != (err2 == nil) {
			t.Errorf("got %q, %v at once and %q, %v by bytes", name, err, again, err2)
		}
		if err != nil && name != "" || len(raw) > maxHello || !bytes.HasPrefix(b, raw) {
			t.Errorf("got %q, %v and %d bytes of %d", name, err, len(raw), len(b))
		}
	})
}

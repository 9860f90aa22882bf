package gateway_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

const maxHeader = 16 << 10

// The seeds of the fuzz targets are files: they run with every test.
func TestFuzzSeeds(t *testing.T) {
	for _, target := range []string{"FuzzRequest", "FuzzHTTP2", "FuzzClientHello", "FuzzSOCKS5Server"} {
		seeds, err := os.ReadDir(filepath.Join("testdata", "fuzz", target))
		if err != nil || len(seeds) < 4 {
			t.Errorf("%s: got %d seeds, %v", target, len(seeds), err)
		}
	}
}

// What is accepted means to net/http what it means to us; what isn't is
// answered in a way that net/http understands; and how the bytes come makes no
// difference.
func FuzzRequest(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		h, rest, err := gateway.ReadHead(bytes.NewReader(data), maxHeader)
		slow, slowRest, slowErr := gateway.ReadHead(iotest.OneByteReader(bytes.NewReader(data)), maxHeader)
		if diff := cmp.Diff(h, slow); diff != "" || (err == nil) != (slowErr == nil) {
			t.Fatalf("by the byte, got %v, want %v: %s", slowErr, err, diff)
		}
		if err != nil {
			res, rerr := http.ReadResponse(bufio.NewReader(bytes.NewReader(gateway.Answer(err))), nil)
			if rerr != nil || res.StatusCode < 400 {
				t.Fatalf("%v: got answer %v, %v", err, res, rerr)
			}
			res.Body.Close()
			return
		}
		// The rest is what was read, and of more than a buffer not all was.
		if !bytes.Contains(data, rest) || len(slowRest) > 0 {
			t.Fatalf("got rest %q, by the byte %q", rest, slowRest)
		}
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(bytes.TrimLeft(data, "\r\n"))))
		if err != nil {
			return // it judges Host and what else means nothing here
		}
		if req.Method != "CONNECT" || req.URL.Host != h.Authority {
			t.Fatalf("got %q, net/http has %v, %v", h.Authority, req, err)
		}
		// net/http wants one space behind the scheme, RFC 9110 allows more.
		scheme, value, _ := strings.Cut(req.Header.Get("Proxy-Authorization"), " ")
		value = scheme + " " + strings.TrimLeft(value, " ")
		auth := &http.Request{Header: http.Header{"Authorization": {value}}}
		user, password, ok := auth.BasicAuth()
		if ok && (user != h.User || password != h.Password) || !ok && h.User != "" {
			t.Fatalf("got %+v, net/http has %q, %q", h, user, password)
		}
		if h.Bearer != "" && !strings.HasSuffix(auth.Header.Get("Authorization"), h.Bearer) {
			t.Fatalf("got bearer %q of %q", h.Bearer, auth.Header)
		}
	})
}

// Nothing that a client of HTTP/2 sends brings the door down, or keeps it.
func FuzzHTTP2(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		b := newBed(t, door{serve: (*gateway.Gateway).ServeConnect}, func(g *gateway.Gateway) {
			g.Authenticate, g.Route, g.Dial = gateway.Anyone, nil, dialEcho
		})
		conn := b.wire()
		go func() {
			io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			conn.Write(data)
			conn.(interface{ CloseWrite() error }).CloseWrite()
		}()
		io.Copy(io.Discard, conn)
	})
}

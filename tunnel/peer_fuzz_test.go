package tunnel_test

import (
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// Whatever a replica says on its control stream and on another one, the one
// that it dialed neither hangs nor panics, and serves the next.
func FuzzGuest(f *testing.F) {
	cluster := []byte(testCluster)
	f.Add(rawPeerHello("b"), rawMessage(68, uint16(7), cluster, uint16(12), []byte("x")), rawMessage(64, uint16(7), cluster))
	f.Add(rawPeerHello("b"), []byte{}, rawMessage(66, uint16(7), cluster, uint16(6), []byte("tcp"), uint16(5), []byte("echo:7"), uint16(14), uint64(1000)))
	f.Add(rawPeerHello("b"), []byte{}, rawMessage(66, uint16(7), []byte("none"), uint16(6), []byte("udp"), uint16(5), []byte("echo"), uint16(14), uint64(1<<63)))
	f.Add(rawPeerHello("b"), []byte{0, 68, 0, 0, 0, 9}, rawMessage(64, uint16(7), cluster))
	f.Add(rawPeerHello("a"), []byte{}, rawMessage(67))
	f.Add(rawPeerHello("b"), []byte{}, slices.Concat(rawMessage(70, uint16(7), cluster), rawMessage(8, uint16(12), []byte("key"))))
	f.Add(rawPeerHello(""), []byte{0, 68, 0, 0, 0, 9}, rawMessage(67))
	b := newBed(f, &tunnel.Server{Name: "a", HandshakeTimeout: time.Second})
	b.agent(&tunnel.Agent{})
	c, err := tunnel.ServerCredentials(b.s.Authority)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, hello, control, stream []byte) {
		wire, err := b.w.Dial(t.Context(), "tcp", wireAddress)
		if err != nil {
			t.Fatal(err)
		}
		defer wire.Close()
		carrier, err := tunnel.RawPeerCarrier(testContext(t), wire, c)
		if err != nil {
			return // a busy machine takes longer than HandshakeTimeout
		}
		session := mux.Client(carrier, nil)
		defer session.Close()
		first, err := session.Open(t.Context(), hello[:min(len(hello), 60<<10)])
		if err != nil {
			t.Fatal(err)
		}
		first.SetDeadline(time.Now().Add(20 * time.Second))
		if kind, _, err := readRaw(first); err != nil || kind != 2 {
			return // it was refused
		}
		first.Write(control)
		second, err := session.Open(t.Context(), stream[:min(len(stream), 60<<10)])
		if err != nil {
			return
		}
		second.SetDeadline(time.Now().Add(20 * time.Second))
		second.CloseWrite()
		if _, err := io.Copy(io.Discard, io.LimitReader(second, 1<<20)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the stream hangs: %v", err)
		}
	})
}

// Whatever a replica answers, the one that dialed it is as it was.
func FuzzPeerAnswer(f *testing.F) {
	f.Add(rawMessage(2, uint16(3), uint64(1), uint16(4), []byte("x"), uint16(18), []byte("b")), rawMessage(68, uint16(7), []byte(testCluster), uint16(12), []byte("x")))
	f.Add(rawMessage(2, uint16(3), uint64(1), uint16(4), []byte("x"), uint16(18), []byte("b")), rawMessage(68, uint16(7), []byte(testCluster), uint16(14), uint64(1700000000000)))
	f.Add(rawMessage(2, uint16(3), uint64(1), uint16(4), []byte("raw"), uint16(18), []byte("b")), []byte{})
	f.Add(rawMessage(3, uint16(1), uint64(41)), []byte{})
	f.Add(rawMessage(3), []byte{})
	f.Fuzz(func(t *testing.T, welcome, rest []byte) {
		name, err := tunnel.ReadPeerAnswer(welcome)
		if err == nil && (name == "" || name == "a" || len(name) > 64) {
			t.Errorf("got a session with %q", name)
		}
		if id, ok := tunnel.ReadRevoked(rest); ok && id.Cluster == "" {
			t.Errorf("revoked %+v", id)
		}
	})
}

package mux_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/causewayproject/causeway/internal/mux"
)

// meter allows two of three direct writes, and counts all bytes.
type meter struct {
	net.Conn
	asked, taken, direct, written atomic.Int64
}

func (m *meter) Socket() net.Conn { return m.Conn }

func (m *meter) TakeNow(n int) bool {
	if m.asked.Add(1)%3 == 0 {
		return false
	}
	m.taken.Add(int64(n))
	m.direct.Add(1)
	return true
}

func (m *meter) Refund(n int) { m.taken.Add(-int64(n)) }

func (m *meter) Write(p []byte) (int, error) {
	m.written.Add(int64(len(p)))
	return m.Conn.Write(p)
}

var errNoMoney = errors.New("no money")

// toll counts bytes until there are too many.
type toll struct {
	net.Conn
	paid, most int
}

func (m *toll) Socket() net.Conn { return m.Conn }

func (m *toll) Pay(n int) error {
	if m.paid+n > m.most {
		return errNoMoney
	}
	m.paid += n
	return nil
}

// Each byte is counted once, whoever writes or reads it, and none is lost.
func TestMeters(t *testing.T) {
	a, b := sessions(t, tcpPair, nil)
	from, to := connect(t, a, b, "")
	source, in := tcpPair(t)
	dest, out := tcpPair(t)
	data := make([]byte, 8<<20)
	rand.Read(data)
	go func() {
		for p := data; len(p) > 0; p = p[min(len(p), 100_000):] {
			in.Write(p[:min(len(p), 100_000)])
		}
		in.(*net.TCPConn).CloseWrite()
	}()
	pays := &toll{Conn: source, most: len(data)}
	read := make(chan error, 1)
	go func() {
		_, err := from.ReadFrom(pays)
		read <- errors.Join(err, from.CloseWrite())
	}()
	counts := &meter{Conn: dest}
	delivered := make(chan int64, 1)
	go func() {
		n, _ := to.DeliverTo(counts)
		dest.(*net.TCPConn).CloseWrite()
		delivered <- n
	}()
	got, err := io.ReadAll(out)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes and %v, want %d", len(got), err, len(data))
	}
	if err := <-read; err != nil || pays.paid != len(data) {
		t.Errorf("ReadFrom: %v, and %d bytes were paid for", err, pays.paid)
	}
	if n := <-delivered; n != int64(len(data)) || counts.taken.Load()+counts.written.Load() != n || counts.direct.Load() == 0 {
		t.Errorf("delivered %d: %d by the session in %d writes, %d by Write", n, counts.taken.Load(), counts.direct.Load(), counts.written.Load())
	}
}

// Who can't pay for what was read gets an error, and the rest is not sent.
func TestTollFails(t *testing.T) {
	a, b := sessions(t, tcpPair, nil)
	from, to := connect(t, a, b, "")
	source, in := tcpPair(t)
	go in.Write(make([]byte, 1<<20))
	go io.Copy(io.Discard, to)
	if n, err := from.ReadFrom(&toll{Conn: source, most: 100_000}); !errors.Is(err, errNoMoney) || n > 100_000 {
		t.Errorf("got %d and %v", n, err)
	}
	var _ mux.Toll = (*toll)(nil)
	var _ mux.Meter = (*meter)(nil)
}

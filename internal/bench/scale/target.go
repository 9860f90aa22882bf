package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// What is asked of a target, in the first byte; a size follows, 8 bytes.
const (
	askEcho = 'e' // the size is of no meaning
	askSend = 's' // so many bytes, then the end
	askTake = 't' // so many bytes, then a byte
)

func question(kind byte, size int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, uint64(size))
}

// serveTarget answers until the listener is closed.
func serveTarget(l net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer conn.Close()
			serveConn(conn)
		})
	}
}

// serveConn ends with the connection, whose other end is the tunnel's: when
// that goes, it goes.
func serveConn(conn net.Conn) {
	var head [9]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return
	}
	size := int64(binary.BigEndian.Uint64(head[1:]))
	switch head[0] {
	case askEcho:
		io.Copy(conn, conn)
	case askSend:
		io.CopyBuffer(conn, struct{ io.Reader }{io.LimitReader(zeros{}, size)}, make([]byte, 64<<10))
	case askTake:
		if _, err := io.CopyN(io.Discard, conn, size); err == nil {
			conn.Write([]byte{1})
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

const answerTimeout = 30 * time.Second

// echo has the target answer a byte.
func echo(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(answerTimeout))
	if _, err := conn.Write(append(question(askEcho, 0), 7)); err != nil {
		return err
	}
	var got [1]byte
	if _, err := io.ReadFull(conn, got[:]); err != nil {
		return err
	}
	if got[0] != 7 {
		return errors.New("another byte came back")
	}
	return nil
}

// transfer moves bytes down from the target or up to it, and returns how many a second.
func transfer(conn net.Conn, up bool, size int64) (float64, error) {
	conn.SetDeadline(time.Now().Add(10 * answerTimeout))
	kind := byte(askSend)
	if up {
		kind = askTake
	}
	began := time.Now()
	if _, err := conn.Write(question(kind, size)); err != nil {
		return 0, err
	}
	if up {
		buf := make([]byte, 64<<10)
		for left := size; left > 0; left -= int64(len(buf)) {
			if _, err := conn.Write(buf[:min(left, int64(len(buf)))]); err != nil {
				return 0, err
			}
		}
		if _, err := io.ReadFull(conn, buf[:1]); err != nil {
			return 0, err
		}
	} else if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, 64<<10)); err != nil || n != size {
		return 0, errors.Join(err, errShort)
	}
	return float64(size) / time.Since(began).Seconds(), nil
}

var errShort = errors.New("the stream did not carry all")

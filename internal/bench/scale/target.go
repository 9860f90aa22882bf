package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// serveTarget sends back what comes, until the listener is closed.
func serveTarget(l net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			// It ends with the connection, whose other end is the tunnel's: when
			// that goes, it goes.
			defer conn.Close()
			io.Copy(conn, conn)
		})
	}
}

const answerTimeout = 30 * time.Second

// exchangeByte has the target answer a byte.
func exchangeByte(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(answerTimeout))
	if _, err := conn.Write([]byte{7}); err != nil {
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

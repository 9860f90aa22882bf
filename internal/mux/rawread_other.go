//go:build !unix

package mux

type rawReader interface {
	read(s *Session, limit int) (*buffer, error)
}

func newRawReader(socketConn) rawReader { return nil }

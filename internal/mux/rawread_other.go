//go:build !unix

package mux

import "net"

type rawReader interface {
	read(s *Session, limit int) (*buffer, error)
}

func newRawReader(net.Conn) rawReader { return nil }

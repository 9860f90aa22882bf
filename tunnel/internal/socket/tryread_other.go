//go:build !unix

package socket

import (
	"errors"
	"net"
)

// tryReader is for systems whose sockets can be read without waiting.
type tryReader struct{}

func newTryReader(net.Conn) *tryReader { return nil }

func (*tryReader) read(func()) (*[BufferSize]byte, int, error) { return nil, 0, errors.ErrUnsupported }

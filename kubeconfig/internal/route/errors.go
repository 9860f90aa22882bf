package route

import "net"

// closedError is net.ErrClosed in other words. client-go takes the words "use
// of closed network connection" for a passing fault and repeats a GET ten
// times, a second apart.
type closedError struct{}

// ErrClosed is the error of a client that was closed.
var ErrClosed error = closedError{}

func (closedError) Error() string { return "connect: the client is closed" }

func (closedError) Is(target error) bool { return target == net.ErrClosed }

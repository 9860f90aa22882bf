package connect

import (
	"syscall"

	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

var errClosed = route.ErrClosed

// replacedError is the end of what still used an old kubeconfig. client-go
// repeats a GET and resumes a watch after a reset, which is what this was.
type replacedError struct{}

var errReplaced error = replacedError{}

func (replacedError) Error() string {
	return "connect: cut, since another kubeconfig has replaced the one in use: connection reset by peer"
}

func (replacedError) Unwrap() error { return syscall.ECONNRESET }

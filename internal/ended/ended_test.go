package ended_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/ended"
)

func TestError(t *testing.T) {
	why := errors.New("why")
	lives, late := t.Context(), context.Context(nil)
	late, cancel := context.WithDeadline(lives, time.Unix(1, 0))
	defer cancel()
	canceled, cancelCause := context.WithCancelCause(lives)
	cancelCause(why)
	closed := &net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		want string
		is   []error
	}{
		{"no end", lives, io.ErrUnexpectedEOF, "unexpected EOF", []error{io.ErrUnexpectedEOF}},
		{"the cause came first", late, io.ErrUnexpectedEOF, "context deadline exceeded: unexpected EOF", []error{io.ErrUnexpectedEOF, context.DeadlineExceeded}},
		{"the end says where", late, errors.Join(late.Err(), io.EOF), "context deadline exceeded\nEOF", []error{io.EOF, context.DeadlineExceeded}},
		{"what follows from the end", late, closed, "context deadline exceeded", []error{context.DeadlineExceeded}},
		{"a deadline that was set for the end", late, os.ErrDeadlineExceeded, "context deadline exceeded", []error{context.DeadlineExceeded}},
		{"what was cancelled for the end", late, fmt.Errorf("request: %w", context.Canceled), "context deadline exceeded", []error{context.DeadlineExceeded}},
		{"nothing but the end", late, late.Err(), "context deadline exceeded", []error{context.DeadlineExceeded}},
		{"canceled for a reason", canceled, closed, "context canceled: why", []error{context.Canceled, why}},
		{"the end says where, and has a reason", canceled, fmt.Errorf("dial: %w", context.Canceled), "why: dial: context canceled", []error{context.Canceled, why}},
		{"the reason came first", canceled, fmt.Errorf("waiting: %w", why), "context canceled: waiting: why", []error{context.Canceled, why}},
		{"canceled for a reason, and a cause", canceled, io.EOF, "context canceled: why: EOF", []error{context.Canceled, why, io.EOF}},
	} {
		err := ended.Error(tt.ctx, tt.err)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
		for _, is := range tt.is {
			if !errors.Is(err, is) {
				t.Errorf("%s: errors.Is finds no %v in %v", tt.name, is, err)
			}
		}
	}
}

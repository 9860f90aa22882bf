package tunnel

import (
	"context"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
)

// AwaitAnswer waits for the answer to a dial on a stream of the session.
func AwaitAnswer(ctx context.Context, m *mux.Session, stream *mux.Stream, another func(context.Context) bool) error {
	g := group.New(ctx)
	defer g.Drain(ctx)
	s := sessionCore{mux: m, group: g}
	_, err := s.awaitAnswer(ctx, stream, another)
	return err
}

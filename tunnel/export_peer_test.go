package tunnel

import (
	"context"

	"github.com/causewayproject/causeway/internal/mux"
)

// JoinStreams relays between two streams until both have ended.
func JoinStreams(ctx context.Context, near, far *mux.Stream) {
	j := newJoint(ctx, near, func() {})
	j.join(far)
	j.relay()
}

package dialer

import (
	"context"
	"errors"
)

// ErrLoop is the cause when a proxy would have to be dialed through itself:
// because it is the target, or because its Forward leads back to it. It is also
// the cause when a [Resolve] would have to look a name up in order to look it up.
var ErrLoop = errors.New("dialer: the proxy would be dialed through itself")

type hopKey struct{}

// hop is a dialer that waits for another: its Forward, or that of its lookup.
type hop struct {
	dialer any // a pointer
	outer  *hop
}

// withHop returns the context for the Forward of d. A nil forward is Direct
// and needs none.
func withHop(ctx context.Context, d any, forward Dialer) context.Context {
	if forward == nil {
		return ctx
	}
	return enter(ctx, d)
}

// enter returns the context for what d waits for.
func enter(ctx context.Context, d any) context.Context {
	outer, _ := ctx.Value(hopKey{}).(*hop)
	return context.WithValue(ctx, hopKey{}, &hop{d, outer})
}

// looping reports whether d waits for the dial of ctx.
func looping(ctx context.Context, d any) bool {
	h, _ := ctx.Value(hopKey{}).(*hop)
	for ; h != nil; h = h.outer {
		if h.dialer == d {
			return true
		}
	}
	return false
}

// checkLoop reports ErrLoop if d, at proxy, is asked for itself or has a dial
// under way that led here.
func checkLoop(ctx context.Context, d any, proxy *proxyAddr, t *target) error {
	if proxy.is(t) {
		return ErrLoop
	}
	if looping(ctx, d) {
		return ErrLoop
	}
	return nil
}

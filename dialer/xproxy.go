package dialer

import (
	"context"
	"errors"
	"net"

	"golang.org/x/net/proxy"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/internal/race"
)

// ToProxy returns d as a dialer of golang.org/x/net/proxy, for functions that take
// one, such as [proxy.SOCKS5]. It is a [proxy.ContextDialer] too. Its Dial is
// DialContext with context.Background. If d is nil, every dial fails in [PhaseConfig].
func ToProxy(d Dialer) proxy.Dialer { return toProxy{d} }

type toProxy struct{ Dialer }

var _ proxy.ContextDialer = toProxy{}

func (d toProxy) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d toProxy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if isNil(d.Dialer) {
		return nil, &Error{Op: opProxy, Phase: PhaseConfig, Addr: address, Err: errors.New("the Dialer is nil")}
	}
	return d.Dialer.DialContext(ctx, network, address)
}

// FromProxy returns d as a Dialer. Its dials end with their context, and its errors
// are an [*Error] whose cause is d's error. If d is nil, every dial fails in
// [PhaseConfig].
//
// If d is a [proxy.ContextDialer], its DialContext is used. Otherwise its Dial runs
// on a goroutine of its own. When the context ends, the dial fails at once, but the
// goroutine ends only when Dial returns; it closes a connection that comes then.
//
// golang.org/x/net's SOCKS5 has a data race on cancel if its forward dialer has no
// DialContext: pass ToProxy(FromProxy(forward)) to it.
func FromProxy(d proxy.Dialer) Dialer {
	if ours, ok := d.(toProxy); ok && !isNil(ours.Dialer) {
		return ours.Dialer
	}
	return fromProxy{d}
}

type fromProxy struct{ proxy.Dialer }

func (d fromProxy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if isNil(d.Dialer) {
		return nil, &Error{Op: opProxy, Phase: PhaseConfig, Addr: address, Err: errors.New("the proxy.Dialer is nil")}
	}
	conn, err := d.dial(ctx, network, address)
	if _, ours := err.(*Error); ours || err == nil {
		return conn, err
	}
	return nil, &Error{Op: opProxy, Phase: PhaseTCP, Addr: address, Err: ended.Error(ctx, err)}
}

func (d fromProxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// PerHost hands dialers without DialContext to x/net's own goroutine, which
	// races with a cancel.
	_, perHost := d.Dialer.(*proxy.PerHost)
	if cd, ok := d.Dialer.(proxy.ContextDialer); ok && !perHost {
		return cd.DialContext(ctx, network, address)
	}
	results := make(chan race.Attempt) // without a buffer: a conn is taken or closed
	go func() {
		conn, err := d.Dial(network, address)
		select {
		case results <- race.Attempt{Conn: conn, Err: err}:
		case <-ctx.Done():
			if err == nil {
				conn.Close()
			}
		}
	}()
	select {
	case r := <-results:
		return r.Conn, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

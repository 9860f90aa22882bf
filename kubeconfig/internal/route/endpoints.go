package route

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/abort"
)

const (
	// endpointHedge is how long an endpoint may be silent before the next one
	// is tried beside it.
	endpointHedge = 2 * time.Second
	// handshakeTimeout is client-go's.
	handshakeTimeout = 10 * time.Second
)

// endpoints are the addresses of one API server. A dial of the server's address
// returns a connection to the first of them that works.
type endpoints struct {
	server    Server
	addresses []string // the server's first
	// proxyAlone says that all are reached by one proxy: if the proxy fails,
	// there is no need to try them.
	proxyAlone bool
	worked     atomic.Int32 // the index of the last one that has
}

func newEndpoints(r *Route, more []string) *endpoints {
	return &endpoints{
		server: r.Server, addresses: append([]string{r.Server.Address}, more...),
		proxyAlone: r.Proxy != nil && !r.mixed,
	}
}

// newFailover returns a dialer that has dial try the addresses.
func (e *endpoints) newFailover(dial DialFunc, first ...dialer.Dialer) dialer.Dialer {
	f := &dialer.Failover{Dialers: first, Hedge: endpointHedge, Retry: e.shouldRetry}
	for i, address := range e.addresses {
		f.Dialers = append(f.Dialers, dialer.Func(func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, endpointError(address, err)
			}
			e.worked.Store(int32(i))
			return conn, nil
		}))
	}
	return dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
		if !EqualAddress(address, e.server.Address) {
			return dial(ctx, network, address)
		}
		return f.DialContext(ctx, network, address)
	})
}

// withoutHandshake dials connections whose TLS we can't see. Only the transport notices
// an endpoint that accepts connections and then says nothing: the one that worked last
// is asked first.
func (e *endpoints) withoutHandshake(d dialer.Dialer) dialer.Dialer {
	return e.newFailover(d.DialContext, dialer.Func(func(ctx context.Context, network, _ string) (net.Conn, error) {
		address := e.addresses[e.worked.Load()]
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, endpointError(address, err)
		}
		return conn, nil
	}))
}

// install makes a transport try the addresses until a TLS handshake succeeds.
func (e *endpoints) install(t *http.Transport) {
	dial := t.DialContext
	t.DialContext = e.newFailover(dial).DialContext
	t.DialTLSContext = e.newFailover(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return e.handshake(ctx, conn, address, t.TLSClientConfig)
	}).DialContext
}

// handshake closes conn if it fails.
func (e *endpoints) handshake(ctx context.Context, conn net.Conn, address string, config *tls.Config) (net.Conn, error) {
	config = cmp.Or(config, &tls.Config{}).Clone()
	config.ServerName = cmp.Or(config.ServerName, e.serverName(address))
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		abort.Close(secured)
		return nil, fmt.Errorf("tls: %w", err)
	}
	return secured, nil
}

// serverName is the server's for all of its endpoints.
func (e *endpoints) serverName(address string) string {
	if slices.Contains(e.addresses, address) {
		return e.server.Host()
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// shouldRetry returns false for errors that another endpoint would return, too.
func (e *endpoints) shouldRetry(err error) bool {
	var de *dialer.Error
	if !errors.As(err, &de) {
		return true
	}
	switch de.Phase {
	case dialer.PhaseConfig, dialer.PhaseAuth:
		return false
	case dialer.PhaseDNS, dialer.PhaseTCP, dialer.PhaseTLS:
		return !e.proxyAlone
	}
	return de.Status != http.StatusProxyAuthRequired
}

// endpointError says which endpoint failed, and hides the kind of dialer from
// a Failover: that would not remember a direct target that can't be reached, but here
// the target is the part that may be down.
func endpointError(address string, err error) error {
	var de *dialer.Error
	if !errors.As(err, &de) {
		return fmt.Errorf("%s: %w", address, err)
	}
	own := *de
	own.Op = "endpoint"
	return &own
}

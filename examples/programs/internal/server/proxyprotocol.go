package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

const (
	headerTimeout = 5 * time.Second // a load balancer sends the header at once
	maxHeaders    = 1000            // that are waited for at one listener
)

// proxyProtocol is the use of HAProxy's PROXY protocol, versions 1 and 2, by which a load
// balancer names the client of a TCP connection.
type proxyProtocol struct {
	from cli.List // the flag
	// networks are those of the load balancers in front of the listeners.
	networks []netip.Prefix
}

func (p *proxyProtocol) add(set *pflag.FlagSet) {
	set.Var(&p.from, "proxy-protocol-from", "`network` of load balancers in front of the listeners, such as 10.0.0.0/24: connections from there have to begin with a PROXY header, version 1 or 2, and the client is who it names; several are allowed; not for --status; default none")
}

func (p *proxyProtocol) check() error {
	for _, text := range p.from {
		network, err := cli.ParseNetwork(text)
		switch {
		case err != nil:
			return cli.Mistake("--proxy-protocol-from %q %v", text, err)
		case network.Bits() == 0:
			return cli.Mistake("--proxy-protocol-from %q: whoever connects could name any client: want the networks of the load balancers", text)
		}
		p.networks = append(p.networks, network)
	}
	return nil
}

// wrapListener returns a listener that reads the headers. Refused is told what was closed.
func (p *proxyProtocol) wrapListener(l net.Listener, refused func(remote net.Addr, err error)) net.Listener {
	if len(p.networks) == 0 {
		return l
	}
	slots := make(chan struct{}, maxHeaders) // a header that is waited for has one
	return group.NewListener(l, func(ctx context.Context, conn net.Conn) net.Conn {
		if !p.isBalancer(conn.RemoteAddr()) {
			return conn
		}
		var client net.Conn
		err := fmt.Errorf("%d connections have not sent theirs yet", maxHeaders)
		select {
		case slots <- struct{}{}:
			client, err = readHeader(ctx, conn)
			<-slots
		default:
		}
		if err == nil {
			return client
		}
		conn.Close()
		if ctx.Err() == nil {
			refused(conn.RemoteAddr(), err)
		}
		return nil
	})
}

func (p *proxyProtocol) isBalancer(remote net.Addr) bool {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return false
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	return slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// readHeader returns the connection as that of the client whom the header names.
func readHeader(ctx context.Context, conn net.Conn) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	conn.SetReadDeadline(time.Now().Add(headerTimeout))
	r := bufio.NewReader(conn)
	awaitLine(r)
	header, err := proxyproto.Read(r)
	if err != nil {
		return nil, err
	}
	early, _ := r.Peek(r.Buffered())
	client := &clientConn{Conn: conn, reader: io.MultiReader(bytes.NewReader(early), conn), remote: conn.RemoteAddr()}
	if !header.Command.IsLocal() { // else the balancer itself connects, to see whether we live
		tcp, ok := header.SourceAddr.(*net.TCPAddr)
		if !ok {
			return nil, errors.New("the header's source is not an address of TCP")
		}
		client.remote = tcp
	}
	return client, conn.SetReadDeadline(time.Time{})
}

// awaitLine waits for all of a header of version 1. It may come in pieces, which proxyproto
// does not wait for. An error is left to proxyproto's Read.
func awaitLine(r *bufio.Reader) {
	const begin, most = "PROXY", 107
	for n := 1; n <= most; n = r.Buffered() + 1 {
		if _, err := r.Peek(n); err != nil {
			return
		}
		line, _ := r.Peek(r.Buffered())
		if bytes.IndexByte(line, '\n') >= 0 || !bytes.HasPrefix(line, []byte(begin[:min(len(begin), len(line))])) {
			return
		}
	}
}

// clientConn is the connection of a client behind a load balancer.
type clientConn struct {
	net.Conn
	reader io.Reader // what came with the header, and then Conn
	remote net.Addr
}

// RemoteAddr returns the client's address.
func (c *clientConn) RemoteAddr() net.Addr { return c.remote }

// NetConn returns the connection to the load balancer.
func (c *clientConn) NetConn() net.Conn { return c.Conn }

// Read reads what the client sent.
func (c *clientConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// CloseWrite ends what is written.
func (c *clientConn) CloseWrite() error { return relay.CloseWrite(c.Conn) }

// headerRefused reports a load balancer's connection whose PROXY header is missing or
// wrong, as its listener reports others that it does not let in.
func (p *program) headerRefused(listener string, remote net.Addr, err error) {
	err = fmt.Errorf("PROXY header, which --proxy-protocol-from asks of this address: %w", err)
	refused := &gateway.Error{Phase: gateway.PhaseHandshake, Err: err}
	refused.Request.Door = gateway.Door(strings.TrimSuffix(listener, "-tls"))
	refused.Request.Credentials.Remote = remote
	switch failed := p.doorFailed[listener]; {
	case failed != nil:
		failed(refused)
	case listener == "forward":
		p.events.doorFailed(listener, refused)
	default:
		p.events.refusals.record(listener, refused.Phase, remote, err)
		p.server.Hooks.Refused(remote, &tunnel.Error{Op: "connect", Code: tunnel.CodeBadRequest, Err: err})
	}
}

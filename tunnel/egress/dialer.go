package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"

	"github.com/causewayproject/causeway/dialer"
)

// Dialer returns the Dialer of the selection, which is [dialer.Direct] if there
// is none, as it is for kube-apiserver. The error of an unknown name, of a
// configuration that does not validate or of a file that can't be read is a
// [*FieldError]; that of GRPC is one too, and is ErrProtocol.
//
// A Dialer with TLS reads its files again for each dial: certificates get
// renewed without a restart. While what is there can't be used, such as the new
// certificate with the old key, it goes on with what was read before.
//
// Names are resolved by the proxy. The Dialer is safe for concurrent use, and
// needs no close; the configuration may be changed afterwards.
func (c *Configuration) Dialer(name Name) (dialer.Dialer, error) {
	var f fields
	switch name.canonical() {
	case Cluster, ControlPlane, Etcd:
	default:
		f.add("egressSelections", "%q is no name: want cluster, controlplane or etcd", name)
		return nil, f.err()
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	for i, s := range c.Selections {
		if s.Name.canonical() == name.canonical() {
			return s.Connection.dialer(fmt.Sprintf("egressSelections[%d].connection", i))
		}
	}
	return dialer.Direct{}, nil
}

// dialer is for a connection that is valid.
func (c Connection) dialer(at string) (dialer.Dialer, error) {
	switch {
	case c.ProxyProtocol == ProtocolDirect:
		return dialer.Direct{}, nil
	case c.ProxyProtocol == ProtocolGRPC:
		return nil, &FieldError{at + ".proxyProtocol", fmt.Errorf("%w: GRPC; Konnectivity's server speaks HTTPConnect with --mode=http-connect", ErrProtocol)}
	case c.Transport.UDS != nil:
		return &dialer.HTTPConnect{Addr: "unix:" + c.Transport.UDS.Name}, nil
	}
	tcp := c.Transport.TCP
	u, err := url.Parse(tcp.URL)
	if err != nil {
		return nil, &FieldError{at + ".transport.tcp.url", err}
	}
	d := &tlsDialer{addr: u.Host, serverName: tcp.TLSConfig.ServerName, files: files{names: *tcp.TLSConfig}}
	if _, err := d.files.load(); err != nil {
		err.Field = at + ".transport.tcp.tlsConfig." + err.Field
		return nil, err
	}
	return d, nil
}

// tlsDialer is an HTTPConnect whose TLSConfig is that of the moment.
type tlsDialer struct {
	addr, serverName string
	files            files
}

var _ dialer.Dialer = (*tlsDialer)(nil)

func (d *tlsDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	now := d.files.current()
	proxy := &dialer.HTTPConnect{Addr: d.addr, TLSConfig: &tls.Config{
		MinVersion:   tls.VersionTLS12,
		RootCAs:      now.roots,
		Certificates: []tls.Certificate{now.pair},
		ServerName:   d.serverName,
	}}
	return proxy.DialContext(ctx, network, address)
}

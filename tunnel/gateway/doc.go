// Package gateway gives a dial function the forms that programs understand which
// cannot be changed: a proxy URL (HTTP CONNECT over TCP, TLS and unix sockets, by
// HTTP/1.1 and HTTP/2; SOCKS5) and a server name (SNI). So kubectl, Cluster API's own
// controllers, Flux, Argo CD and kube-apiserver can reach a cluster by a route that
// their configuration cannot express.
//
//	g := &gateway.Gateway{
//		Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
//			return server.Dialer(r.Cluster).DialContext(ctx, "tcp", r.Address)
//		},
//		Authenticate: passwords.Authenticate,
//	}
//	go g.ServeConnect(ctx, listener)
//
// It does not depend on the tunnel: any dial function serves.
//
// # Authentication and authorization
//
// The zero Gateway refuses every client: Authenticate decides whether to let a client
// in, and returns its [Identity]. Route may derive the cluster from that, or from the
// target that the client asked for. Dial has the last word, by its error: one that is or wraps
// syscall.EACCES is a refusal (403 Forbidden), others mean that the target failed.
//
// A door without TLS shows the password to everybody on the traffic's path: keep it on
// loopback or a unix socket.
package gateway

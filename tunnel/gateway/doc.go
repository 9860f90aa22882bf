// Package gateway gives a dial function the forms that programs which cannot
// be changed understand: a proxy URL (HTTP CONNECT over TCP, TLS and unix
// sockets, HTTP/1.1 and HTTP/2; SOCKS5) and a server name (SNI). So kubectl,
// Cluster API's own controllers, Flux, Argo and kube-apiserver take a route
// that their configuration has no word for.
//
//	g := &gateway.Gateway{
//		Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
//			return server.Dialer(r.Cluster).DialContext(ctx, "tcp", r.Address)
//		},
//		Authenticate: passwords.Authenticate,
//	}
//	go g.ServeConnect(ctx, listener)
//
// It knows nothing of tunnels: any dial function serves.
//
// # Who may do what
//
// Nobody, until the Gateway's Authenticate says so: the zero Gateway refuses
// every client. What it answers is the client's [Identity]; Route may derive the
// cluster from it, or from what was asked for; Dial has the last word, by its
// error. An error that is or wraps syscall.EACCES is a refusal (403 Forbidden),
// others say that the target failed.
//
// A door without TLS shows the password to whoever sees the traffic: keep it on
// loopback or a unix socket.
package gateway

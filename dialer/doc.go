// Package dialer makes connections through proxies: HTTP CONNECT over plain
// TCP, TLS or HTTP/2, SOCKS5, either on a unix socket, and any of them behind
// another.
//
// A [Dialer] has the one method of [net.Dialer] and fits wherever that does:
//
//	u, err := dialer.ParseURL("http://user:password@proxy.example.com:3128")
//	d, err := dialer.FromURL(u, nil)
//	conn, err := d.DialContext(ctx, "tcp", "10.0.0.1:6443")
//
// or as the transport of an HTTP client, [Transport](d), or as
// rest.Config.Dial. [FromEnvironment] takes the proxy that the environment
// names, [Config] one that is configured in the same words. Dialers compose:
//
//   - The Forward field of a proxy is the Dialer that reaches it. [Chain] connects
//     several proxies one behind the other.
//   - [Router] chooses a Dialer by patterns of hosts, and by a no_proxy list.
//   - [Failover] tries equivalent Dialers until one works, and says which failed.
//   - [Resolve] looks names up in this process, before the proxy is asked.
//   - [Swap] can be replaced while it is in use.
//
// An https proxy that speaks HTTP/2 can carry all dials on one connection: see
// [HTTP2]. [FromProxy] and [ToProxy] convert dialers of golang.org/x/net/proxy.
// SOCKS4 is not supported.
//
// Use [net/http.Transport].Proxy instead if you only need net/http through one
// proxy, and neither the proxy's TLS nor its errors matter.
//
// # Security
//
// A mistake is an error, and never a direct connection: a proxy URL that can't be
// read, an unknown scheme, an address that can't be sent. An https proxy has a TLS
// configuration of its own, and never gets the client certificate for the target. A
// proxy that would be dialed through itself is [ErrLoop]. No error and no text of a
// Dialer has credentials in it. A proxy sees where it connects to, and everything
// that is sent unless the caller encrypts it.
package dialer

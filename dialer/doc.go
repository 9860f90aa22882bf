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
//   - The Forward field of a proxy is the Dialer that reaches it. [Chain] makes
//     one way of several proxies.
//   - [Router] has a Dialer for each pattern of hosts, and for what no_proxy
//     lists.
//   - [Failover] has several for the same, and says which failed.
//   - [Fallback] has a second one that is not the same, and says each time that
//     it is taken.
//   - [Resolve] looks names up here, for a Dialer whose far side knows others.
//   - [Swap] is one that can be replaced while it is in use.
//
// An https proxy that speaks HTTP/2 can carry all dials on one connection: see
// [HTTP2]. Dialers of golang.org/x/net/proxy fit in by [FromProxy], and ours
// there by [ToProxy]. SOCKS4 is not spoken.
//
// Use [net/http.Transport].Proxy instead if all that you need is net/http
// through one proxy, and neither its TLS nor its errors matter.
//
// # Security
//
// What is wrong fails: no proxy URL that can't be read, no unknown scheme and
// no address that can't be sent turns into a direct connection. The TLS
// configuration of an https proxy is its own; a client certificate for the
// target is never offered to it. A proxy that would be dialed through itself is
// [ErrLoop]. Credentials are in no error and in no text of a Dialer. A proxy
// sees where it connects to, and everything that is sent unless the caller
// encrypts it.
package dialer

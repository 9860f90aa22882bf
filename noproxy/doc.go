// Package noproxy decides which hosts are reached without a proxy, from a list
// such as the environment variable NO_PROXY has.
//
//	rules := noproxy.Parse("localhost,.svc,.cluster.local,10.96.0.0/12")
//	rules.Bypass("kubernetes.default.svc", "443") // true: connect directly
//	rules.Bypass("registry.example.com", "443")   // false: through the proxy
//
// The verdicts are those of golang.org/x/net/http/httpproxy, and thus of
// net/http: a program that dials through Causeway and one that uses
// http.ProxyFromEnvironment agree about every host, but for the malformed ones
// that [Rules.Bypass] names. What differs is that no proxy URL is needed to ask,
// and that the answer takes neither an allocation nor longer for a long list.
//
// # Items
//
// A list is separated by commas only; white space around an item is dropped.
//
//	example.com        the name and every name below it
//	.example.com       the names below it, not the name
//	*.example.com      the same
//	10.0.0.1           the address, also as ::ffff:10.0.0.1
//	2001:db8::1        the address, with any zone
//	10.0.0.0/8         the addresses of the network
//	example.com:8443   the name and those below it, on this port
//	10.0.0.1:8443      the address, on this port
//	[2001:db8::1]:443  the address, on this port
//	*                  everything, whatever else is in the list
//
// Names do not match addresses: "example.com" says nothing about the address
// that it resolves to, and "10.0.0.0/8" nothing about the names that resolve to
// its addresses. The name localhost and loopback addresses are never proxied.
//
// Some items look as though they did something and do not: [2001:db8::1]
// without a port, a network with a port, an asterisk inside a word, and a port
// with a leading zero. "example.com" does not match "example.com." either.
//
// [Options] turns on what some programs do and Go does not, each for itself: a
// dot at the end that does not count, networks with a port, white space between
// items. Options.Strict makes errors of the items that cover nothing.
//
// # Which item decided, and what do others make of it
//
// [Rules.Explain] names the item that decided about a host, or one that nearly
// did. [Lint] asks what curl, wget, Python, Ruby, Node.js and the JVM make of a
// list, and what to write so that they read it as Go does; [Consumer.Bypass] is
// the verdict of one of them.
//
// # The list of a cluster
//
// [Cluster] has what a Kubernetes cluster must reach directly, and its List
// says of each entry where it is from. [Merge] adds the lists of others, and
// [List.For] writes the whole for a program that reads less than Go does.
//
//	list, err := noproxy.Cluster{
//		PodCIDRs:     []string{"10.244.0.0/16"},
//		ServiceCIDRs: []string{"10.96.0.0/12"},
//	}.List()
//	list = noproxy.Merge(list, noproxy.ParseList(os.Getenv("NO_PROXY"), "environment"))
//	value, findings := list.For(noproxy.Curl)
//
// Programs disagree about which case of the variable they read first: set both
// no_proxy and NO_PROXY, to the same value.
//
// # When to use something else
//
// For http.Transport.Proxy alone, http.ProxyFromEnvironment or httpproxy will
// do. The PerHost type of golang.org/x/net/proxy reads a list in another way
// and takes "example.com" for that one name.
//
// # Security
//
// A wrong bypass sends traffic, and the credentials in it, around the proxy
// that was to carry, filter or log it. A proxy that was bypassed by mistake is
// not noticed where the direct connection works too. Therefore:
//
//   - Ask about the host that is dialed, after redirects, and not about one
//     that a peer merely claims, such as a Host header.
//   - Do not resolve a name in order to ask about its address: whoever controls
//     the name then decides about the bypass.
//   - Review a list that others contribute to. One lone "*", or a network such
//     as 0.0.0.0/0, switches the proxy off.
//   - Nothing in a list is an error without Options.Strict. An item with a
//     typing mistake matches no host, so that its traffic goes to the proxy, or
//     it matches another one.
//   - Ask [Lint] about programs that share the list: curl takes ".example.com" for
//     the name itself, too, and Ruby 2001:db8::1 for all of IPv4 that ends in .1.
//
// Errors, explanations and findings hide what looks like a URL or credentials. A
// list as such is never redacted: [Rules.String] and [List.String] return it.
package noproxy

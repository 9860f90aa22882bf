// Package noproxy decides which hosts are reached without a proxy. It reads lists
// as they are in the environment variable NO_PROXY.
//
//	rules := noproxy.Parse("localhost,.svc,.cluster.local,10.96.0.0/12")
//	rules.Bypass("kubernetes.default.svc", "443") // true: connect directly
//	rules.Bypass("registry.example.com", "443")   // false: through the proxy
//
// The verdicts are those of golang.org/x/net/http/httpproxy, and so of net/http: a
// program that dials through Causeway and one that uses http.ProxyFromEnvironment
// agree about every host, except for the malformed ones that [Rules.Bypass] names.
// Unlike httpproxy it needs no proxy URL, does not allocate, and takes no longer for
// a long list.
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
// Names and addresses do not match each other: "example.com" does not cover the
// address that it resolves to, nor "10.0.0.0/8" the names that resolve to its
// addresses. The name localhost and loopback addresses are never proxied.
//
// Some items cover nothing: [2001:db8::1] without a port, a network with a port, an
// asterisk inside a word, and a port with a leading zero. "example.com" does not
// match "example.com." either.
//
// Which internationalised names are valid depends on the Go that builds: its tables of
// Unicode are those of golang.org/x/net/idna, in Go 1.27 newer ones than in Go 1.26.
//
// [Options].Strict reports the items that cover nothing as errors.
//
// # How a list is read
//
// [Rules.Explain] names the item that decided about a host, or one that nearly
// did. [Lint] reports what curl, wget, Python, Ruby, Node.js and the JVM read
// differently, and what to write so that they read it as Go does. [Consumer.Bypass]
// returns the verdict of one of them.
//
// # The list of a cluster
//
// [Cluster] describes what a Kubernetes cluster must reach directly. Its List names
// the source of each entry. [Merge] joins lists, and [List.JVM] writes a list for a
// JVM, whose setting has another form.
//
//	list, err := noproxy.Cluster{
//		PodCIDRs:     []string{"10.244.0.0/16"},
//		ServiceCIDRs: []string{"10.96.0.0/12"},
//	}.List()
//	list = noproxy.Merge(list, noproxy.ParseList(os.Getenv("NO_PROXY"), "environment"))
//	value := list.String()
//
// Programs disagree about which case of the variable they read first: set both
// no_proxy and NO_PROXY, to the same value.
//
// # When to use something else
//
// For http.Transport.Proxy, http.ProxyFromEnvironment or httpproxy is enough. The
// PerHost type of golang.org/x/net/proxy reads a list differently: there
// "example.com" covers only that name.
//
// # Security
//
// A wrong bypass sends traffic, and the credentials in it, around the proxy that
// should carry, filter or log it. If the direct connection works too, nobody
// notices. Therefore:
//
//   - Ask about the host that is dialed, after redirects, and not about one that a
//     peer claims, such as a Host header.
//   - Do not resolve a name to ask about its address: then the owner of the name
//     decides about the bypass.
//   - Review a list that others contribute to. One item "*", or a network such as
//     0.0.0.0/0, switches the proxy off.
//   - Without Options.Strict nothing in a list is an error. An item with a typing
//     mistake covers no host, so its traffic goes to the proxy, or another one.
//   - Use [Lint] for programs that share the list: curl reads ".example.com" as the
//     name itself too, and Ruby 2001:db8::1 as all IPv4 addresses that end in .1.
//
// Errors, explanations and findings hide what looks like a URL or credentials.
// [Rules.String] and [List.String] hide nothing.
package noproxy

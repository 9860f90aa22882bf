package e2e

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// A route is a way from the client to the API server.
type route struct {
	name    string
	proxy   *url.URL
	proxyCA []byte                   // of an https proxy
	log     func() ([]string, error) // the proxy's own
	logged  []string                 // what its line of kubectl's connection has; nil if kubectl cannot use it
	client  []string                 // what its line of a Client's connection has
	refused []string                 // what its line of a refused password has; nil if it writes none
}

func routes(b *bed.Bed) []route {
	routes := append(squidRoutes(b), haproxyRoutes(b)...)
	return append(routes, tinyproxyRoute(b), danteRoute(b), microsocksRoute(b), sshRoute(b))
}

// kubectlRoutes are the routes that kubectl can use.
func kubectlRoutes(b *bed.Bed) []route {
	return slices.DeleteFunc(routes(b), func(r route) bool { return r.logged == nil })
}

func squidRoutes(b *bed.Bed) []route {
	connect := " CONNECT " + b.Kube.Address() + " "
	user := "user=" + bed.ProxyUser
	http := "port=" + b.Squid.URL().Port() + " "
	https := "port=" + b.Squid.TLSURL().Port() + " tls=TLS/1.3 "
	return []route{{
		name:    "squid-http",
		proxy:   b.Squid.URL(),
		log:     b.Squid.Log,
		logged:  []string{http, "status=200", connect, user},
		client:  []string{http, "status=200", connect, user},
		refused: []string{http, "status=407", connect},
	}, {
		name:    "squid-https",
		proxy:   b.Squid.TLSURL(),
		proxyCA: b.Squid.CA.CertPEM(),
		log:     b.Squid.Log,
		// kubectl shows an https proxy the certificate that is meant for the
		// server. That the log has it gives its absence with our client a
		// meaning.
		logged:  []string{https, "client-certificate=/O=system:masters/CN=kubernetes-admin", "status=200", connect, user},
		client:  []string{https, "client-certificate=- ", "status=200", connect, user},
		refused: []string{https, "status=407", connect},
	}}
}

func haproxyRoutes(b *bed.Bed) []route {
	connect := " CONNECT " + b.Kube.Address() + " "
	http := "port=" + b.HAProxy.URL().Port() + " "
	https := "port=" + b.HAProxy.TLSURL().Port() + " tls=TLSv1.3 "
	return []route{{
		name:    "haproxy-http",
		proxy:   b.HAProxy.URL(),
		log:     b.HAProxy.Log,
		logged:  []string{http, "status=200", connect},
		client:  []string{http, "status=200", connect},
		refused: []string{http, "status=407", connect},
	}, {
		name:    "haproxy-h2",
		proxy:   b.HAProxy.TLSURL(),
		proxyCA: b.HAProxy.CA.CertPEM(),
		log:     b.HAProxy.Log,
		client:  []string{https, "client-certificate=- ", "status=200", connect},
		refused: []string{https, "status=407", connect},
	}}
}

func tinyproxyRoute(b *bed.Bed) route {
	established := []string{`Established connection to host "` + b.Kube.Host() + `"`}
	return route{
		name:   "tinyproxy",
		proxy:  b.Tinyproxy.URL(),
		log:    b.Tinyproxy.Log,
		logged: established,
		client: established,
	}
}

func danteRoute(b *bed.Bed) route {
	passed := []string{
		"pass(1): tcp/connect [",
		"username%" + bed.ProxyUser + "@" + bed.ClientIP + ".",
		" " + b.Kube.Host() + "." + strconv.Itoa(int(b.Kube.Port())), // its way to write a port
	}
	return route{
		name:    "dante",
		proxy:   b.Dante.URL(),
		log:     b.Dante.Log,
		logged:  passed,
		client:  passed,
		refused: []string{"block(1)", bed.ClientIP + ".", "authentication failed for user"},
	}
}

func microsocksRoute(b *bed.Bed) route {
	connected := []string{" " + bed.ClientIP + ": connected to " + b.Kube.Address()}
	return route{
		name:   "microsocks",
		proxy:  b.Microsocks.URL(),
		log:    b.Microsocks.Log,
		logged: connected,
		client: connected,
	}
}

func sshRoute(b *bed.Bed) route {
	opened := []string{"server_request_direct_tcpip: ", " target " + b.Kube.Host() + " port " + strconv.Itoa(int(b.Kube.Port()))}
	return route{
		name:   "ssh",
		proxy:  b.SSH.URL(),
		log:    b.SSH.Log,
		logged: opened,
		client: opened,
	}
}

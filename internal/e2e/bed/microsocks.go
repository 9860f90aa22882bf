package bed

import (
	"context"
	"net"
	"net/url"
	"strconv"
)

const microsocksPort = 1081

// A Microsocks is microsocks in the proxy namespace, a SOCKS5 server that asks
// for a user name and a password and connects wherever it is told to.
type Microsocks struct {
	process *Process
}

// URL returns the proxy's URL with credentials.
func (m *Microsocks) URL() *url.URL { return proxyURL("socks5", microsocksPort) }

// Log returns the lines of its log, one a connection that it made:
//
//	client[4] 198.51.100.2: connected to 192.0.2.10:6443
//
// It is silent about a refused password.
func (m *Microsocks) Log() ([]string, error) { return logLines(m.process.log) }

func startMicrosocks(ctx context.Context, ns *Namespace) (*Microsocks, error) {
	port := strconv.Itoa(microsocksPort)
	p, err := ns.start("microsocks", programPath("microsocks"), "-i", ProxyIP, "-p", port, "-u", ProxyUser, "-P", ProxyPassword)
	if err != nil {
		return nil, err
	}
	return &Microsocks{p}, ns.waitListening(ctx, p, net.JoinHostPort(ProxyIP, port))
}

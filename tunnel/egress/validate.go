package egress

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// Validate returns what kube-apiserver would refuse, and what it accepts and
// then never connects with, or panics at: http://, a URL without a port, a
// socket's path that depends on the directory it was started in. It looks at no
// file: these are where the configuration is used.
func (c *Configuration) Validate() error {
	var f fields
	seen := map[Name]int{}
	for i, s := range c.Selections {
		at := fmt.Sprintf("egressSelections[%d]", i)
		name := s.Name.canonical()
		switch name {
		case Cluster, ControlPlane, Etcd:
		default:
			f.add(at+".name", "it is %q: want cluster, controlplane or etcd", s.Name)
		}
		if first, ok := seen[name]; ok {
			f.add(at+".name", "%q is the name of egressSelections[%d] already", s.Name, first)
		} else {
			seen[name] = i
		}
		f.connection(at+".connection", s.Connection)
	}
	return f.err()
}

func (n Name) canonical() Name { return Name(strings.ToLower(string(n))) }

func (f *fields) connection(at string, c Connection) {
	t := c.Transport
	switch c.ProxyProtocol {
	case ProtocolDirect:
		if t != nil {
			f.add(at+".transport", "a direct connection has none")
		}
	case ProtocolHTTPConnect:
		switch {
		case t == nil || t.TCP == nil && t.UDS == nil:
			f.add(at+".transport", "one of tcp and uds is required")
		case t.TCP != nil && t.UDS != nil:
			f.add(at+".transport", "only one of tcp and uds may be there")
		case t.TCP != nil:
			f.tcp(at+".transport.tcp", t.TCP)
		default:
			f.uds(at+".transport.uds", t.UDS)
		}
	case ProtocolGRPC:
		switch {
		case t == nil || t.UDS == nil:
			f.add(at+".transport.uds", "required: GRPC has no other transport")
		case t.TCP != nil:
			f.add(at+".transport.tcp", "GRPC has no other transport than uds")
		default:
			f.uds(at+".transport.uds", t.UDS)
		}
	default:
		f.add(at+".proxyProtocol", "it is %q: want HTTPConnect, Direct or GRPC", c.ProxyProtocol)
	}
}

func (f *fields) uds(at string, u *UDS) {
	at += ".udsName"
	switch {
	case u.Name == "":
		f.add(at, "required: the path of a socket")
	case strings.Contains(u.Name, "://"):
		f.add(at, "it is a path, without a scheme")
	case !filepath.IsAbs(u.Name) || strings.HasSuffix(u.Name, "/") || strings.ContainsRune(u.Name, 0):
		f.add(at, "it is not the absolute path of a socket")
	}
}

func (f *fields) tcp(at string, t *TCP) {
	f.url(at+".url", t.URL)
	if t.TLSConfig == nil {
		f.add(at+".tlsConfig", "required")
		return
	}
	if t.TLSConfig.ClientCert == "" {
		f.add(at+".tlsConfig.clientCert", "required: the file of a certificate")
	}
	if t.TLSConfig.ClientKey == "" {
		f.add(at+".tlsConfig.clientKey", "required: the file of the certificate's key")
	}
}

// url quotes nothing: a URL may hold a password.
func (f *fields) url(at, text string) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		f.add(at, "required: https://host:port")
	case err != nil:
		f.add(at, "it is not https://host:port")
	case u.Scheme == "http":
		f.add(at, "kube-apiserver can't do http, and panics at it without a tlsConfig: want https, or a unix socket")
	case u.Scheme != "https" || u.Hostname() == "":
		f.add(at, "it is not https://host:port")
	case u.User != nil:
		f.add(at, "it has user info, which kube-apiserver does not send: the client certificate authenticates")
	case !isPort(u.Port()):
		f.add(at, "it has no port from 1 to 65535, and there is no default")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		f.add(at, "it has more than host and port")
	}
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

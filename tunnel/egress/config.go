package egress

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// The type of the file. v1alpha1 has the same fields, and is read too.
const (
	apiVersion = "apiserver.k8s.io/v1beta1"
	apiAlpha   = "apiserver.k8s.io/v1alpha1"
	kind       = "EgressSelectorConfiguration"
)

// Configuration is an EgressSelectorConfiguration. The zero Configuration has
// no selections: everything is dialed directly.
type Configuration struct {
	// Selections has at most one Selection for each name.
	Selections []Selection `json:"egressSelections"`
}

// Selection is the connection for one kind of targets.
type Selection struct {
	// Name is the kind of targets. Required.
	Name Name `json:"name"`
	// Connection says how they are reached. Required.
	Connection Connection `json:"connection"`
}

// Name is a kind of targets. Case does not count, but in "master", an old name of
// ControlPlane, which [Parse] takes as kube-apiserver does.
type Name string

// The names that kube-apiserver knows.
const (
	Cluster      Name = "cluster"
	ControlPlane Name = "controlplane"
	Etcd         Name = "etcd"
)

// Protocol is how a proxy is asked.
type Protocol string

// The protocols that kube-apiserver knows.
const (
	ProtocolDirect      Protocol = "Direct"      // no proxy
	ProtocolHTTPConnect Protocol = "HTTPConnect" // CONNECT of HTTP/1.1
	ProtocolGRPC        Protocol = "GRPC"        // Konnectivity's own
)

// Connection says how targets are reached. [Direct], [ThroughSocket], [ThroughTLS] and
// [Parse] make one.
type Connection struct {
	// ProxyProtocol is how the proxy is asked. Required.
	ProxyProtocol Protocol `json:"proxyProtocol"`
	// Transport says how the proxy is reached. Required, but nil for ProtocolDirect.
	Transport *Transport `json:"transport,omitempty"`
}

// Transport is a unix socket or TCP: exactly one of its fields is set. GRPC has only
// unix sockets.
type Transport struct {
	TCP *TCP `json:"tcp,omitempty"`
	UDS *UDS `json:"uds,omitempty"`
}

// TCP is a proxy that is reached by TCP with TLS.
type TCP struct {
	// URL is https://host:port. Required; kube-apiserver knows no default port.
	// It has no use for http://: with a TLSConfig it refuses to start, and
	// without one it panics. User info is an error where a file is written, and
	// left out where one is read: kube-apiserver does not send it. Write an
	// internationalised host as xn--: kube-apiserver looks up what is written.
	URL string `json:"url,omitempty"`
	// TLSConfig is required.
	TLSConfig *TLS `json:"tlsConfig,omitempty"`
}

// TLS has the files of a connection to a proxy, which are PEM. The paths mean
// what they mean where the configuration is used: absolute ones are best.
type TLS struct {
	// CABundle has the roots for the proxy's certificate. If empty, they are the
	// system's.
	CABundle string `json:"caBundle,omitempty"`
	// ClientKey and ClientCert are shown to the proxy. Required.
	ClientKey  string `json:"clientKey,omitempty"`
	ClientCert string `json:"clientCert,omitempty"`
	// ServerName is the name in the proxy's certificate. If empty, the host of
	// the URL. A kube-apiserver that does not know the field refuses the file.
	ServerName string `json:"tlsServerName,omitempty"`
}

// UDS is a proxy that is reached by a unix socket.
type UDS struct {
	// Name is the path of the socket, absolute and without a scheme. Required.
	Name string `json:"udsName,omitempty"`
}

// Direct returns the Connection without a proxy.
func Direct() Connection { return Connection{ProxyProtocol: ProtocolDirect} }

// ThroughSocket returns the Connection through an HTTP proxy on a unix socket.
func ThroughSocket(path string) Connection {
	return Connection{ProxyProtocol: ProtocolHTTPConnect, Transport: &Transport{UDS: &UDS{Name: path}}}
}

// ThroughTLS returns the Connection through an HTTP proxy at https://host:port,
// which both sides authenticate with certificates.
func ThroughTLS(url string, files TLS) Connection {
	return Connection{ProxyProtocol: ProtocolHTTPConnect, Transport: &Transport{TCP: &TCP{URL: url, TLSConfig: &files}}}
}

// Marshal returns the file, as YAML, for kube-apiserver's
// --egress-selector-config-file. An error is Validate's.
func (c *Configuration) Marshal() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	selections := c.Selections
	if selections == nil {
		selections = []Selection{}
	}
	text, err := yaml.Marshal(struct {
		APIVersion string      `json:"apiVersion"`
		Kind       string      `json:"kind"`
		Selections []Selection `json:"egressSelections"`
	}{apiVersion, kind, selections})
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	return text, nil
}

// Validate returns what kube-apiserver would refuse, and what it accepts and
// then never connects with, or panics at: http://, a URL without a port, a
// socket's path that depends on the directory it was started in. It looks at no
// file: these are where the configuration is used.
func (c *Configuration) Validate() error {
	var f fieldErrors
	seen := map[Name]int{}
	for i, s := range c.Selections {
		at := fmt.Sprintf("egressSelections[%d]", i)
		name := s.Name.lowerCase()
		switch name {
		case Cluster, ControlPlane, Etcd:
		default:
			f.addError(at+".name", "it is %q: want cluster, controlplane or etcd", s.Name)
		}
		if first, ok := seen[name]; ok {
			f.addError(at+".name", "%q is the name of egressSelections[%d] already", s.Name, first)
		} else {
			seen[name] = i
		}
		f.checkConnection(at+".connection", s.Connection)
	}
	return f.joinErrors()
}

func (n Name) lowerCase() Name { return Name(strings.ToLower(string(n))) }

func (f *fieldErrors) checkConnection(at string, c Connection) {
	t := c.Transport
	switch c.ProxyProtocol {
	case ProtocolDirect:
		if t != nil {
			f.addError(at+".transport", "a direct connection has none")
		}
	case ProtocolHTTPConnect:
		switch {
		case t == nil || t.TCP == nil && t.UDS == nil:
			f.addError(at+".transport", "one of tcp and uds is required")
		case t.TCP != nil && t.UDS != nil:
			f.addError(at+".transport", "only one of tcp and uds may be there")
		case t.TCP != nil:
			f.checkTCP(at+".transport.tcp", t.TCP)
		default:
			f.checkUDS(at+".transport.uds", t.UDS)
		}
	case ProtocolGRPC:
		switch {
		case t == nil || t.UDS == nil:
			f.addError(at+".transport.uds", "required: GRPC has no other transport")
		case t.TCP != nil:
			f.addError(at+".transport.tcp", "GRPC has no other transport than uds")
		default:
			f.checkUDS(at+".transport.uds", t.UDS)
		}
	default:
		f.addError(at+".proxyProtocol", "it is %q: want HTTPConnect, Direct or GRPC", c.ProxyProtocol)
	}
}

func (f *fieldErrors) checkUDS(at string, u *UDS) {
	at += ".udsName"
	switch {
	case u.Name == "":
		f.addError(at, "required: the path of a socket")
	case strings.Contains(u.Name, "://"):
		f.addError(at, "it is a path, without a scheme")
	case !filepath.IsAbs(u.Name) || strings.HasSuffix(u.Name, "/") || strings.ContainsRune(u.Name, 0):
		f.addError(at, "it is not the absolute path of a socket")
	}
}

func (f *fieldErrors) checkTCP(at string, t *TCP) {
	f.checkURL(at+".url", t.URL)
	if t.TLSConfig == nil {
		f.addError(at+".tlsConfig", "required: the files of a client certificate and its key")
		return
	}
	if t.TLSConfig.ClientCert == "" {
		f.addError(at+".tlsConfig.clientCert", "required: the file of a certificate")
	}
	if t.TLSConfig.ClientKey == "" {
		f.addError(at+".tlsConfig.clientKey", "required: the file of the certificate's key")
	}
}

// checkURL quotes nothing: a URL may hold a password.
func (f *fieldErrors) checkURL(at, text string) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		f.addError(at, "required: https://host:port")
	case err != nil:
		f.addError(at, "it is not https://host:port")
	case u.Scheme == "http":
		f.addError(at, "kube-apiserver can't do http, and panics at it without a tlsConfig: want https, or a unix socket")
	case u.Scheme != "https" || u.Hostname() == "":
		f.addError(at, "it is not https://host:port")
	case u.User != nil:
		f.addError(at, "it has user info, which kube-apiserver does not send: the client certificate authenticates")
	case !isPort(u.Port()):
		f.addError(at, "it has no port from 1 to 65535, and there is no default")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		f.addError(at, "it has more than a host and a port: want https://host:port")
	}
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

// FieldError says which field of a configuration can't be used, and why.
// [Parse] and [Configuration.Validate] report all of them at once: the error
// wraps one FieldError each (errors.Join), of which errors.As finds the first.
type FieldError struct {
	// Field is the path, as in the file:
	// "egressSelections[0].connection.transport.tcp.url".
	Field string
	// Err is what is wrong and what is expected.
	Err error
}

// Error is the field and what is wrong with it.
func (e *FieldError) Error() string { return "egress: " + e.Field + ": " + fmt.Sprint(e.Err) }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// fieldErrors collects the errors of fields.
type fieldErrors struct{ errs []error }

func (f *fieldErrors) addError(field, format string, args ...any) {
	f.errs = append(f.errs, &FieldError{Field: field, Err: fmt.Errorf(format, args...)})
}

func (f *fieldErrors) joinErrors() error { return errors.Join(f.errs...) }

// ErrProtocol is the cause of [Configuration.Dialer]'s error for a protocol that this
// package does not support: GRPC.
var ErrProtocol = errors.New("egress: the protocol is not supported")

package egress

import (
	"fmt"

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
	// Selections are the ways, at most one for each name.
	Selections []Selection `json:"egressSelections"`
}

// Selection is the way to one kind of targets.
type Selection struct {
	// Name says which. Required.
	Name Name `json:"name"`
	// Connection is the way. Required.
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

// Connection is a way: [Direct], [ThroughSocket], [ThroughTLS], or one that was
// read.
type Connection struct {
	// ProxyProtocol is how the proxy is asked. Required.
	ProxyProtocol Protocol `json:"proxyProtocol"`
	// Transport leads to the proxy. Required but for ProtocolDirect, which has
	// none.
	Transport *Transport `json:"transport,omitempty"`
}

// Transport is a unix socket or TCP: exactly one of its fields is set. GRPC has
// unix sockets alone.
type Transport struct {
	TCP *TCP `json:"tcp,omitempty"`
	UDS *UDS `json:"uds,omitempty"`
}

// TCP leads to a proxy by TCP with TLS.
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
	// CABundle is what the proxy's certificate is held against. If empty, the
	// system's roots.
	CABundle string `json:"caBundle,omitempty"`
	// ClientKey and ClientCert are shown to the proxy. Required.
	ClientKey  string `json:"clientKey,omitempty"`
	ClientCert string `json:"clientCert,omitempty"`
	// ServerName is the name in the proxy's certificate. If empty, the host of
	// the URL. A kube-apiserver that does not know the field refuses the file.
	ServerName string `json:"tlsServerName,omitempty"`
}

// UDS leads to a proxy by a unix socket.
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

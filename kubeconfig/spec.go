package kubeconfig

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
)

// Spec says what a kubeconfig must lead to. It is only read: a Spec may be
// used by several goroutines at once.
//
// It prints without its secrets, whatever the verb. A struct of yours that
// holds a Spec in an unexported field does not: fmt can't call its methods
// there.
type Spec struct {
	// Name is the cluster's name. Required: a DNS name (RFC 1123 subdomain) of
	// at most 63 bytes, since Cluster API makes a label value of it.
	Name string
	// Endpoint is where the API server is. Required.
	Endpoint Endpoint
	// CA holds the PEM certificates that the API server is verified with.
	// Required, and at least one must be valid now. All of them are written, in
	// their order, and nothing else: a private key among them is an error.
	CA []byte
	// TLSServerName is the name that the API server's certificate is verified
	// for, and its SNI. If empty, Endpoint.Host. The certificates that kubeadm
	// makes carry kubernetes.default.svc, whatever the endpoint.
	TLSServerName string
	// Credentials is how the user authenticates. Required.
	Credentials Credentials
	// Route is how the API server is reached. The zero value is directly.
	Route Route
}

// Endpoint is the address of an API server, as Cluster API's APIEndpoint.
type Endpoint struct {
	// Host is a DNS name or an IP address: no scheme, no port, no brackets.
	// Required.
	Host string
	// Port is from 1 to 65535. Required: Cluster API's zero means that the
	// endpoint is not known yet, so that no port is guessed here.
	Port int32
}

// String returns host:port, an IPv6 address in brackets.
func (e Endpoint) String() string {
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// Route is how an API server is reached.
//
// # https proxies and kubectl
//
// A kubeconfig has no field for a proxy's own CA. kubectl, and every program
// that uses client-go unchanged, verifies an https proxy with the settings
// meant for the API server: the proxy's certificate has to lead to Spec.CA,
// and to be valid for Spec.TLSServerName where that is set. Append the proxy's
// CA to Spec.CA for them, and know what that says: whoever holds the proxy's
// CA can then pose as the API server. If the proxy asks for a client
// certificate, such programs also show it the one for the API server.
//
// A [Client] does neither: see [ClientOptions].ProxyTLS.
type Route struct {
	// ProxyURL is the URL of a proxy, scheme://[user[:password]@]host[:port],
	// as [dialer.ParseURL] takes it: http, https, socks5 or socks5h. If empty,
	// the API server is reached directly.
	//
	// kubeconfigs know no socks5h, and their socks5 lets the proxy resolve
	// names. Both are written as socks5, and both mean that.
	ProxyURL string
}

// Build returns a kubeconfig with one cluster, user and context, named as
// Cluster API names them: <name>, <name>-admin and <name>-admin@<name>. It is
// the same at each call, but for a key and certificate that it makes.
//
// The error wraps a [*FieldError] for each field that can't be used. It holds
// no secret; the kubeconfig does, and prints the proxy's password.
func (s Spec) Build() (*clientcmdapi.Config, error) {
	now := time.Now()
	ca, caErr := parseCA(s.CA, now)
	user, userErr := s.Credentials.authInfo(ca, now)
	proxyURL, proxyErr := s.Route.proxyURL()
	err := errors.Join(
		fieldError("Name", checkClusterName(s.Name)),
		s.Endpoint.check(),
		fieldError("CA", caErr),
		s.checkServerName(),
		userErr,
		fieldError("Route.ProxyURL", proxyErr),
	)
	if err != nil {
		return nil, err
	}
	cluster := clientcmdapi.NewCluster()
	cluster.Server = "https://" + s.Endpoint.String()
	cluster.CertificateAuthorityData = encodeCertificates(ca)
	cluster.TLSServerName = s.TLSServerName
	cluster.ProxyURL = proxyURL

	userName := s.Name + "-admin"
	kubeContext := clientcmdapi.NewContext()
	kubeContext.Cluster = s.Name
	kubeContext.AuthInfo = userName

	config := clientcmdapi.NewConfig()
	config.CurrentContext = userName + "@" + s.Name
	config.Clusters[s.Name] = cluster
	config.AuthInfos[userName] = user
	config.Contexts[config.CurrentContext] = kubeContext
	return config, nil
}

func (e Endpoint) check() error {
	hostErr := fieldError("Endpoint.Host", checkHost(e.Host))
	if e.Port < 1 || e.Port > 65535 {
		return errors.Join(hostErr, fieldErrorf("Endpoint.Port", "required, from 1 to 65535; got %d", e.Port))
	}
	return hostErr
}

func (s Spec) checkServerName() error {
	if s.TLSServerName == "" {
		return nil
	}
	return fieldError("TLSServerName", checkHost(s.TLSServerName))
}

// proxyURL returns the route as a kubeconfig's proxy-url.
func (r Route) proxyURL() (string, error) {
	if r.ProxyURL == "" {
		return "", nil
	}
	u, err := parseProxyURL(r.ProxyURL)
	if err != nil {
		return "", err
	}
	// This also checks what the scheme can carry of the credentials.
	if _, err := dialer.FromURL(u, nil); err != nil {
		return "", err
	}
	return u.String(), nil
}

// parseProxyURL returns text as client-go takes it: with socks5 for socks5h,
// and with none of the other schemes that package dialer has.
func parseProxyURL(text string) (*url.URL, error) {
	if u, err := url.Parse(text); err == nil && u.Opaque == "" {
		switch u.Scheme {
		case "", "http", "https", "socks5", "socks5h":
		default:
			return nil, fmt.Errorf("the scheme %q is not http, https, socks5 or socks5h", u.Scheme)
		}
	}
	u, err := dialer.ParseURL(text)
	if err == nil && u.Scheme == "socks5h" {
		u.Scheme = "socks5"
	}
	return u, err
}

// parseCA wants one certificate that is valid now: others may have expired
// while a CA is replaced.
func parseCA(data []byte, now time.Time) ([]*x509.Certificate, error) {
	certs, err := parseCertificates(data)
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		if err = checkValidity(cert, now); err == nil {
			return certs, nil
		}
	}
	if len(certs) > 1 {
		return nil, errors.New("none of the certificates is valid now; the last: " + err.Error())
	}
	return nil, err
}

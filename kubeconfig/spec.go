package kubeconfig

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// Spec describes the cluster, user and route of a kubeconfig. It is only read: a Spec may be
// used by several goroutines at once.
//
// It prints without its secrets, whatever the verb. A struct of yours that
// holds a Spec in an unexported field does not: fmt can't call its methods
// there.
type Spec struct {
	// Name is the cluster's name. Required: a DNS name (RFC 1123 subdomain) of
	// at most 63 bytes, since Cluster API makes a label value of it.
	Name string
	// Endpoint is where the API server is. Required, but for a Route by a
	// tunnel: there it is what the agent dials, kubernetes.default.svc:443 if
	// zero.
	Endpoint Endpoint
	// MoreEndpoints are further addresses of the same API servers, such as an
	// infrastructure object's status.apiEndpoints: package connect tries them in
	// their order when Endpoint can't be reached. Endpoint itself may be among
	// them, and is not tried twice. They are in the extension: other programs
	// know only Endpoint.
	MoreEndpoints []Endpoint
	// CA holds the PEM certificates that the API server is verified with.
	// Required, and at least one must be valid now. All of them are written, in
	// their order, and nothing else: a private key among them is an error.
	CA []byte
	// TLSServerName is the name that the API server's certificate is verified
	// for, and its SNI. If empty, Endpoint.Host; with a tunnel, kubernetes.default.svc. The certificates that kubeadm
	// makes carry kubernetes.default.svc, whatever the endpoint.
	TLSServerName string
	// Credentials is how the user authenticates. Required.
	Credentials Credentials
	// Route is how the API server is reached. The zero value is directly.
	Route Route
	// Now is when certificates are checked, and what they are made for. The zero value is
	// the clock's time.
	Now time.Time
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

// Build returns a kubeconfig with one cluster, user and context, named as
// Cluster API names them: <name>, <name>-admin and <name>-admin@<name>. It is
// the same at each call, but for a key and certificate that it makes.
//
// The error wraps a [*FieldError] for each field that can't be used. It holds
// no secret; the kubeconfig does, and prints the proxy's password.
func (s Spec) Build() (*clientcmdapi.Config, error) {
	now := cmp.Or(s.Now, time.Now())
	endpointErr, moreErr := s.checkEndpoint(), s.checkMoreEndpoints()
	routeErr := s.Route.check(s.Credentials)
	if s.Route.Tunnel != nil {
		s = s.throughTunnel()
	}
	ca, caErr := parseCA(s.CA, now)
	user, userErr := s.Credentials.authInfo(ca, now)
	proxyURL, proxyErr := s.Route.proxyURL()
	err := errors.Join(
		field.Wrap("Name", field.CheckClusterName(s.Name)),
		endpointErr,
		moreErr,
		field.Wrap("CA", caErr),
		s.checkServerName(),
		userErr,
		field.Wrap("Route.ProxyURL", proxyErr),
		routeErr,
	)
	if err != nil {
		return nil, err
	}
	cluster := clientcmdapi.NewCluster()
	cluster.Server = "https://" + s.Endpoint.String()
	cluster.CertificateAuthorityData = field.EncodeCertificates(ca)
	cluster.TLSServerName = s.TLSServerName
	cluster.ProxyURL = proxyURL
	if object := s.extension().Object(); object != nil {
		cluster.Extensions = map[string]runtime.Object{ExtensionName: object}
	}

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

// checkEndpoint leaves out what a tunnel makes up for.
func (s Spec) checkEndpoint() error {
	if s.Route.Tunnel != nil && s.Endpoint == (Endpoint{}) {
		return nil
	}
	return s.Endpoint.check("Endpoint")
}

func (e Endpoint) check(path string) error {
	hostErr := field.Wrap(path+".Host", field.CheckHost(e.Host))
	if e.Port < 1 || e.Port > 65535 {
		return errors.Join(hostErr, field.Errorf(path+".Port", "required, from 1 to 65535; got %d", e.Port))
	}
	return hostErr
}

func (s Spec) checkMoreEndpoints() error {
	var errs []error
	for i, e := range s.MoreEndpoints {
		errs = append(errs, e.check(fmt.Sprintf("MoreEndpoints[%d]", i)))
	}
	return errors.Join(errs...)
}

// moreEndpoints returns what there is to try after first, each once.
func moreEndpoints(first Endpoint, more []Endpoint) []string {
	var others []string
	seen := []Endpoint{first.canonicalEndpoint()}
	for _, e := range more {
		if one := e.canonicalEndpoint(); !slices.Contains(seen, one) {
			seen, others = append(seen, one), append(others, e.String())
		}
	}
	return others
}

func (s Spec) checkServerName() error {
	if s.TLSServerName == "" {
		return nil
	}
	return field.Wrap("TLSServerName", field.CheckHost(s.TLSServerName))
}

// parseCA wants one certificate that is valid now: others may have expired
// while a CA is replaced.
func parseCA(data []byte, now time.Time) ([]*x509.Certificate, error) {
	certs, err := field.ParseCertificates(data)
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		if err = field.CheckValidity(cert, now); err == nil {
			return certs, nil
		}
	}
	if len(certs) > 1 {
		return nil, errors.New("none of the certificates is valid now; the last: " + err.Error())
	}
	return nil, err
}

// FieldError says which field can't be used and what is expected of it. It
// holds no secret: neither its text nor Err repeats what a field held.
//
// It has two fields: Field is the path of the field, such as "Endpoint.Host"
// or "Route.ProxyURL"; Err, which Unwrap returns, is what is wrong and what is
// expected.
//
// [Spec.Build] reports all fields at once: the error that it returns wraps one
// FieldError each (errors.Join), of which errors.As finds the first.
type FieldError = field.Error

// String returns s without its secrets.
func (s Spec) String() string {
	endpoint := s.Endpoint.String()
	if s.checkEndpoint() != nil {
		endpoint = "(invalid)" // it may be a URL with a password
	}
	return fmt.Sprintf("kubeconfig.Spec{Name: %q, Endpoint: %s, CA: %d bytes, TLSServerName: %q, Credentials: %s, Route: %s}",
		s.Name, endpoint, len(s.CA), s.TLSServerName, s.Credentials, s.Route)
}

// Format writes String, whatever the verb.
func (s Spec) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (s Spec) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String returns which methods are set.
func (c Credentials) String() string {
	methods := c.authMethods()
	if len(methods) == 0 {
		return "(none)"
	}
	return "(" + strings.Join(methods, " and ") + ", redacted)"
}

// Format writes String, whatever the verb.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// String returns the proxy or the gateway without its user info, or "direct".
func (r Route) String() string {
	switch {
	case r.Tunnel != nil:
		return r.Tunnel.String()
	case r.ProxyURL == "":
		return "direct"
	}
	return field.WithoutUser(r.ProxyURL)
}

// String returns the cluster and the gateway, without the credentials.
func (t Tunnel) String() string {
	return fmt.Sprintf("tunnel to %q by %s", t.Cluster, field.WithoutUser(t.Gateway))
}

// Format writes String, whatever the verb.
func (t Tunnel) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (t Tunnel) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Format writes String, whatever the verb.
func (r Route) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (r Route) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

package kubeconfig

import (
	"fmt"
	"io"
	"strings"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

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

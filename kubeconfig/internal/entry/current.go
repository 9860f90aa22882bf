// Package entry reads the entries of a kubeconfig: those of its current
// context, and our extension of the cluster's.
package entry

import (
	"fmt"
	"net/url"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// InCluster is a name in every certificate of an API server.
const InCluster = "kubernetes.default.svc"

// Current is what a kubeconfig's current context refers to.
type Current struct {
	Context     string
	ClusterName string
	Cluster     *clientcmdapi.Cluster  // never nil
	User        *clientcmdapi.AuthInfo // nil if the context names none
}

// Field is the path of a field of the cluster entry.
func (c *Current) Field(name string) string {
	return fmt.Sprintf("clusters[%q].%s", c.ClusterName, name)
}

// ServerURL is the API server's URL without what may be secret in it; empty if
// that can't be told.
func (c *Current) ServerURL() string {
	u, err := url.Parse(c.Cluster.Server)
	if err != nil || u.User != nil || u.Host == "" {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// FollowContext returns the entries of config's current context. An error is a
// *field.Error.
func FollowContext(config *clientcmdapi.Config) (*Current, error) {
	if config == nil {
		return nil, field.Wrap("config", field.ErrRequired)
	}
	if config.CurrentContext == "" {
		return nil, field.Wrap("current-context", field.ErrRequired)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, field.Errorf("current-context", "there is no context %q", config.CurrentContext)
	}
	c := &Current{
		Context:     config.CurrentContext,
		ClusterName: current.Cluster,
		Cluster:     config.Clusters[current.Cluster],
		User:        config.AuthInfos[current.AuthInfo],
	}
	path := fmt.Sprintf("contexts[%q].", config.CurrentContext)
	switch {
	case c.Cluster == nil:
		return nil, field.Errorf(path+"cluster", "there is no cluster %q", current.Cluster)
	case c.User == nil && current.AuthInfo != "":
		return nil, field.Errorf(path+"user", "there is no user %q", current.AuthInfo)
	case c.Cluster.Server == "":
		return nil, field.Wrap(c.Field("server"), field.ErrRequired)
	}
	return c, nil
}

package gateway

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
)

// ByUser is a Route by the user name of the credentials, which is the cluster. An
// Identity with a Cluster may name no other one.
func ByUser(_ context.Context, r *Request) error {
	return setCluster(r, r.Credentials.User)
}

// setCluster sets the cluster, unless the client may only reach another one.
func setCluster(r *Request, cluster string) error {
	switch {
	case cluster == "":
		return fmt.Errorf("%w: none is named", errNoRoute)
	case r.Client.Cluster != "" && r.Client.Cluster != cluster:
		return fmt.Errorf("this client may not reach cluster %q: %w", cluster, syscall.EACCES)
	}
	r.Cluster = cluster
	return nil
}

// ByAuthority returns a Route by the target's name. The cluster is between service
// and zone, as in kubernetes.default.svc.<cluster>.<zone>:443, which is
// kubernetes.default.svc:443 in that cluster. A cluster namespace/name is written
// name.namespace. Names outside of the zone are refused.
func ByAuthority(zone string) func(context.Context, *Request) error {
	zone = "." + strings.ToLower(strings.Trim(zone, "."))
	return func(_ context.Context, r *Request) error {
		host, port, err := net.SplitHostPort(r.Address)
		if err != nil {
			return errNoAddress
		}
		name, ok := strings.CutSuffix(strings.TrimSuffix(strings.ToLower(host), "."), zone)
		service, cluster, found := strings.Cut(name, ".svc.")
		if !ok || !found || service == "" {
			return fmt.Errorf("%w: %q is not of the form SERVICE.svc.CLUSTER%s", errNoRoute, host, zone)
		}
		if name, namespace, two := strings.Cut(cluster, "."); two {
			cluster = namespace + "/" + name
		}
		r.Address = net.JoinHostPort(service+".svc", port)
		return setCluster(r, cluster)
	}
}

// Table maps server names to targets. It may be replaced while it is in use; the
// zero Table is empty. See [ByTable].
type Table struct {
	names atomic.Pointer[map[string]Place]
}

// Place is the target of a server name.
type Place struct {
	Cluster string
	// Address is the target in the cluster, host:port.
	Address string
}

// Set replaces the table. Case does not matter; "*.example.com" stands for the names
// one label below, and "" for clients that ask for no name.
func (t *Table) Set(names map[string]Place) {
	lower := make(map[string]Place, len(names))
	for name, p := range names {
		lower[strings.ToLower(strings.TrimSuffix(name, "."))] = p
	}
	t.names.Store(&lower)
}

// Lookup returns the target of a name.
func (t *Table) Lookup(name string) (Place, bool) {
	names := t.names.Load()
	if names == nil {
		return Place{}, false
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if p, ok := (*names)[name]; ok {
		return p, true
	}
	if _, below, ok := strings.Cut(name, "."); ok {
		p, ok := (*names)["*."+below]
		return p, ok
	}
	return Place{}, false
}

// ByTable returns a Route by the server name that the client's TLS asks for. A name
// that is not in the table is refused.
func ByTable(t *Table) func(context.Context, *Request) error {
	return func(_ context.Context, r *Request) error {
		p, ok := t.Lookup(r.Credentials.ServerName)
		if !ok {
			return fmt.Errorf("%w: nothing is served by the name %q", errNoRoute, r.Credentials.ServerName)
		}
		r.Address = p.Address
		return setCluster(r, p.Cluster)
	}
}

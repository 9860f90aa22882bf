package kubernetes

import (
	"context"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// EndpointSlices finds the replicas of a Service by its EndpointSlices: it is
// the membership of the tunnel servers behind it. It is safe for concurrent use.
//
// A replica is listed while it is ready or serving. One that was asked to end
// but still serves is among them: it may hold the only session of an agent.
//
// It takes the right to list and watch endpointslices (discovery.k8s.io) in
// Namespace, which a Role can grant.
type EndpointSlices struct {
	// Client reaches the API server. Required.
	Client kubernetes.Interface
	// Namespace is the Service's. Required.
	Namespace string
	// Service is the name of the Service, headless or not. Required.
	Service string
	// Port is where the replicas take each other's connections: the name of a
	// port of the Service, or a number, which the Service need not have. If
	// empty, the Service's only TCP port; of several none is taken.
	Port string
	// Error is told why the API server can't be watched. Each is tried again.
	// If nil, nobody is. It must not block.
	Error func(error)
}

func (s EndpointSlices) check() error {
	switch {
	case s.Client == nil:
		return required("endpoint slices", "Client")
	case s.Namespace == "":
		return required("endpoint slices", "Namespace")
	case s.Service == "":
		return required("endpoint slices", "Service")
	}
	return nil
}

// Watch calls set with the addresses of all replicas, host:port, sorted, once
// they are known and after each change, until ctx ends. For replicas that take
// each other's connections by WebSocket, Server.PeerTransport makes URLs of
// them. While the API server is
// away, the last ones stay. The error is about a field, or nil.
func (s EndpointSlices) Watch(ctx context.Context, set func(addresses []string)) error {
	if err := s.check(); err != nil {
		return err
	}
	informer := discoveryinformers.NewFilteredEndpointSliceInformer(s.Client, s.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{discoveryv1.LabelServiceName: s.Service}.String()
	})
	lister := discoverylisters.NewEndpointSliceLister(informer.GetIndexer())
	var last []string
	known := false
	err := follow(ctx, informer, func(err error) { s.failed(wrapped("watch endpoint slices", err)) }, func() {
		found, err := lister.List(labels.Everything())
		if err != nil {
			return // of a selector that does not select: there is none
		}
		if all := s.addresses(found); !known || !slices.Equal(all, last) {
			known, last = true, all
			set(slices.Clone(all))
		}
	})
	return wrapped("watch endpoint slices", err)
}

func (s EndpointSlices) failed(err error) {
	if s.Error != nil {
		s.Error(err)
	}
}

// addresses are those of all slices. An endpoint may be in two of them for a
// while.
func (s EndpointSlices) addresses(found []*discoveryv1.EndpointSlice) (all []string) {
	for _, slice := range found {
		port, ok := s.port(slice.Ports)
		if !ok || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if !serves(endpoint.Conditions) {
				continue
			}
			for _, address := range endpoint.Addresses {
				all = append(all, net.JoinHostPort(address, port))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// serves reads the conditions as the API says: what is not said is that it
// is ready, and that it serves if it is ready.
func serves(c discoveryv1.EndpointConditions) bool {
	ready := c.Ready == nil || *c.Ready
	return ready || c.Serving != nil && *c.Serving
}

// port finds the port among those of a slice.
func (s EndpointSlices) port(ports []discoveryv1.EndpointPort) (string, bool) {
	if n, err := strconv.ParseUint(s.Port, 10, 16); err == nil && n > 0 {
		return s.Port, true
	}
	var found []string
	for _, p := range ports {
		tcp := p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP
		named := s.Port == "" || p.Name != nil && *p.Name == s.Port
		if tcp && named && p.Port != nil {
			found = append(found, strconv.Itoa(int(*p.Port)))
		}
	}
	if len(found) != 1 {
		return "", false
	}
	return found[0], true
}

package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/causewayproject/causeway/tunnel"
)

// EndpointSlices finds the replicas of a Service by its EndpointSlices, so that
// tunnel servers know each other: see [tunnel.Server.Peers]. It is safe for
// concurrent use.
//
// The zone of a replica is that of its node, topology.kubernetes.io/zone.
//
// A replica is listed while it is ready or serving. One that terminates and still
// serves is listed, too: it may hold the only session of an agent.
//
// It needs the right to list and watch endpointslices (discovery.k8s.io) in
// Namespace, which a Role can grant.
type EndpointSlices struct {
	// Client reaches the API server; a kubernetes.Interface of client-go is one. Required.
	Client interface {
		DiscoveryV1() discoveryclient.DiscoveryV1Interface
	}
	// Namespace is the Service's. Required.
	Namespace string
	// Service is the name of the Service, headless or not. Required.
	Service string
	// Port is where the replicas accept each other's connections: the name of a
	// port of the Service, or a number, which the Service need not have. If empty,
	// it is the Service's only TCP port; a Service with several then has no
	// replicas.
	Port string
	// Error, if not nil, is called when the API server can't be watched. The watch
	// is tried again. It must not block.
	Error func(error)
}

var _ tunnel.Membership = EndpointSlices{}

// Watch calls set with the addresses of all replicas, host:port, and the zones of their
// nodes, first when they are known and then after each change, until ctx ends. While the
// API server is down, the last ones stay. The error is about a field, or says that the
// Service has had no slice for half a minute, which even one without endpoints has.
func (s EndpointSlices) Watch(ctx context.Context, set func(zones map[string]string)) error {
	if err := checkFields("endpoint slices", s.Client, "Namespace", s.Namespace, "Service", s.Service); err != nil {
		return err
	}
	informer := newInformer(s.Client.DiscoveryV1().EndpointSlices(s.Namespace), &discoveryv1.EndpointSlice{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{discoveryv1.LabelServiceName: s.Service}.String()
	})
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	missing := time.AfterFunc(missingTime, func() {
		stop(fmt.Errorf("the Service %q in the Namespace %q has no EndpointSlice: is its name right?", s.Service, s.Namespace))
	})
	missing.Stop() // the API server may be down
	defer missing.Stop()
	var last map[string]string // nil: set was not called yet
	err := followInformer(watching, informer, func(err error) { reportError(s.Error, wrapError("watch endpoint slices", err)) }, func() {
		found := informer.GetStore().List()
		switch {
		case len(found) > 0:
			missing.Stop()
		case last == nil:
			missing.Reset(missingTime)
		}
		if all := s.zonesOf(found); last == nil || !maps.Equal(all, last) {
			last = all
			set(maps.Clone(all))
		}
	})
	if err == nil && ctx.Err() == nil {
		err = context.Cause(watching)
	}
	err = wrapError("watch endpoint slices", err)
	reportError(s.Error, err)
	return err
}

// missingTime is how long a Service may have no slice.
var missingTime = 30 * time.Second

// zonesOf returns the addresses of all slices, with their zones. For a while, an endpoint
// may be in two of them.
func (s EndpointSlices) zonesOf(found []any) map[string]string {
	all := map[string]string{}
	for _, object := range found {
		slice := object.(*discoveryv1.EndpointSlice)
		port, ok := s.findPort(slice.Ports)
		if !ok || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if !isServing(endpoint.Conditions) {
				continue
			}
			for _, address := range endpoint.Addresses {
				address = net.JoinHostPort(address, port)
				if zone := endpoint.Zone; zone != nil && *zone != "" {
					all[address] = *zone
				} else if all[address] == "" {
					all[address] = ""
				}
			}
		}
	}
	return all
}

// isServing reads the conditions as the API defines them: a missing Ready is true,
// and a missing Serving is as Ready.
func isServing(c discoveryv1.EndpointConditions) bool {
	ready := c.Ready == nil || *c.Ready
	return ready || c.Serving != nil && *c.Serving
}

// findPort returns the port of a slice's endpoints.
func (s EndpointSlices) findPort(ports []discoveryv1.EndpointPort) (string, bool) {
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

// lister is a client of one kind of object in a namespace.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// newInformer returns an informer of the objects that choose selects. The informers of client-go need
// its whole clientset.
func newInformer[L runtime.Object](of lister[L], object runtime.Object, choose func(*metav1.ListOptions)) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			choose(&o)
			return of.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			choose(&o)
			return of.Watch(ctx, o)
		},
	}, object, 0, cache.Indexers{})
}

// followInformer runs an informer until ctx ends, and calls changed when the cache
// is filled and after changes, several of which may make one call. changed runs on
// the caller's goroutine. failed is called when a list or a watch fails; the
// informer tries again.
func followInformer(ctx context.Context, informer cache.SharedIndexInformer, failed func(error), changed func()) error {
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if failed != nil && ctx.Err() == nil {
			failed(err)
		}
	})
	if err != nil {
		return err
	}
	news := make(chan struct{}, 1)
	tell := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { tell() },
		UpdateFunc: func(any, any) { tell() },
		DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	for {
		changed()
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
	}
}

package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/noproxy"
)

// ClusterFacts follows what a cluster's API server knows of the cluster's own networks.
// It is a Runnable of a manager, and runs on each replica. It reads
//
//	ConfigMap kube-system/kubeadm-config   the networks of pods and services, the domain, the control plane's endpoint
//	ServiceCIDRs                           the networks of services
//	Service kube-system/kube-dns           its addresses
//	Nodes                                  their networks of pods
//
// and reports what is missing, or may not be read.
type ClusterFacts struct {
	// Changed is called with the facts, by one goroutine at a time: once all has been
	// read or has failed, at the latest after ten seconds, and again after each change.
	// unknown are the fields for which nothing was found, with the reason. Required.
	Changed func(facts noproxy.Cluster, unknown []UnknownFact)

	moved chan struct{} // has an element when something may have changed

	kubeadm, services, dns, nodes *factSource
	configured                    noproxy.Cluster // by kubeadm's, as it was read last
}

// UnknownFact is a field of a noproxy.Cluster that could not be discovered, or
// ClusterConfiguration, if that is no YAML; what it said before then stays.
type UnknownFact struct{ Field, Reason string }

var (
	_ manager.Runnable               = (*ClusterFacts)(nil)
	_ manager.LeaderElectionRunnable = (*ClusterFacts)(nil)
)

const (
	factsWait  = 10 * time.Second       // for the first answers
	factsDelay = 500 * time.Millisecond // nodes come in crowds
)

// SetupWithManager adds f to the manager.
func (f *ClusterFacts) SetupWithManager(mgr manager.Manager) error {
	client, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("controllers: ClusterFacts: %w", err)
	}
	f.moved = make(chan struct{}, 1)
	core, system := client.CoreV1().RESTClient(), "kube-system"
	list, named := cache.NewListWatchFromClient, func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	f.kubeadm = &factSource{what: "ConfigMap kube-system/kubeadm-config"}
	f.services = &factSource{what: "ServiceCIDRs"}
	f.dns = &factSource{what: "Service kube-system/kube-dns"}
	f.nodes = &factSource{what: "Nodes"}
	err = errors.Join(
		f.kubeadm.follow(list(core, "configmaps", system, named("kubeadm-config")), &corev1.ConfigMap{}, f.moved),
		f.services.follow(list(client.NetworkingV1().RESTClient(), "servicecidrs", "", fields.Everything()), &networkingv1.ServiceCIDR{}, f.moved),
		f.dns.follow(list(core, "services", system, named("kube-dns")), &corev1.Service{}, f.moved),
		f.nodes.follow(list(core, "nodes", "", fields.Everything()), &corev1.Node{}, f.moved))
	if err != nil {
		return fmt.Errorf("controllers: ClusterFacts: %w", err)
	}
	return mgr.Add(f)
}

// NeedLeaderElection is false.
func (f *ClusterFacts) NeedLeaderElection() bool { return false }

func (f *ClusterFacts) sources() []*factSource {
	return []*factSource{f.kubeadm, f.services, f.dns, f.nodes}
}

// Start runs until ctx ends.
func (f *ClusterFacts) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range f.sources() {
		wg.Go(func() { s.informer.Run(ctx.Done()) })
	}
	late := time.After(factsWait)
	for waiting := true; waiting && slices.ContainsFunc(f.sources(), (*factSource).isPending); {
		select {
		case <-ctx.Done():
			return nil
		case <-late:
			waiting = false
		case <-f.moved:
		case <-time.After(100 * time.Millisecond): // there is no event when an empty list has come
		}
	}
	var told []any
	for {
		facts, unknown := f.read()
		if now := []any{facts, unknown}; !reflect.DeepEqual(now, told) {
			told = now
			f.Changed(facts, unknown)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.moved:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(factsDelay):
		}
	}
}

// read computes what is known now.
func (f *ClusterFacts) read() (facts noproxy.Cluster, unknown []UnknownFact) {
	missing := func(field string, sources ...*factSource) {
		var reasons []string
		for _, s := range sources {
			reasons = append(reasons, s.reason())
		}
		unknown = append(unknown, UnknownFact{field, strings.Join(reasons, "; ")})
	}
	for _, o := range f.kubeadm.objects() {
		configured, err := kubeadmFacts(o.(*corev1.ConfigMap).Data["ClusterConfiguration"])
		if err != nil {
			unknown = append(unknown, UnknownFact{"ClusterConfiguration", f.kubeadm.what + ": not YAML: what it said before stays"})
			continue
		}
		f.configured = configured
	}
	facts = f.configured
	var services []string
	for _, o := range f.services.objects() {
		services = append(services, o.(*networkingv1.ServiceCIDR).Spec.CIDRs...)
	}
	facts.ServiceCIDRs = uniqueNetworks(append(services, facts.ServiceCIDRs...))
	for _, o := range f.dns.objects() {
		for _, ip := range o.(*corev1.Service).Spec.ClusterIPs {
			if addr, err := netip.ParseAddr(ip); err == nil {
				facts.Extra = append(facts.Extra, addr.String())
			}
		}
	}
	pods := slices.Clone(facts.PodCIDRs)
	for _, o := range f.nodes.objects() {
		pods = append(pods, o.(*corev1.Node).Spec.PodCIDRs...)
	}
	facts.PodCIDRs = uniqueNetworks(pods)
	if len(facts.PodCIDRs) == 0 {
		missing("PodCIDRs", f.kubeadm, f.nodes)
	}
	if len(facts.ServiceCIDRs) == 0 {
		missing("ServiceCIDRs", f.kubeadm, f.services)
	}
	if facts.ServiceDomain == "" {
		missing("ServiceDomain", f.kubeadm) // which then is cluster.local
	}
	unknown = append(unknown, UnknownFact{"NodeCIDRs", "no object has the networks of nodes"})
	return facts, unknown
}

// kubeadmFacts reads a ClusterConfiguration. A field that can't be used is left out.
func kubeadmFacts(text string) (facts noproxy.Cluster, err error) {
	var c struct {
		ControlPlaneEndpoint string `json:"controlPlaneEndpoint"`
		Networking           struct {
			DNSDomain     string `json:"dnsDomain"`
			PodSubnet     string `json:"podSubnet"`
			ServiceSubnet string `json:"serviceSubnet"`
		} `json:"networking"`
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return facts, err
	}
	facts.PodCIDRs = uniqueNetworks(strings.Split(c.Networking.PodSubnet, ","))
	facts.ServiceCIDRs = uniqueNetworks(strings.Split(c.Networking.ServiceSubnet, ","))
	if _, err := (noproxy.Cluster{ServiceDomain: c.Networking.DNSDomain}).List(); err == nil {
		facts.ServiceDomain = c.Networking.DNSDomain
	}
	host := c.ControlPlaneEndpoint
	if n := strings.LastIndexByte(host, ':'); n >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:n]
	}
	if _, err := (noproxy.Cluster{ControlPlaneHosts: []string{host}}).List(); err == nil && host != "" {
		facts.ControlPlaneHosts = []string{host}
	}
	return facts, nil
}

// uniqueNetworks returns the networks, sorted. Two halves become the whole. A network
// within another one is left out, and so is a text that is not a network.
func uniqueNetworks(texts []string) []string {
	var all []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			all = append(all, p.Masked())
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare) // the larger of two that begin alike comes first
	var kept []netip.Prefix
	for _, p := range all {
		if n := len(kept); n > 0 && kept[n-1].Overlaps(p) {
			continue
		}
		kept = append(kept, p)
		for n := len(kept); n > 1 && kept[n-2].Bits() == kept[n-1].Bits(); n-- {
			whole := netip.PrefixFrom(kept[n-1].Addr(), kept[n-1].Bits()-1).Masked()
			if !whole.Contains(kept[n-2].Addr()) {
				break
			}
			kept = append(kept[:n-2], whole)
		}
	}
	var result []string
	for _, p := range kept {
		result = append(result, p.String())
	}
	return result
}

// factSource is one of the kinds of objects.
type factSource struct {
	what     string
	informer cache.SharedIndexInformer

	mu  sync.Mutex // guards err
	err error      // of the last attempt, until one has worked
}

// follow sets the informer up; moved has an element after each change.
func (s *factSource) follow(from cache.ListerWatcher, object runtime.Object, moved chan struct{}) error {
	s.informer = cache.NewSharedIndexInformer(from, object, 0, cache.Indexers{})
	_, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { trigger(moved) }, UpdateFunc: func(any, any) { trigger(moved) }, DeleteFunc: func(any) { trigger(moved) }})
	return errors.Join(err,
		s.informer.SetTransform(trimFact),
		s.informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			trigger(moved)
		}))
}

// trimFact keeps of a Node what is read.
func trimFact(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	kept := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: node.Spec.PodCIDRs}}
	kept.Name, kept.UID, kept.ResourceVersion = node.Name, node.UID, node.ResourceVersion
	return kept, nil
}

func (s *factSource) objects() []any { return s.informer.GetStore().List() }

func (s *factSource) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *factSource) isPending() bool { return !s.informer.HasSynced() && s.lastError() == nil }

// reason says why it gives nothing.
func (s *factSource) reason() string {
	switch err := s.lastError(); {
	case s.informer.HasSynced():
		return s.what + ": it has none"
	case err != nil:
		return fmt.Sprintf("%s: %v", s.what, err)
	}
	return s.what + ": no answer"
}

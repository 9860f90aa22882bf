package noproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Cluster is what decides which hosts a Kubernetes cluster reaches directly.
// The zero Cluster has the names of services and the loopback addresses.
type Cluster struct {
	// PodCIDRs, ServiceCIDRs and NodeCIDRs are networks, of either family or
	// both. 0.0.0.0/0 and ::/0 are skipped, as they would switch the proxy off;
	// who means it puts them into Extra. If empty, there are none.
	PodCIDRs, ServiceCIDRs, NodeCIDRs []string

	// ServiceDomain is the DNS domain of services. If "", it is cluster.local.
	ServiceDomain string

	// ControlPlaneHosts are names or addresses of the API server, without
	// scheme and port. If empty, there are none.
	ControlPlaneHosts []string

	// Cloud adds the addresses and names of the cloud's metadata services. If
	// "", none are added. AWS needs the Region, which others ignore.
	Cloud  Cloud
	Region string

	// Extra are items of others, such as the list of the installation. Each may
	// be a list of its own, with commas. If empty, there are none.
	Extra []string

	// Layout is the order of the list. The zero value is [Merged].
	Layout Layout
}

// Layout is the order of a cluster's list, and what it has besides the fields.
type Layout int

const (
	// Merged has loopback first, then the names of services, the networks, the
	// control plane, the cloud and the extras, as Merge leaves them.
	Merged Layout = iota

	// GiantSwarm has what Giant Swarm's cluster apps write, byte for byte: the
	// service domain, the networks of services and of pods, the control plane,
	// the extras as they are, and then svc,127.0.0.1,localhost. Nothing is left
	// out because another entry covers it. Nodes and cloud come before the
	// extras; Giant Swarm has none there.
	GiantSwarm
)

// FieldError says what is wrong with a field of a Cluster.
type FieldError struct {
	Field  string // such as "PodCIDRs"
	Index  int    // of the entry in the field, from 0; -1 for a field that has one value
	Text   string // of the entry; "redacted" where it may hold credentials
	Reason string
}

// Error names the field and the entry. It holds no credentials.
func (e *FieldError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("noproxy: cluster: %s %q: %s", e.Field, e.Text, e.Reason)
	}
	return fmt.Sprintf("noproxy: cluster: %s entry %d %q: %s", e.Field, e.Index, e.Text, e.Reason)
}

// List returns the list of the cluster. The provenance of an entry is the field
// that it is from.
//
// The addresses of the kubernetes Service and of the cluster's DNS, the first
// and the tenth of each network of services, are entries within that network:
// [List.String] leaves them out, [List.For] has them for consumers that know no
// networks.
//
// The error joins a [*FieldError] for each entry that is not valid, and the List
// is nil then: a cluster with half a list does not work.
func (c Cluster) List() (List, error) {
	var b builder
	domain := c.domain(&b)
	services := func() { b.networks("ServiceCIDRs", c.ServiceCIDRs); b.serviceAddrs(c.ServiceCIDRs) }
	b.check(c)
	switch c.Layout {
	case GiantSwarm:
		b.add("ServiceDomain", domain)
		services()
		b.networks("PodCIDRs", c.PodCIDRs)
		b.controlPlane(c.ControlPlaneHosts)
		b.networks("NodeCIDRs", c.NodeCIDRs)
		b.add("Cloud", c.Cloud.items(c.Region)...)
		b.extra(c.Extra)
		b.add("every cluster", "svc", "127.0.0.1", "localhost")
	default:
		b.add("every cluster", c.loopback()...)
		// Without a dot in front: all but the JVM read these in the same way.
		b.add("every cluster", "svc")
		b.add("ServiceDomain", domain, domain+".")
		b.add("every cluster", "kubernetes", "kubernetes.default")
		services()
		b.networks("PodCIDRs", c.PodCIDRs)
		b.networks("NodeCIDRs", c.NodeCIDRs)
		b.controlPlane(c.ControlPlaneHosts)
		b.add("Cloud", c.Cloud.items(c.Region)...)
		b.extra(c.Extra)
		b.list = Merge(b.list)
	}
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return b.list, nil
}

// loopback has ::1 only where there is IPv6, since Ruby takes it for all IPv4
// addresses that end in .1.
func (c Cluster) loopback() []string {
	items := []string{"localhost", "127.0.0.1"}
	for _, cidr := range slices.Concat(c.PodCIDRs, c.ServiceCIDRs, c.NodeCIDRs) {
		if strings.Contains(cidr, ":") {
			return append(items, "::1")
		}
	}
	return items
}

func (c Cluster) domain(b *builder) string {
	if c.ServiceDomain == "" {
		return "cluster.local"
	}
	domain := strings.ToLower(c.ServiceDomain)
	if strings.HasPrefix(domain, ".") || strings.HasSuffix(domain, ".") {
		b.fail("ServiceDomain", -1, c.ServiceDomain, "write it without dots at the ends")
	} else if reason := (Options{}).nameFault(domain, true); reason != "" {
		b.fail("ServiceDomain", -1, c.ServiceDomain, "not a name: "+reason)
	}
	return domain
}

// builder collects a cluster's entries and what is wrong with its fields.
type builder struct {
	list List
	errs []error
}

func (b *builder) check(c Cluster) {
	if c.Layout != Merged && c.Layout != GiantSwarm {
		b.fail("Layout", -1, fmt.Sprint(int(c.Layout)), "unknown, want Merged or GiantSwarm")
	}
	switch {
	case !c.Cloud.known():
		b.fail("Cloud", -1, string(c.Cloud), "unknown, want aws, gcp, azure or openstack")
	case c.Cloud == AWS && c.Region == "":
		b.fail("Region", -1, "", "required for aws, as the names of instances have it")
	case c.Cloud == AWS && labelFault(c.Region) != "":
		b.fail("Region", -1, c.Region, "not the name of a region")
	}
}

func (b *builder) fail(field string, index int, text, reason string) {
	text = redactItems([]string{text})[0]
	b.errs = append(b.errs, &FieldError{Field: field, Index: index, Text: text, Reason: reason})
}

func (b *builder) add(field string, items ...string) {
	from := field
	if field != "every cluster" {
		from = "Cluster." + field
	}
	for _, item := range items {
		b.list = append(b.list, Entry{Text: item, From: from})
	}
}

func (b *builder) networks(field string, cidrs []string) {
	for i, cidr := range cidrs {
		cidr = strings.TrimSpace(cidr)
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			b.fail(field, i, cidr, "not a network such as 10.0.0.0/8 or 2001:db8::/32")
			continue
		}
		b.add(field, cidr)
		if p.Bits() == 0 {
			b.list[len(b.list)-1].Skipped = "it covers every address of its family"
		}
	}
}

// serviceAddrs adds the addresses that kubeadm and others give to the
// kubernetes Service and to the DNS.
func (b *builder) serviceAddrs(cidrs []string) {
	for _, cidr := range cidrs {
		cidr = strings.TrimSpace(cidr)
		p, err := netip.ParsePrefix(cidr)
		if err != nil || p.Bits() == 0 {
			continue
		}
		addr := p.Masked().Addr()
		for n := 1; n <= 10; n++ {
			addr = addr.Next()
			if !p.Contains(addr) {
				break
			}
			if what := map[int]string{1: "kubernetes Service", 10: "DNS"}[n]; what != "" {
				b.list = append(b.list, Entry{Text: addr.String(), From: "Cluster.ServiceCIDRs: " + what, Within: cidr})
			}
		}
	}
}

func (b *builder) controlPlane(hosts []string) {
	for i, host := range hosts {
		bare := unbracket(strings.TrimSpace(host))
		if _, ok := parseNumber(bare); !ok || hasZone(bare) {
			if reason := (Options{}).nameFault(strings.ToLower(bare), true); reason != "" {
				b.fail("ControlPlaneHosts", i, host, "not a name or an address without scheme and port: "+reason)
				continue
			}
		}
		b.add("ControlPlaneHosts", bare)
	}
}

func (b *builder) extra(extra []string) {
	for i, list := range extra {
		items := ParseList(list, "Cluster.Extra")
		texts := make([]string, len(items))
		for j, e := range items {
			texts[j] = e.Text
		}
		for j, shown := range redactItems(texts) {
			reason := (Options{}).fault(texts[j])
			if reason == "" {
				continue
			}
			if shown != texts[j] {
				reason = "a URL or credentials; write the host alone"
			}
			b.errs = append(b.errs, &FieldError{Field: "Extra", Index: i, Text: shown, Reason: reason})
		}
		b.list = append(b.list, items...)
	}
}

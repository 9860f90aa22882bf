package noproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Cluster describes the hosts that a Kubernetes cluster must reach directly. The
// list of the zero Cluster has the names of services and the loopback addresses.
type Cluster struct {
	// PodCIDRs, ServiceCIDRs and NodeCIDRs are networks of either IP family, such as
	// "10.244.0.0/16". 0.0.0.0/0 and ::/0 are skipped, since they would switch the
	// proxy off; if you want that, put them into Extra. May be empty.
	PodCIDRs, ServiceCIDRs, NodeCIDRs []string

	// ServiceDomain is the DNS domain of services. If "", it is cluster.local.
	ServiceDomain string

	// ControlPlaneHosts are names or addresses of the API server, without scheme and
	// port. May be empty.
	ControlPlaneHosts []string

	// Cloud adds the addresses and names of the cloud's metadata services. If "",
	// none are added. Region is required for AWS, such as "eu-central-1"; the other
	// clouds ignore it.
	Cloud  Cloud
	Region string

	// Extra has further items, such as those of the management cluster. Each string
	// may be a list with commas. May be empty.
	Extra []string

	// Layout is the order of the list. The zero value is [Merged].
	Layout Layout
}

// Layout is the order of a cluster's list. It also decides which items are added
// that no field names.
type Layout int

const (
	// Merged begins with loopback, then come the names of services, the networks,
	// the control plane, the cloud and the extras. [Merge] marks what is within
	// another entry.
	Merged Layout = iota

	// GiantSwarm is, byte for byte, what Giant Swarm's cluster apps write: the
	// service domain, the networks of services and of pods, the control plane, the
	// extras unchanged, then svc,127.0.0.1,localhost. Entries within another one are
	// written too. Nodes and cloud, which those apps don't have, come before the
	// extras.
	GiantSwarm
)

// FieldError says what is wrong with a field of a Cluster.
type FieldError struct {
	Field  string // such as "PodCIDRs"
	Index  int    // of the entry in the field, from 0; -1 if the field has one value
	Text   string // the entry; "redacted" if it may have credentials
	Reason string // what is wrong and what to write, for a human
}

// Error names the field and the entry. It has no credentials in it.
func (e *FieldError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("noproxy: cluster: %s %q: %s", e.Field, e.Text, e.Reason)
	}
	return fmt.Sprintf("noproxy: cluster: %s entry %d %q: %s", e.Field, e.Index, e.Text, e.Reason)
}

// List returns the list of the cluster. From of each entry names its field, such as
// "Cluster.PodCIDRs".
//
// The error joins a [*FieldError] for each entry that is not valid. Then the List is
// nil, since a cluster does not work with a part of it.
func (c Cluster) List() (List, error) {
	var b clusterBuilder
	domain := c.serviceDomain(&b)
	b.checkSettings(c)
	switch c.Layout {
	case GiantSwarm:
		b.addItems("ServiceDomain", domain)
		b.addNetworks("ServiceCIDRs", c.ServiceCIDRs)
		b.addNetworks("PodCIDRs", c.PodCIDRs)
		b.addControlPlane(c.ControlPlaneHosts)
		b.addNetworks("NodeCIDRs", c.NodeCIDRs)
		b.addItems("Cloud", c.Cloud.bypassItems(c.Region)...)
		b.addExtra(c.Extra)
		b.addItems("every cluster", "svc", "127.0.0.1", "localhost")
	default:
		b.addItems("every cluster", "localhost", "127.0.0.1")
		if slices.ContainsFunc(slices.Concat(c.PodCIDRs, c.ServiceCIDRs, c.NodeCIDRs), func(cidr string) bool { return strings.Contains(cidr, ":") }) {
			b.addItems("every cluster", "::1") // only then: Ruby reads it as all IPv4 addresses that end in .1
		}
		// These have no dot in front: all consumers but the JVM read them as Go does.
		b.addItems("every cluster", "svc")
		b.addItems("ServiceDomain", domain, domain+".")
		b.addItems("every cluster", "kubernetes", "kubernetes.default")
		b.addNetworks("ServiceCIDRs", c.ServiceCIDRs)
		b.addNetworks("PodCIDRs", c.PodCIDRs)
		b.addNetworks("NodeCIDRs", c.NodeCIDRs)
		b.addControlPlane(c.ControlPlaneHosts)
		b.addItems("Cloud", c.Cloud.bypassItems(c.Region)...)
		b.addExtra(c.Extra)
		b.list = Merge(b.list)
	}
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return b.list, nil
}

func (c Cluster) serviceDomain(b *clusterBuilder) string {
	if c.ServiceDomain == "" {
		return "cluster.local"
	}
	domain := strings.ToLower(c.ServiceDomain)
	if strings.HasPrefix(domain, ".") || strings.HasSuffix(domain, ".") {
		b.addError("ServiceDomain", -1, c.ServiceDomain, "write it without dots at the ends")
	} else if reason := nameFault(domain, true); reason != "" {
		b.addError("ServiceDomain", -1, c.ServiceDomain, "not a name: "+reason)
	}
	return domain
}

// clusterBuilder collects a cluster's entries and the errors of its fields.
type clusterBuilder struct {
	list List
	errs []error
}

func (b *clusterBuilder) checkSettings(c Cluster) {
	if c.Layout != Merged && c.Layout != GiantSwarm {
		b.addError("Layout", -1, fmt.Sprint(int(c.Layout)), "unknown, want Merged or GiantSwarm")
	}
	switch {
	case !c.Cloud.isKnown():
		b.addError("Cloud", -1, string(c.Cloud), "unknown, want aws, gcp, azure or openstack")
	case c.Cloud == AWS && c.Region == "":
		b.addError("Region", -1, "", "required for aws, since the names of its instances contain it")
	case c.Cloud == AWS && labelFault(c.Region) != "":
		b.addError("Region", -1, c.Region, "not the name of a region, such as eu-central-1")
	}
}

func (b *clusterBuilder) addError(field string, index int, text, reason string) {
	text = redactItems([]string{text})[0]
	b.errs = append(b.errs, &FieldError{Field: field, Index: index, Text: text, Reason: reason})
}

func (b *clusterBuilder) addItems(field string, items ...string) {
	from := field
	if field != "every cluster" {
		from = "Cluster." + field
	}
	for _, item := range items {
		b.list = append(b.list, Entry{Text: item, From: from})
	}
}

func (b *clusterBuilder) addNetworks(field string, cidrs []string) {
	for i, cidr := range cidrs {
		cidr = strings.TrimSpace(cidr)
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			b.addError(field, i, cidr, "not a network such as 10.0.0.0/8 or 2001:db8::/32")
			continue
		}
		b.addItems(field, cidr)
		if p.Bits() == 0 {
			b.list[len(b.list)-1].Skipped = "it covers every address of its family"
		}
	}
}

func (b *clusterBuilder) addControlPlane(hosts []string) {
	for i, host := range hosts {
		bare := trimBrackets(strings.TrimSpace(host))
		if _, ok := parseAddr(bare); !ok || hasZone(bare) {
			if reason := nameFault(strings.ToLower(bare), true); reason != "" {
				b.addError("ControlPlaneHosts", i, host, "not a name or an address without scheme and port: "+reason)
				continue
			}
		}
		b.addItems("ControlPlaneHosts", bare)
	}
}

func (b *clusterBuilder) addExtra(extra []string) {
	for i, list := range extra {
		items := ParseList(list, "Cluster.Extra")
		eachFault(items.texts(), func(_ int, text, reason string) {
			b.errs = append(b.errs, &FieldError{Field: "Extra", Index: i, Text: text, Reason: reason})
		})
		b.list = append(b.list, items...)
	}
}

// Cloud is the cloud that a cluster runs in.
type Cloud string

const (
	NoCloud   Cloud = ""
	AWS       Cloud = "aws"
	GCP       Cloud = "gcp"
	Azure     Cloud = "azure"
	OpenStack Cloud = "openstack"
)

// metadataAddr is the address of the metadata service, the same in all these clouds.
const metadataAddr = "169.254.169.254"

// isKnown reports whether c is one of the constants.
func (c Cloud) isKnown() bool {
	return slices.Contains([]Cloud{NoCloud, AWS, GCP, Azure, OpenStack}, c)
}

// bypassItems returns the addresses and names of the cloud's own services. They
// answer on the node's link or on its host, so a proxy can't reach them for the
// node.
func (c Cloud) bypassItems(region string) []string {
	switch c {
	case AWS:
		// The last two addresses are EKS Pod Identity's agent.
		return []string{metadataAddr, "fd00:ec2::254", awsNames(region), "169.254.170.23", "fd00:ec2::23"}
	case GCP:
		return []string{metadataAddr, "metadata", "metadata.google.internal", "metadata.google.internal."}
	case Azure:
		return []string{metadataAddr, "168.63.129.16"} // DHCP, DNS and health probes
	case OpenStack:
		return []string{metadataAddr}
	}
	return nil
}

// awsNames returns the item for the private names of instances in a region.
func awsNames(region string) string {
	if region == "us-east-1" {
		return ".ec2.internal"
	}
	return "." + region + ".compute.internal"
}

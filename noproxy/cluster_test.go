package noproxy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/noproxy"
)

// golden is a list that Giant Swarm's cluster apps wrote.
const golden = "cluster.local,100.64.0.0/13,100.96.0.0/11,178.170.32.59,172.16.0.0/16," +
	"internal.corpdomain.net,example.com,svc,127.0.0.1,localhost"

func giantSwarm() noproxy.Cluster {
	return noproxy.Cluster{
		ServiceDomain:     "cluster.local",
		ServiceCIDRs:      []string{"100.64.0.0/13"},
		PodCIDRs:          []string{"100.96.0.0/11"},
		ControlPlaneHosts: []string{"178.170.32.59"},
		Extra:             []string{"172.16.0.0/16,internal.corpdomain.net,example.com"},
		Layout:            noproxy.GiantSwarm,
	}
}

func mustList(t *testing.T, c noproxy.Cluster) noproxy.List {
	t.Helper()
	l, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestGolden(t *testing.T) {
	if diff := cmp.Diff(golden, mustList(t, giantSwarm()).String()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	// What another layout would leave out stays, and nothing that is empty is written.
	c := giantSwarm()
	c.Extra = []string{"", " 100.64.0.1 ,,example.com", "example.com,"}
	want := "cluster.local,100.64.0.0/13,100.96.0.0/11,178.170.32.59,100.64.0.1,example.com,example.com,svc,127.0.0.1,localhost"
	if diff := cmp.Diff(want, mustList(t, c).String()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	if got, want := mustList(t, noproxy.Cluster{Layout: noproxy.GiantSwarm}).String(), "cluster.local,svc,127.0.0.1,localhost"; got != want {
		t.Errorf("of nothing: got %q, want %q", got, want)
	}
}

func TestClusterList(t *testing.T) {
	const names = "localhost,127.0.0.1,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default"
	tests := []struct {
		name    string
		cluster noproxy.Cluster
		want    string
	}{
		{"zero", noproxy.Cluster{}, names},
		{"networks", noproxy.Cluster{PodCIDRs: []string{" 10.244.0.0/16 "}, ServiceCIDRs: []string{"10.96.0.0/12"}, NodeCIDRs: []string{"192.168.0.0/24"}},
			names + ",10.96.0.0/12,10.244.0.0/16,192.168.0.0/24"},
		{"dual stack", noproxy.Cluster{PodCIDRs: []string{"10.244.0.0/16", "fd00:1::/56"}, ServiceCIDRs: []string{"10.96.0.0/12", "fd00:2::/112"}},
			"localhost,127.0.0.1,::1,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default,10.96.0.0/12,fd00:2::/112,10.244.0.0/16,fd00:1::/56"},
		{"domain", noproxy.Cluster{ServiceDomain: "Corp.Example"},
			"localhost,127.0.0.1,svc,corp.example,corp.example.,kubernetes,kubernetes.default"},
		{"control plane", noproxy.Cluster{ControlPlaneHosts: []string{"api.example.com", "192.0.2.1", "[2001:db8::1]", "2001:db8::2"}},
			names + ",api.example.com,192.0.2.1,2001:db8::1,2001:db8::2"},
		{"what covers all is skipped", noproxy.Cluster{NodeCIDRs: []string{"0.0.0.0/0", "10.0.0.0/8"}, ServiceCIDRs: []string{"0.0.0.0/0"}}, names + ",10.0.0.0/8"},
		{"what covers all of IPv6 is skipped", noproxy.Cluster{NodeCIDRs: []string{"::/0"}},
			"localhost,127.0.0.1,::1,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default"},
		{"merged", noproxy.Cluster{NodeCIDRs: []string{"10.0.0.0/8"}, PodCIDRs: []string{"10.244.0.0/16"}, ControlPlaneHosts: []string{"10.0.0.5"}, Extra: []string{"a.svc,.example.com", "10.0.0.0/8"}},
			names + ",10.0.0.0/8,.example.com"},
		{"extras are not held back", noproxy.Cluster{Extra: []string{"*,0.0.0.0/0", "a.com:443"}}, "localhost,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default,*,0.0.0.0/0,a.com:443"},
		{"aws", noproxy.Cluster{Cloud: noproxy.AWS, Region: "eu-west-1"},
			names + ",169.254.169.254,fd00:ec2::254,.eu-west-1.compute.internal,169.254.170.23,fd00:ec2::23"},
		{"aws, us-east-1", noproxy.Cluster{Cloud: noproxy.AWS, Region: "us-east-1"},
			names + ",169.254.169.254,fd00:ec2::254,.ec2.internal,169.254.170.23,fd00:ec2::23"},
		{"gcp", noproxy.Cluster{Cloud: noproxy.GCP}, names + ",169.254.169.254,metadata,metadata.google.internal,metadata.google.internal."},
		{"azure", noproxy.Cluster{Cloud: noproxy.Azure}, names + ",169.254.169.254,168.63.129.16"},
		{"openstack", noproxy.Cluster{Cloud: noproxy.OpenStack, Region: "ignored !"}, names + ",169.254.169.254"},
		{"cloud in Giant Swarm's order", noproxy.Cluster{Layout: noproxy.GiantSwarm, Cloud: noproxy.OpenStack, NodeCIDRs: []string{"10.0.0.0/24"}, Extra: []string{"a.com"}},
			"cluster.local,10.0.0.0/24,169.254.169.254,a.com,svc,127.0.0.1,localhost"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, mustList(t, tt.cluster).String()); diff != "" {
				t.Errorf("List (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClusterProvenance(t *testing.T) {
	got := mustList(t, noproxy.Cluster{
		ServiceCIDRs: []string{"10.96.0.8/12", "fd00:2::/125"}, NodeCIDRs: []string{"::/0"}, ControlPlaneHosts: []string{"10.100.0.1"}, Extra: []string{"a.com, b.svc"},
	})
	want := noproxy.List{
		{Text: "localhost", From: "every cluster"},
		{Text: "127.0.0.1", From: "every cluster"},
		{Text: "::1", From: "every cluster"},
		{Text: "svc", From: "every cluster"},
		{Text: "cluster.local", From: "Cluster.ServiceDomain"},
		{Text: "cluster.local.", From: "Cluster.ServiceDomain"},
		{Text: "kubernetes", From: "every cluster"},
		{Text: "kubernetes.default", From: "every cluster"},
		{Text: "10.96.0.8/12", From: "Cluster.ServiceCIDRs"},
		{Text: "fd00:2::/125", From: "Cluster.ServiceCIDRs"},
		{Text: "::/0", From: "Cluster.NodeCIDRs", Skipped: "it covers every address of its family"},
		{Text: "10.100.0.1", From: "Cluster.ControlPlaneHosts", Within: "10.96.0.8/12"},
		{Text: "a.com", From: "Cluster.Extra"},
		{Text: "b.svc", From: "Cluster.Extra", Within: "svc"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
}

func TestClusterErrors(t *testing.T) {
	const network = "not a network such as 10.0.0.0/8 or 2001:db8::/32"
	const host = "not a name or an address without scheme and port: "
	tests := []struct {
		name    string
		cluster noproxy.Cluster
		want    noproxy.FieldError
	}{
		{"pods", noproxy.Cluster{PodCIDRs: []string{"10.0.0.0/8", "10.0.0.0/33"}}, noproxy.FieldError{Field: "PodCIDRs", Index: 1, Text: "10.0.0.0/33", Reason: network}},
		{"services", noproxy.Cluster{ServiceCIDRs: []string{"10.0.0.1"}}, noproxy.FieldError{Field: "ServiceCIDRs", Text: "10.0.0.1", Reason: network}},
		{"nodes", noproxy.Cluster{NodeCIDRs: []string{""}}, noproxy.FieldError{Field: "NodeCIDRs", Reason: network}},
		{"two in one", noproxy.Cluster{NodeCIDRs: []string{"10.0.0.0/8,fd00::/8"}}, noproxy.FieldError{Field: "NodeCIDRs", Text: "10.0.0.0/8,fd00::/8", Reason: network}},
		{"domain", noproxy.Cluster{ServiceDomain: "cluster local"}, noproxy.FieldError{Field: "ServiceDomain", Index: -1, Text: "cluster local", Reason: "not a name: no name has the character ' '"}},
		{"domain with a dot", noproxy.Cluster{ServiceDomain: ".cluster.local"}, noproxy.FieldError{Field: "ServiceDomain", Index: -1, Text: ".cluster.local", Reason: "write it without dots at the ends"}},
		{"URL", noproxy.Cluster{ControlPlaneHosts: []string{"https://u:hunter2@api:6443"}}, noproxy.FieldError{Field: "ControlPlaneHosts", Text: "https://redacted", Reason: host + "no name has the character ':'"}},
		{"port", noproxy.Cluster{ControlPlaneHosts: []string{"api:6443"}}, noproxy.FieldError{Field: "ControlPlaneHosts", Text: "api:6443", Reason: host + "no name has the character ':'"}},
		{"zone", noproxy.Cluster{ControlPlaneHosts: []string{"fe80::1%eth0"}}, noproxy.FieldError{Field: "ControlPlaneHosts", Text: "fe80::1%eth0", Reason: host + "no name has the character ':'"}},
		{"empty host", noproxy.Cluster{ControlPlaneHosts: []string{""}}, noproxy.FieldError{Field: "ControlPlaneHosts", Reason: host + "an empty label"}},
		{"cloud", noproxy.Cluster{Cloud: "AWS"}, noproxy.FieldError{Field: "Cloud", Index: -1, Text: "AWS", Reason: "unknown, want aws, gcp, azure or openstack"}},
		{"no region", noproxy.Cluster{Cloud: noproxy.AWS}, noproxy.FieldError{Field: "Region", Index: -1, Reason: "required for aws, since the names of its instances contain it"}},
		{"region", noproxy.Cluster{Cloud: noproxy.AWS, Region: "eu.west,*"}, noproxy.FieldError{Field: "Region", Index: -1, Text: "eu.west,*", Reason: "not the name of a region, such as eu-central-1"}},
		{"extra", noproxy.Cluster{Extra: []string{"a.com", "b.com, 10.0.0.0/99"}}, noproxy.FieldError{Field: "Extra", Index: 1, Text: "10.0.0.0/99", Reason: reasons["slash"]}},
		{"extra with credentials", noproxy.Cluster{Extra: []string{"http://u:hunter2@proxy"}}, noproxy.FieldError{Field: "Extra", Text: "http://redacted", Reason: reasons["secret"]}},
		{"layout", noproxy.Cluster{Layout: 7}, noproxy.FieldError{Field: "Layout", Index: -1, Text: "7", Reason: "unknown, want Merged or GiantSwarm"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := tt.cluster.List()
			var got *noproxy.FieldError
			if !errors.As(err, &got) || l != nil {
				t.Fatalf("got %v, %v, want nil and a FieldError", l, err)
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if strings.Contains(fmt.Sprintf("%v%+v%#v", err, err, err), "hunter2") {
				t.Errorf("the password is in %v", err)
			}
		})
	}
	_, err := noproxy.Cluster{PodCIDRs: []string{"a", "b"}, Cloud: "x"}.List()
	want := `noproxy: cluster: Cloud "x": unknown, want aws, gcp, azure or openstack
noproxy: cluster: PodCIDRs entry 0 "a": ` + network + `
noproxy: cluster: PodCIDRs entry 1 "b": ` + network
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("all errors (-want +got):\n%s", diff)
	}
}

// TestClusterJVM asks what a JVM makes of what it is given about the hosts that a cluster
// cannot do without.
func TestClusterJVM(t *testing.T) {
	c := noproxy.Cluster{
		PodCIDRs: []string{"10.244.0.0/16", "fd00:1::/56"}, ServiceCIDRs: []string{"10.96.0.0/12"}, NodeCIDRs: []string{"192.168.0.0/24"},
		ControlPlaneHosts: []string{"192.168.0.10", "api.corp.example"}, Cloud: noproxy.AWS, Region: "eu-west-1",
	}
	text, findings := mustList(t, c).JVM()
	for _, host := range []string{"localhost", "127.0.0.1", "kubernetes.default.svc", "kubernetes", "dns.kube-system.svc.cluster.local",
		"a.svc.cluster.local.", "10.96.0.1", "10.96.0.10", "192.168.0.10", "api.corp.example", "169.254.169.254", "ip-10-0-0-1.eu-west-1.compute.internal",
		"fd00:ec2::254", "::1"} {
		if !noproxy.JVM.Bypass(text, host, "https") {
			t.Errorf("a JVM, given %q, sends %s through the proxy", text, host)
		}
	}
	for _, host := range []string{"example.com", "8.8.8.1", "8.8.8.254", "10.80.0.1", "2001:db8::1", "metadata.google.internal"} {
		if noproxy.JVM.Bypass(text, host, "https") {
			t.Errorf("a JVM, given %q, connects directly to %s", text, host)
		}
	}
	if len(findings) != 4 {
		t.Errorf("got %v, want one for each network", findings)
	}
}

func TestJVMSkipped(t *testing.T) {
	_, findings := mustList(t, noproxy.Cluster{NodeCIDRs: []string{"0.0.0.0/0"}}).JVM()
	want := []noproxy.Finding{{Index: 7, Text: "0.0.0.0/0", Consumer: noproxy.JVM,
		Does: "is not given it: it covers every address of its family", Write: "it into Extra if that is meant"}}
	if diff := cmp.Diff(want, findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

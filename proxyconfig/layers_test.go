package proxyconfig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

// rfcLayers are those of Giant Swarm's RFC.
func rfcLayers() proxyconfig.Layers {
	return proxyconfig.Layers{
		Installation: proxyconfig.Config{HTTPProxy: rfcProxy, HTTPSProxy: rfcProxy, NoProxy: "172.16.0.0/16,internal.corpdomain.net,example.com"},
		Cluster: noproxy.Cluster{
			ServiceCIDRs: []string{"100.64.0.0/13"}, PodCIDRs: []string{"100.96.0.0/11"},
			ControlPlaneHosts: []string{"178.170.32.59"}, Layout: noproxy.GiantSwarm,
		},
	}
}

func TestGoldenList(t *testing.T) {
	got := must(rfcLayers().Merge())(t)
	if got.NoProxy != golden {
		t.Errorf("got  %s\nwant %s", got.NoProxy, golden)
	}
}

func TestMerge(t *testing.T) {
	const own = "http://own.test:3128"
	computed := "localhost,127.0.0.1,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default"
	installation := proxyconfig.Config{HTTPProxy: rfcProxy, HTTPSProxy: rfcProxy, NoProxy: "corp.test"}
	for _, c := range []struct {
		name   string
		layers proxyconfig.Layers
		want   proxyconfig.Config
		from   [2]string // of the URLs
		last   string    // provenance of the last entry
	}{
		{"nothing", proxyconfig.Layers{}, proxyconfig.Config{NoProxy: computed}, [2]string{}, "every cluster"},
		{"installation", proxyconfig.Layers{Installation: installation},
			proxyconfig.Config{HTTPProxy: rfcProxy, HTTPSProxy: rfcProxy, NoProxy: computed + ",corp.test"}, [2]string{"installation", "installation"}, "installation"},
		{"one URL of the user's", proxyconfig.Layers{Installation: installation, User: proxyconfig.Override{Config: proxyconfig.Config{HTTPSProxy: own, NoProxy: "mesh.test"}}},
			proxyconfig.Config{HTTPProxy: rfcProxy, HTTPSProxy: own, NoProxy: computed + ",corp.test,mesh.test"}, [2]string{"installation", "user"}, "user"},
		{"direct", proxyconfig.Layers{Installation: installation, User: proxyconfig.Override{Direct: true}},
			proxyconfig.Config{NoProxy: computed + ",corp.test"}, [2]string{}, "installation"},
		{"own proxy alone", proxyconfig.Layers{Installation: installation, User: proxyconfig.Override{Direct: true, Config: proxyconfig.Config{HTTPProxy: own}}},
			proxyconfig.Config{HTTPProxy: own, NoProxy: computed + ",corp.test"}, [2]string{"user", ""}, "installation"},
		{"own list", proxyconfig.Layers{Installation: installation, User: proxyconfig.Override{OwnList: true, Config: proxyconfig.Config{NoProxy: "mesh.test"}}},
			proxyconfig.Config{HTTPProxy: rfcProxy, HTTPSProxy: rfcProxy, NoProxy: computed + ",mesh.test"}, [2]string{"installation", "installation"}, "user"},
		{"what others cover", proxyconfig.Layers{Installation: installation, User: proxyconfig.Override{Config: proxyconfig.Config{NoProxy: "a.corp.test"}}},
			proxyconfig.Config{HTTPProxy: rfcProxy, HTTPSProxy: rfcProxy, NoProxy: computed + ",corp.test"}, [2]string{"installation", "installation"}, "user"},
		{"addresses of networks", proxyconfig.Layers{
			Installation: proxyconfig.Config{NoProxy: "127.0.0.0/8,192.0.2.0/24"},
			Cluster:      noproxy.Cluster{ServiceCIDRs: []string{"10.96.0.0/12"}, ControlPlaneHosts: []string{"192.0.2.10"}},
			User:         proxyconfig.Override{Config: proxyconfig.Config{NoProxy: "192.0.2.10,192.0.2.11"}}},
			proxyconfig.Config{NoProxy: computed + ",10.96.0.0/12,192.0.2.10,127.0.0.0/8,192.0.2.0/24,192.0.2.11"}, [2]string{}, "user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := must(c.layers.Merge())(t)
			if diff := cmp.Diff(c.want, got.Config); diff != "" {
				t.Error(diff)
			}
			if from := [2]string{got.HTTPProxyFrom, got.HTTPSProxyFrom}; from != c.from {
				t.Errorf("got URLs from %q, want %q", from, c.from)
			}
			if from := got.List[len(got.List)-1].From; from != c.last {
				t.Errorf("got the last entry from %q, want %q", from, c.last)
			}
		})
	}
}

// In Giant Swarm's order, too, each entry says where it is from.
func TestProvenanceInGiantSwarmsOrder(t *testing.T) {
	layers := rfcLayers()
	layers.User.NoProxy = "mesh.test"
	got := map[string]string{}
	for _, e := range must(layers.Merge())(t).List {
		got[e.Text] = e.From
	}
	for text, want := range map[string]string{
		"cluster.local": "Cluster.ServiceDomain", "100.96.0.0/11": "Cluster.PodCIDRs", "172.16.0.0/16": "installation", "mesh.test": "user", "svc": "every cluster",
	} {
		if got[text] != want {
			t.Errorf("%s: got from %q, want %q", text, got[text], want)
		}
	}
}

func TestMergeErrors(t *testing.T) {
	_, err := proxyconfig.Layers{
		Installation: proxyconfig.Config{HTTPProxy: "http://user:SECRET@x@proxy:1"},
		Cluster:      noproxy.Cluster{PodCIDRs: []string{"no"}},
		User:         proxyconfig.Override{Config: proxyconfig.Config{NoProxy: "SECRET@x"}},
	}.Merge()
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"proxyconfig: Installation.HTTPProxy: ", "proxyconfig: User.NoProxy: ", "PodCIDRs"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got error %q, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "SECRET") {
		t.Errorf("the password is in %q", err)
	}
	var cluster *noproxy.FieldError
	if !errors.As(err, &cluster) {
		t.Errorf("got error %q, want a *noproxy.FieldError in it", err)
	}
	long := proxyconfig.Config{NoProxy: strings.TrimSuffix(strings.Repeat("a"+strings.Repeat("b", 60)+".test,", 1500), ",")}
	layers := proxyconfig.Layers{Installation: long, User: proxyconfig.Override{Config: long}, Cluster: noproxy.Cluster{Layout: noproxy.GiantSwarm}}
	if m, err := layers.Merge(); m != nil || err == nil || !strings.Contains(err.Error(), "Merged.NoProxy") {
		t.Errorf("got error %v, want one about the length of Merged.NoProxy", err)
	}
}

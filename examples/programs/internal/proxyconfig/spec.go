package proxyconfig

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

// spec is the content of --file. A field that is not set changes nothing.
type spec struct {
	Name         string  `json:"name,omitempty"`
	Namespace    string  `json:"namespace,omitempty"`
	Installation layer   `json:"installation,omitzero"`
	Cluster      cluster `json:"cluster,omitzero"`
	User         layer   `json:"user,omitzero"`

	// Proxy is another way to write Installation, for [proxyconfig.ReadValues]: what
	// configures cluster-apps-operator for all clusters has it at the top, a cluster's
	// values below cluster, and those of chart cluster below global.
	Proxy  map[string]string `json:"proxy,omitempty"`
	Global global            `json:"global,omitzero"`
}

type global struct {
	Connectivity struct {
		Proxy map[string]string `json:"proxy,omitempty"`
	} `json:"connectivity,omitzero"`
}

type layer struct {
	HTTP    string `json:"http,omitempty"`
	HTTPS   string `json:"https,omitempty"`
	NoProxy string `json:"noProxy,omitempty"`
	Direct  bool   `json:"direct,omitempty"`
	OwnList bool   `json:"ownList,omitempty"`
}

type cluster struct {
	Pods         cli.List `json:"pods,omitempty"`
	Services     cli.List `json:"services,omitempty"`
	Nodes        cli.List `json:"nodes,omitempty"`
	ControlPlane cli.List `json:"controlPlane,omitempty"`
	Domain       string   `json:"domain,omitempty"`
	Cloud        string   `json:"cloud,omitempty"`
	Region       string   `json:"region,omitempty"`
	Layout       string   `json:"layout,omitempty"`

	Proxy map[string]string `json:"proxy,omitempty"`
}

func (s *spec) flags(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&s.Name, "name", "", "`name` of the cluster, for kubeadm and values")
	set.StringVar(&s.Namespace, "namespace", "", "`namespace` of the cluster, for values; default default")
	set.StringVar(&s.Installation.HTTP, "http", "", "`URL` of the proxy for http")
	set.StringVar(&s.Installation.HTTPS, "https", "", "`URL` of the proxy for https")
	set.StringVar(&s.Installation.NoProxy, "no-proxy", "", "`list` of all clusters")
	set.Var(&s.Cluster.Pods, "pods", "`networks` of pods")
	set.Var(&s.Cluster.Services, "services", "`networks` of services")
	set.Var(&s.Cluster.Nodes, "nodes", "`networks` of nodes")
	set.Var(&s.Cluster.ControlPlane, "control-plane", "names or addresses (`hosts`) of the API server")
	set.StringVar(&s.Cluster.Domain, "domain", "", "DNS `domain` of services; default cluster.local")
	command.Choice(cmd, &s.Cluster.Cloud, "cloud", "", "the cloud that the cluster is in", "aws", "gcp", "azure", "openstack")
	set.StringVar(&s.Cluster.Region, "region", "", "`region` of the cloud; required for aws")
	command.Choice(cmd, &s.Cluster.Layout, "layout", "", "order of the list; default merged", "merged", "giantswarm")
}

// read reads a file. The errors of YAML quote it, and it has passwords: what is
// told is what could be there.
func read(text []byte) (*spec, error) {
	var s spec
	if yaml.UnmarshalStrict(text, &s) == nil {
		return &s, s.takeProxySections()
	}
	var anything any
	if yaml.Unmarshal(text, &anything) != nil {
		return nil, errors.New("--file: not YAML")
	}
	if section, known := unknownKey(anything, reflect.TypeOf(s), "the file"); known != nil {
		return nil, fmt.Errorf("--file: a key of %s is unknown; want %s", section, strings.Join(known, ", "))
	}
	return nil, errors.New("--file: a key is there twice, or its value has another type; pods, services, nodes and controlPlane are lists, direct and ownList true or false")
}

// takeProxySections moves them to the installation's.
func (s *spec) takeProxySections() error {
	document, err := yaml.Marshal(spec{Cluster: cluster{Proxy: s.Cluster.Proxy}, Proxy: s.Proxy, Global: s.Global})
	if err != nil {
		return err
	}
	c, err := proxyconfig.ReadValues(document)
	if err != nil {
		return fmt.Errorf("--file: %v", cli.FieldMistake(err, "proxyconfig: documents[0]: ", "", "proxyconfig: ", "")) // the file is no mistake in the arguments
	}
	s.Proxy, s.Cluster.Proxy, s.Global = nil, nil, global{}
	for _, f := range []struct {
		key  string
		to   *string
		from string
	}{{"http", &s.Installation.HTTP, c.HTTPProxy}, {"https", &s.Installation.HTTPS, c.HTTPSProxy}, {"noProxy", &s.Installation.NoProxy, c.NoProxy}} {
		if f.from != "" && *f.to != "" && f.from != *f.to {
			return fmt.Errorf("--file: installation.%s is not what the section proxy says; write one of them", f.key)
		}
		*f.to = cmp.Or(*f.to, f.from)
	}
	return nil
}

// unknownKey returns a section with a key that its type does not have, and the keys
// that the type has.
func unknownKey(value any, t reflect.Type, section string) (string, []string) {
	m, ok := value.(map[string]any)
	if !ok || t.Kind() != reflect.Struct {
		return "", nil
	}
	var known []string
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known, fields[name] = append(known, name), f.Type
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if fields[key] == nil {
			return section, known
		}
		if section, known := unknownKey(m[key], fields[key], key); known != nil {
			return section, known
		}
	}
	return "", nil
}

// change takes over what other has set.
func (s *spec) change(other spec) error {
	text, err := json.Marshal(other)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, s)
}

func (s *spec) layers() (proxyconfig.Layers, error) {
	c := s.Cluster
	layout := slices.Index([]string{"merged", "giantswarm"}, c.Layout)
	if c.Layout != "" && layout < 0 {
		return proxyconfig.Layers{}, cli.Mistake("unknown layout %q, want merged or giantswarm", c.Layout)
	}
	if s.Installation.Direct || s.Installation.OwnList {
		return proxyconfig.Layers{}, cli.Mistake("direct and ownList are the user's, not the installation's")
	}
	return proxyconfig.Layers{
		Installation: s.Installation.config(),
		Cluster: noproxy.Cluster{
			PodCIDRs: c.Pods, ServiceCIDRs: c.Services, NodeCIDRs: c.Nodes, ControlPlaneHosts: c.ControlPlane,
			ServiceDomain: c.Domain, Cloud: noproxy.Cloud(c.Cloud), Region: c.Region, Layout: noproxy.Layout(max(layout, 0)),
		},
		User: proxyconfig.Override{Config: s.User.config(), Direct: s.User.Direct, OwnList: s.User.OwnList},
	}, nil
}

func (l layer) config() proxyconfig.Config {
	return proxyconfig.Config{HTTPProxy: l.HTTP, HTTPSProxy: l.HTTPS, NoProxy: l.NoProxy}
}

package main

import (
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/causewayproject/causeway/noproxy"
)

// clusterResult is what the cluster command writes as JSON.
type clusterResult struct {
	List     string            `json:"list"`
	For      string            `json:"for,omitempty"`
	Entries  noproxy.List      `json:"entries"`
	Findings []noproxy.Finding `json:"findings,omitempty"`
}

func cluster(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	var c noproxy.Cluster
	lists(flags, &c.PodCIDRs, "pods", "networks of pods")
	lists(flags, &c.ServiceCIDRs, "services", "networks of services")
	lists(flags, &c.NodeCIDRs, "nodes", "networks of nodes")
	lists(flags, &c.ControlPlaneHosts, "control-plane", "names or addresses of the API server")
	lists(flags, &c.Extra, "extra", "further entries")
	flags.StringVar(&c.ServiceDomain, "domain", "cluster.local", "DNS `domain` of services")
	flags.StringVar((*string)(&c.Cloud), "cloud", "", "aws, gcp, azure or openstack")
	flags.StringVar(&c.Region, "region", "", "`region` of the cloud; required for aws")
	layout := flags.String("layout", "merged", "`order` of the list: merged or giantswarm")
	name := flags.String("for", "", "`consumer` to write the list for")
	asJSON := flags.Bool("json", false, "write JSON")
	if err := parse(flags, args, stdout); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return usageError{fmt.Sprintf("cluster: unexpected argument %q", flags.Arg(0))}
	}
	i := slices.Index([]string{"merged", "giantswarm"}, *layout)
	if i < 0 {
		return usageError{fmt.Sprintf("cluster: unknown layout %q, want merged or giantswarm", *layout)}
	}
	c.Layout = noproxy.Layout(i)
	result, err := list(c, *name)
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(stdout, result)
	}
	return writeCluster(stdout, result)
}

// lists adds a flag that may be repeated, whose values may have commas.
func lists(flags *flag.FlagSet, to *[]string, name, what string) {
	flags.Func(name, what+", as a `list` with commas; may be repeated", func(s string) error {
		*to = append(*to, split(s)...)
		return nil
	})
}

func list(c noproxy.Cluster, consumer string) (clusterResult, error) {
	entries, err := c.List()
	if err != nil {
		return clusterResult{}, err
	}
	result := clusterResult{List: entries.String(), For: consumer, Entries: entries}
	if consumer != "" {
		who, err := noproxy.ParseConsumer(consumer)
		if err != nil {
			return clusterResult{}, usageError{"cluster: " + err.Error()}
		}
		result.List, result.Findings = entries.For(who)
	}
	return result, nil
}

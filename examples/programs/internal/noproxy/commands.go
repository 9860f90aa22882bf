package noproxy

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/noproxy"
)

func runExplain(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("explain", flag.ContinueOnError)
	list := flags.String("list", "", "the no_proxy `list`; required")
	asJSON := flags.Bool("json", false, "write JSON")
	if err := parse(flags, args, stdout); err != nil {
		return err
	}
	switch {
	case !isSet(flags, "list"):
		return usageError("explain: -list is required")
	case flags.NArg() == 0:
		return usageError("explain: no target, such as example.com:443")
	}
	rules := noproxy.Parse(*list)
	var answers []noproxy.Explanation
	for _, arg := range flags.Args() {
		host, port, err := parseTarget(arg)
		if err != nil {
			return err
		}
		answers = append(answers, rules.Explain(host, port))
	}
	if *asJSON {
		return writeJSON(stdout, answers)
	}
	return writeExplanations(stdout, answers)
}

// parseTarget splits a host, host:port or URL.
func parseTarget(arg string) (host, port string, err error) {
	if strings.Contains(arg, "://") {
		u, err := url.Parse(arg)
		if err != nil || u.Hostname() == "" {
			return "", "", usageError("a target is not a URL with a host") // may hold credentials
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		return u.Hostname(), port, nil
	}
	if strings.ContainsAny(arg, "@/ ") { // no URL, and no credentials to repeat
		return "", "", usageError("a target is a host, host:port or URL")
	}
	if host, port, err := net.SplitHostPort(arg); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" {
			return "", "", usageError(fmt.Sprintf("target %q is not a host and a port", arg))
		}
		return host, port, nil
	}
	host = strings.TrimSuffix(strings.TrimPrefix(arg, "["), "]")
	if host == "" {
		return "", "", usageError("a target is a host, host:port or URL")
	}
	return host, "", nil
}

func runLint(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("lint", flag.ContinueOnError)
	list := flags.String("list", "", "the no_proxy `list`; required")
	names := flags.String("for", "", "`consumers` to ask, separated by commas; all if empty")
	asJSON := flags.Bool("json", false, "write JSON")
	if err := parse(flags, args, stdout); err != nil {
		return err
	}
	switch {
	case !isSet(flags, "list"):
		return usageError("lint: -list is required")
	case flags.NArg() > 0:
		return usageError(fmt.Sprintf("lint: unexpected argument %q", flags.Arg(0)))
	}
	var consumers []noproxy.Consumer
	for _, name := range splitList(*names) {
		c, err := noproxy.ParseConsumer(name)
		if err != nil {
			return usageError("lint: " + err.Error())
		}
		consumers = append(consumers, c)
	}
	findings := noproxy.Lint(*list, consumers...)
	if err := writeLint(stdout, *asJSON, findings); err != nil {
		return err
	}
	if len(findings) > 0 {
		return cli.ErrFailed
	}
	return nil
}

func writeLint(stdout io.Writer, asJSON bool, findings []noproxy.Finding) error {
	if asJSON {
		return writeJSON(stdout, append([]noproxy.Finding{}, findings...)) // [], not null
	}
	if len(findings) == 0 {
		_, err := fmt.Fprintln(stdout, "no findings")
		return err
	}
	return writeFindings(stdout, findings)
}

// splitList splits at commas; empty parts are dropped.
func splitList(s string) []string {
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// clusterResult is what the cluster command writes as JSON.
type clusterResult struct {
	List     string            `json:"list"`
	For      string            `json:"for,omitempty"`
	Entries  noproxy.List      `json:"entries"`
	Findings []noproxy.Finding `json:"findings,omitempty"`
}

func runCluster(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	var c noproxy.Cluster
	listFlag(flags, &c.PodCIDRs, "pods", "networks of pods")
	listFlag(flags, &c.ServiceCIDRs, "services", "networks of services")
	listFlag(flags, &c.NodeCIDRs, "nodes", "networks of nodes")
	listFlag(flags, &c.ControlPlaneHosts, "control-plane", "names or addresses of the API server")
	listFlag(flags, &c.Extra, "extra", "further entries")
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
		return usageError(fmt.Sprintf("cluster: unexpected argument %q", flags.Arg(0)))
	}
	i := slices.Index([]string{"merged", "giantswarm"}, *layout)
	if i < 0 {
		return usageError(fmt.Sprintf("cluster: unknown layout %q, want merged or giantswarm", *layout))
	}
	c.Layout = noproxy.Layout(i)
	result, err := listResult(c, *name)
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(stdout, result)
	}
	return writeCluster(stdout, result)
}

// listFlag adds a flag that may be repeated, whose values may have commas.
func listFlag(flags *flag.FlagSet, to *[]string, name, what string) {
	flags.Func(name, what+", as a `list` with commas; may be repeated", func(s string) error {
		*to = append(*to, splitList(s)...)
		return nil
	})
}

func listResult(c noproxy.Cluster, consumer string) (clusterResult, error) {
	entries, err := c.List()
	if err != nil {
		return clusterResult{}, err
	}
	result := clusterResult{List: entries.String(), For: consumer, Entries: entries}
	if consumer != "" {
		who, err := noproxy.ParseConsumer(consumer)
		if err != nil {
			return clusterResult{}, usageError("cluster: " + err.Error())
		}
		result.List, result.Findings = entries.For(who)
	}
	return result, nil
}

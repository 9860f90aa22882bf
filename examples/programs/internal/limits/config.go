// Package limits bounds what the clients of the tunnel's doors take: connections, dials
// and bytes, of each client, cluster and source, and of all together.
package limits

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Limit is what connections may take together. A zero field is no limit.
type Limit struct {
	// Connections that are open at once.
	Connections int
	// DialsPerSecond on average. Those of ten seconds may come at once.
	DialsPerSecond float64
	// BytesPerSecond and BytesPerDay count both directions. A connection that is too
	// fast waits; when the day's bytes are used up, connections end. They come back
	// evenly: an hour later, a twenty-fourth of them is there again.
	BytesPerSecond, BytesPerDay int64
}

// Config says who may take how much.
type Config struct {
	// Total is for all connections together.
	Total Limit
	// Client, Cluster and Source are for each client by its name, each cluster, and each
	// source: an IPv4 address or an IPv6 network (/64).
	Client, Cluster, Source Limit
	// Clients, Clusters and Sources are for some of them, instead. Of networks that
	// overlap, the smallest counts.
	Clients, Clusters map[string]Limit
	Sources           map[netip.Prefix]Limit
}

// file is the text of a Config.
type file struct {
	Total    text            `json:"total"`
	Client   text            `json:"client"`
	Cluster  text            `json:"cluster"`
	Source   text            `json:"source"`
	Clients  map[string]text `json:"clients"`
	Clusters map[string]text `json:"clusters"`
	Sources  map[string]text `json:"sources"`
}

// text is that of a Limit.
type text struct {
	Connections    *int               `json:"connections"`
	DialsPerSecond *float64           `json:"dialsPerSecond"`
	BytesPerSecond *resource.Quantity `json:"bytesPerSecond"`
	BytesPerDay    *resource.Quantity `json:"bytesPerDay"`
}

// With less, hardly a TLS handshake ends.
const (
	minPerSecond = 16 << 10
	minPerDay    = 1 << 20
)

// Parse reads YAML. An error names the field.
func Parse(b []byte) (*Config, error) {
	docs := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(b)))
	doc, err := docs.Read()
	if err != nil && err != io.EOF {
		return nil, err
	}
	if more, err := docs.Read(); err != io.EOF || len(bytes.TrimSpace(more)) > 0 {
		return nil, errors.New("want one YAML document")
	}
	var f file
	if err := yaml.UnmarshalStrict(doc, &f); err != nil {
		return nil, err
	}
	if err := checkValues(doc); err != nil {
		return nil, err
	}
	r := reader{}
	c := &Config{
		Total: r.limit("total", f.Total), Client: r.limit("client", f.Client), Cluster: r.limit("cluster", f.Cluster), Source: r.limit("source", f.Source),
		Clients: r.limits("clients", f.Clients), Clusters: r.limits("clusters", f.Clusters), Sources: map[netip.Prefix]Limit{},
	}
	for name, l := range f.Sources {
		field := fmt.Sprintf("sources[%q]", name)
		network, err := parseNetwork(name)
		if err != nil {
			r.fail(field, err.Error())
		}
		c.Sources[network] = r.limit(field, l)
	}
	return c, errors.Join(r.errs...)
}

// checkValues returns an error for a field without a value, which was to have one and would
// be no limit, and for one in capital letters, of which there may be another. The rest of
// the document is right.
func checkValues(doc []byte) error {
	var all any
	if err := yaml.Unmarshal(doc, &all); err != nil {
		return err
	}
	return checkValue("the file", all, true)
}

// checkValue is told whether the fields of the value are not names that somebody chose.
func checkValue(field string, value any, ours bool) error {
	if value == nil {
		return fmt.Errorf("%s has no value: write {} for no limits", field)
	}
	fields, _ := value.(map[string]any)
	for name, v := range fields {
		if ours && !slices.Contains(spellings, name) {
			return fmt.Errorf("unknown field %q: of small and capital letters, too, the spelling counts", name)
		}
		if err := checkValue(name, v, !ours || field != "the file" || !slices.Contains(named, name)); err != nil {
			return err
		}
	}
	return nil
}

var (
	named     = []string{"clients", "clusters", "sources"}
	spellings = append([]string{"total", "client", "cluster", "source", "connections", "dialsPerSecond", "bytesPerSecond", "bytesPerDay"}, named...)
)

func parseNetwork(s string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		return ip.Prefix(ip.BitLen())
	}
	network, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("want a network, such as 10.0.0.0/24, or an address")
	case network != network.Masked():
		return netip.Prefix{}, fmt.Errorf("bits behind its prefix: want %s", network.Masked())
	case network.Addr().Is6() && network.Bits() > 64:
		return netip.Prefix{}, errors.New("a source of IPv6 is a /64: want no smaller network")
	}
	return network, nil
}

// reader collects what is wrong.
type reader struct{ errs []error }

func (r *reader) fail(field, text string) {
	r.errs = append(r.errs, fmt.Errorf("%s: %s", field, text))
}

func (r *reader) limits(field string, of map[string]text) map[string]Limit {
	all := make(map[string]Limit, len(of))
	for name, l := range of {
		if name == "" || strings.TrimSpace(name) != name {
			r.fail(field, fmt.Sprintf("the name %q is empty, or has spaces around it", name))
		}
		all[name] = r.limit(fmt.Sprintf("%s[%q]", field, name), l)
	}
	return all
}

func (r *reader) limit(field string, t text) (l Limit) {
	if t.Connections != nil {
		if l.Connections = *t.Connections; l.Connections <= 0 {
			r.fail(field+".connections", "want more than zero; leave it out for no limit")
		}
	}
	if t.DialsPerSecond != nil {
		if l.DialsPerSecond = *t.DialsPerSecond; l.DialsPerSecond < 0.001 || l.DialsPerSecond > 1e6 {
			r.fail(field+".dialsPerSecond", "want 0.001 to 1000000; leave it out for no limit")
		}
	}
	l.BytesPerSecond = r.bytes(field+".bytesPerSecond", t.BytesPerSecond, minPerSecond)
	l.BytesPerDay = r.bytes(field+".bytesPerDay", t.BytesPerDay, minPerDay)
	return l
}

func (r *reader) bytes(field string, q *resource.Quantity, least int64) int64 {
	if q == nil {
		return 0
	}
	if q.CmpInt64(least) < 0 || q.CmpInt64(1<<50) > 0 {
		r.fail(field, fmt.Sprintf("want %s to 1Pi, such as 10Mi; leave it out for no limit", resource.NewQuantity(least, resource.BinarySI)))
	}
	return q.Value()
}

// Package limits bounds what the clients of the tunnel's doors take: connections, dials
// and bytes, of each client, cluster and source, and of all together.
package limits

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
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

// With less, hardly a TLS handshake ends.
const (
	minPerSecond = 16 << 10
	minPerDay    = 1 << 20
)

// Parse reads YAML. An error names the field, and what it takes.
func Parse(b []byte) (*Config, error) {
	docs := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(b)))
	doc, err := docs.Read()
	if err != nil && err != io.EOF {
		return nil, err
	}
	if more, err := docs.Read(); err != io.EOF || len(bytes.TrimSpace(more)) > 0 {
		return nil, errors.New("want one YAML document")
	}
	text, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, err
	}
	var all any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&all); err != nil {
		return nil, err
	}
	r := reader{}
	c := r.config(all)
	return c, errors.Join(r.errs...)
}

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

// fields returns the fields of a value by their names.
func (r *reader) fields(field string, value any) map[string]any {
	of, ok := value.(map[string]any)
	switch {
	case ok:
	case value == nil:
		r.fail(field, "there is no value: write {} for no limits")
	default:
		r.fail(field, "want fields and their values, or {} for no limits")
	}
	return of
}

// unknown reports a field that does not exist. Capital letters count.
func (r *reader) unknown(field, name string, want []string) {
	r.fail(field, fmt.Sprintf("unknown field %q: want %s", name, cli.JoinOr(want)))
}

func (r *reader) config(value any) *Config {
	c := &Config{Clients: map[string]Limit{}, Clusters: map[string]Limit{}, Sources: map[netip.Prefix]Limit{}}
	all := r.fields("the file", value)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch value := all[name]; name {
		case "total":
			c.Total = r.limit(name, value)
		case "client":
			c.Client = r.limit(name, value)
		case "cluster":
			c.Cluster = r.limit(name, value)
		case "source":
			c.Source = r.limit(name, value)
		case "clients":
			c.Clients = r.limits(name, value)
		case "clusters":
			c.Clusters = r.limits(name, value)
		case "sources":
			c.Sources = r.sources(name, value)
		default:
			r.unknown("the file", name, []string{"total", "client", "cluster", "source", "clients", "clusters", "sources"})
		}
	}
	return c
}

func (r *reader) limits(field string, value any) map[string]Limit {
	of := r.fields(field, value)
	all := make(map[string]Limit, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if name == "" || strings.TrimSpace(name) != name {
			r.fail(field, fmt.Sprintf("the name %q is empty, or has spaces around it", name))
		}
		all[name] = r.limit(fmt.Sprintf("%s[%q]", field, name), of[name])
	}
	return all
}

func (r *reader) sources(field string, value any) map[netip.Prefix]Limit {
	of := r.fields(field, value)
	all := make(map[netip.Prefix]Limit, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		field := fmt.Sprintf("%s[%q]", field, name)
		network, err := parseNetwork(name)
		if err != nil {
			r.fail(field, err.Error())
		}
		all[network] = r.limit(field, of[name])
	}
	return all
}

func (r *reader) limit(field string, value any) (l Limit) {
	all := r.fields(field, value)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		field, value := field+"."+name, all[name]
		number, isNumber := value.(json.Number)
		var err error
		switch name {
		case "connections":
			l.Connections, err = strconv.Atoi(number.String())
			r.check(field, value, isNumber && err == nil && l.Connections > 0, "a whole number, 1 or more")
		case "dialsPerSecond":
			l.DialsPerSecond, err = number.Float64()
			r.check(field, value, isNumber && err == nil && l.DialsPerSecond >= 0.001 && l.DialsPerSecond <= 1e6, "a number, 0.001 to 1000000")
		case "bytesPerSecond":
			l.BytesPerSecond = r.bytes(field, value, minPerSecond)
		case "bytesPerDay":
			l.BytesPerDay = r.bytes(field, value, minPerDay)
		default:
			r.unknown(strings.TrimSuffix(field, "."+name), name, []string{"connections", "dialsPerSecond", "bytesPerSecond", "bytesPerDay"})
		}
	}
	return l
}

func (r *reader) bytes(field string, value any, least int64) int64 {
	text := ""
	switch value := value.(type) {
	case json.Number:
		text = value.String()
	case string:
		text = value
	}
	q, err := resource.ParseQuantity(text)
	ok := err == nil && q.CmpInt64(least) >= 0 && q.CmpInt64(1<<50) <= 0
	r.check(field, value, ok, fmt.Sprintf("a number of bytes, %s to 1Pi, such as 10Mi", resource.NewQuantity(least, resource.BinarySI)))
	return q.Value()
}

// check is told whether a value is right, and what the field takes.
func (r *reader) check(field string, value any, ok bool, want string) {
	if ok {
		return
	}
	got := "got what is no number"
	switch value := value.(type) {
	case nil:
		got = "there is no value"
	case json.Number:
		got = "got " + value.String()
	case string:
		got = fmt.Sprintf("got %.40q", value)
	}
	r.fail(field, got+", want "+want+"; leave it out for no limit")
}

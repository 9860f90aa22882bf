// Package limits bounds what the clients of the tunnel's doors use: open connections,
// dials and bytes, of each client, cluster and source, and of all together.
package limits

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/resource"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

// Config says who may use how much.
type Config struct{ kinds map[string]kindLimits }

// kindLimits are the limits of clients, clusters, sources, or of all together.
type kindLimits struct {
	each limit
	some map[string]limit // by name, instead of each
}

// limit bounds some connections together. A field without a limit is [rate.Inf].
type limit struct{ connections, dialsPerSecond, bytesPerSecond float64 }

// Clusters returns the clusters that have limits of their own.
func (c *Config) Clusters() []string { return slices.Sorted(maps.Keys(c.kinds[kindCluster].some)) }

// Parse reads YAML. An error names the field, and what it takes.
func Parse(b []byte) (*Config, error) {
	docs := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(b)))
	doc, _ := docs.Read() // an empty one fails below
	if more, _ := docs.Read(); len(bytes.TrimSpace(more)) > 0 {
		return nil, errors.New("want one YAML document")
	}
	var all any
	if err := yaml.UnmarshalStrict(doc, &all); err != nil {
		return nil, err
	}
	r, c := reader{}, &Config{map[string]kindLimits{}}
	top := r.fields("the file", map[string]any{"": all}, "", "total", "client", "cluster", "source", "clients", "clusters", "sources")
	for _, kind := range []string{kindTotal, kindClient, kindCluster, kindSource} {
		c.kinds[kind] = kindLimits{r.limit(kind, top, kind), map[string]limit{}}
		of := r.fields(kind+"s", top, kind+"s")
		for _, name := range slices.Sorted(maps.Keys(of)) {
			field, key := fmt.Sprintf("%ss[%q]", kind, name), name
			if kind == kindSource {
				network, err := cli.ParseNetwork(name)
				if err == nil && network.Addr().Is6() && network.Bits() > 64 {
					err = errors.New("is too small: a source of IPv6 is a /64")
				}
				if err != nil {
					r.addError("%s %w", field, err)
				}
				key = network.String() // as limitFor asks for it
			}
			c.kinds[kind].some[key] = r.limit(field, of, name)
		}
	}
	return c, errors.Join(r.errs...)
}

// reader collects what is wrong.
type reader struct{ errs []error }

func (r *reader) addError(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

// fields returns what is in a field by names; nothing if it is left out. If some are known,
// others are errors. Case counts.
func (r *reader) fields(field string, in map[string]any, name string, known ...string) map[string]any {
	value, given := in[name]
	all, ok := value.(map[string]any)
	if given && !ok {
		r.addError("%s: want fields and their values, or {} for no limits", field)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if known != nil && !slices.Contains(known, name) {
			r.addError("%s: unknown field %.40q: want %s", field, name, cli.JoinOr(known))
		}
	}
	return all
}

func (r *reader) limit(field string, in map[string]any, name string) limit {
	of := r.fields(field, in, name, connections, dialsPerSecond, bytesPerSecond)
	return limit{
		r.number(field, of, connections, 1, 1e9, "a whole number, 1 to 1000000000"),
		r.number(field, of, dialsPerSecond, 0.001, 1e6, "a number, 0.001 to 1000000"),
		r.number(field, of, bytesPerSecond, maxPiece, 1<<50, "a number of bytes, 16Ki to 1Pi, such as 10Mi"),
	}
}

// number reads a Quantity.
func (r *reader) number(field string, in map[string]any, name string, least, most float64, want string) float64 {
	value, ok := in[name]
	if !ok {
		return float64(rate.Inf)
	}
	q, err := resource.ParseQuantity(fmt.Sprint(value)) // null, lists and true are none
	n := q.AsApproximateFloat64()
	if err != nil || n < least || n > most || name == connections && n != math.Trunc(n) {
		r.addError("%s.%s: got %.40q, want %s; leave it out for no limit", field, name, fmt.Sprint(value), want)
	}
	return n
}

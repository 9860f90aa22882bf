package proxyconfig

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// configMapValues are our values of the ConfigMap. Of the proxy it has only the list.
func (v ClusterValues) configMapValues() map[string]any {
	document := map[string]any{}
	section := document
	if v.Layout == LayoutCharts {
		section = map[string]any{}
		document["cluster"] = section
	}
	setValue(section, v.PodCIDR, "calico", "CIDR")
	setValue(section, v.ServiceCIDR, "kubernetes", "API", "clusterIPRange")
	setValue(section, dnsAddress(v.ServiceCIDR), "kubernetes", "DNS", "IP")
	setValue(section, v.Config.NoProxy, "proxy", "noProxy")
	return document
}

// dnsAddress is the tenth address of the network, or "".
func dnsAddress(cidr string) string {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ""
	}
	addr := p.Masked().Addr()
	for range 10 {
		addr = addr.Next()
	}
	if !p.Contains(addr) {
		return ""
	}
	return addr.String()
}

// secretValues are our values of the Secret, with the configuration of charts.
func (v ClusterValues) secretValues(c Config) map[string]any {
	document := map[string]any{}
	setValue(document, c.HTTPProxy, "cluster", "proxy", "httpProxy")
	setValue(document, c.HTTPSProxy, "cluster", "proxy", "httpsProxy")
	if v.Layout == LayoutRFC {
		return document
	}
	setValue(document, c.HTTPProxy, "cluster", "proxy", "http")
	setValue(document, c.HTTPSProxy, "cluster", "proxy", "https")
	setValue(document, c.NoProxy, "cluster", "proxy", "noProxy")
	if c.HTTPProxy+c.HTTPSProxy != "" {
		setValue(document, true, "global", "connectivity", "proxy", "enabled")
	}
	setValue(document, c.HTTPProxy, "global", "connectivity", "proxy", "httpProxy")
	setValue(document, c.HTTPSProxy, "global", "connectivity", "proxy", "httpsProxy")
	setValue(document, c.NoProxy, "global", "connectivity", "proxy", "noProxy")
	setValue(document, c.HTTPProxy, "http_proxy")
	setValue(document, c.HTTPSProxy, "https_proxy")
	setValue(document, c.NoProxy, "no_proxy")
	vars := c.EnvVars()
	if v.EnvSecret != "" {
		vars = c.EnvVarsFrom(v.EnvSecret, true)
	}
	vars = slices.DeleteFunc(vars, func(e corev1.EnvVar) bool { return lower[e.Name] == "" }) // upper case only
	if len(vars) > 0 {
		document["env"] = vars
	}
	if v.EnvSecret != "" && len(vars) > 0 {
		extra := map[string]any{"extraEnv": vars}
		document["cert-manager"] = map[string]any{"extraEnv": vars, "webhook": extra, "cainjector": extra}
	}
	return document
}

// setValue sets the value at the path, unless it is an empty text.
func setValue(document map[string]any, value any, path ...string) {
	if value == "" {
		return
	}
	for _, key := range path[:len(path)-1] {
		next, ok := document[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			document[key] = next
		}
		document = next
	}
	document[path[len(path)-1]] = value
}

// checkUnquoted refuses a list that reaches no reader of a chart as it is: chart-operator
// and others write it into their manifests without quotes.
func checkUnquoted(list string) error {
	var read map[string]any
	if list == "" || yaml.Unmarshal([]byte("list: "+list), &read) == nil && read["list"] == any(list) {
		return nil
	}
	reason := "charts write it into their manifests without quotes, where YAML reads something else"
	if strings.HasSuffix(list, ":") {
		return errors.New(reason + "; write an address that ends in :: with its mask, such as fd00::/128")
	}
	return errors.New(reason + "; it may not begin with *, !, &, %, [, { or a space, and have no : or # beside a space")
}

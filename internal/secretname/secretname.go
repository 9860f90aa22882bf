// Package secretname knows the names of Secrets that others look for.
package secretname

import "strings"

// ends are those of the names of Secrets that Cluster API has beside a Cluster, or we.
var ends = []string{
	"kubeconfig", "ca", "etcd", "sa", "proxy", "apiserver-etcd-client",
	"proxy-override", "cluster-values", "systemd-proxy", "tunnel-agent", "tunnel-route", "route-records",
}

// bootstrapToken begins the names that Kubernetes takes for those of bootstrap tokens.
const bootstrapToken = "bootstrap-token-"

// Taken returns the end or the beginning of the name by which another program takes the Secret
// for its own; "" for a name that is free.
func Taken(name string) string {
	if strings.HasPrefix(name, bootstrapToken) {
		return bootstrapToken
	}
	for _, end := range ends {
		if strings.HasSuffix(name, "-"+end) {
			return "-" + end
		}
	}
	return ""
}

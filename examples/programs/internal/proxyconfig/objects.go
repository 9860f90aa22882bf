package proxyconfig

import (
	"cmp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

// staticPods are the ways of --static-pods.
var staticPods = []string{"none", "environment", "patches", "extra-envs", "extra-envs-with-credentials"}

// kubeadm has no credentials, unless extraEnvs are asked for with them: they are
// in the Secret that it refers to.
func kubeadm(o options, s *spec, merged *proxyconfig.Merged) (string, []noproxy.Finding, error) {
	way := proxyconfig.StaticPods(slices.Index(staticPods, o.staticPods))
	secret := proxyconfig.ClusterValues{Name: s.Name, Namespace: "default", SystemdName: o.systemdName}
	if _, err := secret.Build(); err != nil { // checks the names
		return "", nil, err
	}
	k := proxyconfig.Kubeadm{Secret: secret.SystemdSecret(), Units: o.units, StaticPods: way, Config: merged.Config}
	built, err := k.Build()
	if err != nil {
		return "", nil, err
	}
	text, err := yaml.Marshal(built)
	return string(text), merged.LintStaticPods(way), err
}

// values are manifests for the management cluster.
func values(o options, s *spec, layers proxyconfig.Layers, merged *proxyconfig.Merged) (string, error) {
	v := proxyconfig.ClusterValues{Name: s.Name, Namespace: cmp.Or(s.Namespace, "default"), Config: merged.Config, EnvSecret: o.envSecret, ValuesName: o.valuesName, SystemdName: o.systemdName}
	if o.valuesLayout == "rfc" {
		v.Layout = proxyconfig.LayoutRFC
	}
	v.Credentials = proxyconfig.Credentials(slices.Index([]string{"everywhere", "machines", "nowhere"}, o.credentials))
	if o.containerd == "installation" {
		v.ContainerdNoProxy = layers.Installation.NoProxy
	}
	if len(s.Cluster.Pods) > 0 {
		v.PodCIDR = s.Cluster.Pods[0]
	}
	if len(s.Cluster.Services) > 0 {
		v.ServiceCIDR = s.Cluster.Services[0]
	}
	objects, err := v.Build()
	if err != nil {
		return "", err
	}
	var documents []string
	for _, object := range []any{objects.ConfigMap, objects.Secret, objects.SystemdProxy} {
		text, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		documents = append(documents, string(text))
	}
	return strings.Join(documents, "---\n"), nil
}

package proxyconfig

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// values is the part that concerns proxies of the key "values" in Giant Swarm's
// objects. The older keys are read, never written.
type values struct {
	Calico     *calico     `json:"calico,omitempty"`
	Kubernetes *kubernetes `json:"kubernetes,omitempty"`

	Proxy   *proxySection `json:"proxy,omitempty"`
	Cluster *struct {
		Proxy *proxySection `json:"proxy,omitempty"`
	} `json:"cluster,omitempty"`

	// For chart-operator, and apps that take a list of variables.
	Env []corev1.EnvVar `json:"env,omitempty"`

	// For cert-manager, whose schema has these.
	HTTPProxy  string `json:"http_proxy,omitempty"`
	HTTPSProxy string `json:"https_proxy,omitempty"`
	NoProxy    string `json:"no_proxy,omitempty"`
}

type calico struct {
	CIDR string `json:"CIDR,omitempty"`
}

type kubernetes struct {
	API *struct {
		ClusterIPRange string `json:"clusterIPRange,omitempty"`
	} `json:"API,omitempty"`
	DNS *struct {
		IP string `json:"IP,omitempty"`
	} `json:"DNS,omitempty"`
}

type proxySection struct {
	HTTP    string `json:"http,omitempty"`
	HTTPS   string `json:"https,omitempty"`
	NoProxy string `json:"noProxy,omitempty"`

	// Of the RFC's draft.
	HTTPProxy  string `json:"httpProxy,omitempty"`
	HTTPSProxy string `json:"httpsProxy,omitempty"`
}

// configMapValues are the values of the ConfigMap. Of the proxy it has only the list.
func (v ClusterValues) configMapValues() values {
	var f values
	if v.PodCIDR != "" {
		f.Calico = &calico{CIDR: v.PodCIDR}
	}
	if v.ServiceCIDR != "" || v.DNSIP != "" {
		f.Kubernetes = &kubernetes{}
	}
	if v.ServiceCIDR != "" {
		f.Kubernetes.API = &struct {
			ClusterIPRange string `json:"clusterIPRange,omitempty"`
		}{v.ServiceCIDR}
	}
	if v.DNSIP != "" {
		f.Kubernetes.DNS = &struct {
			IP string `json:"IP,omitempty"`
		}{v.DNSIP}
	}
	f.Proxy = &proxySection{NoProxy: v.Config.NoProxy}
	return f
}

// secretValues are the values of the Secret.
func secretValues(c Config, envSecret string) values {
	s := values{HTTPProxy: c.HTTPProxy, HTTPSProxy: c.HTTPSProxy, NoProxy: c.NoProxy}
	s.Cluster = &struct {
		Proxy *proxySection `json:"proxy,omitempty"`
	}{&proxySection{HTTP: c.HTTPProxy, HTTPS: c.HTTPSProxy, NoProxy: c.NoProxy}}
	vars := c.EnvVars()
	if envSecret != "" {
		vars = c.EnvVarsFrom(envSecret, true)
	}
	for _, name := range []string{noProxy, httpProxy, httpsProxy} {
		if i := slices.IndexFunc(vars, func(e corev1.EnvVar) bool { return e.Name == name }); i >= 0 {
			s.Env = append(s.Env, vars[i])
		}
	}
	return s
}

package doctor

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/noproxy"
)

// environmentNotes say what other programs do with the kubeconfig, and what works but is not
// safe.
func environmentNotes(config *clientcmdapi.Config, r probe.Report, getenv func(string) string) []string {
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return nil
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	var all []string
	scheme, _, _ := strings.Cut(cluster.ProxyURL, "://")
	switch certificate := user != nil && (user.ClientCertificate != "" || len(user.ClientCertificateData) > 0); {
	case scheme == "https":
		note := "kubectl and other programs verify this https proxy by the kubeconfig's certificate-authority-data"
		if certificate {
			note += ", and show it your client certificate if it asks for one"
		}
		all = append(all, note+".")
	case scheme == "socks5h":
		all = append(all, "kubectl refuses socks5h: write socks5 in proxy-url, which means the same there.")
	case cluster.ProxyURL == "":
		all = append(all, environmentNote(r.Server, getenv)...)
	}
	if cluster.InsecureSkipTLSVerify {
		all = append(all, "insecure-skip-tls-verify is set: anybody between here and the API server can read and change everything, and take the token.")
	}
	if strings.HasPrefix(r.Server, "http://") {
		all = append(all, "The API server is spoken to without TLS: credentials go there in plain text.")
	}
	return all
}

// environmentNote says whether client-go would follow HTTPS_PROXY, which it does
// where the kubeconfig names no proxy.
func environmentNote(server string, getenv func(string) string) []string {
	name, proxy := firstSet(getenv, "HTTPS_PROXY", "https_proxy")
	u, err := url.Parse(server)
	if proxy == "" || err != nil || u.Scheme != "https" {
		return nil
	}
	port := cmp.Or(u.Port(), "443")
	_, list := firstSet(getenv, "NO_PROXY", "no_proxy")
	decided := noproxy.Parse(list).Explain(u.Hostname(), port)
	target := net.JoinHostPort(u.Hostname(), port)
	if decided.Bypass {
		return []string{fmt.Sprintf("%s is set, and NO_PROXY keeps kubectl from using it for %s (%s).", name, target, reason(decided))}
	}
	return []string{fmt.Sprintf("%s is set, and kubectl goes to %s through %s (NO_PROXY: %s). This report is about the direct connection. "+
		"Set proxy-url, or add the API server to NO_PROXY.", name, target, withoutUser(proxy), reason(decided))}
}

func reason(e noproxy.Explanation) string {
	if e.Index < 0 {
		return e.Reason
	}
	return fmt.Sprintf("%q: %s", e.Text, e.Reason)
}

func firstSet(getenv func(string) string, names ...string) (name, value string) {
	for _, name := range names {
		if value := getenv(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// withoutUser shows a proxy variable, which need not have a scheme.
func withoutUser(proxy string) string {
	if !strings.Contains(proxy, "://") {
		proxy = "http://" + proxy
	}
	u, err := dialer.ParseURL(proxy)
	if err != nil {
		return "a proxy that is no URL"
	}
	return u.Scheme + "://" + u.Host
}

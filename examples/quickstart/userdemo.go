package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// userDemo returns a demo with a kubeconfig's cluster, through -proxy or its own proxy-url.
func userDemo(f flags) (*demo, error) {
	config, err := connect.FileSource(f.kubeconfig).Read(context.Background())
	if err != nil {
		return nil, fmt.Errorf("-kubeconfig: %w", err)
	}
	spec, err := specOf(config)
	if err != nil {
		return nil, fmt.Errorf("-kubeconfig %s: %w", f.kubeconfig, err)
	}
	flag, proxy := "-proxy", f.proxy
	if proxy == "" {
		flag, proxy = "proxy-url of -kubeconfig", config.Clusters[config.Contexts[config.CurrentContext].Cluster].ProxyURL
	}
	r := route{name: "directly", route: kubeconfig.Route{ProxyURL: proxy}}
	if proxy != "" {
		u, err := dialer.ParseURL(proxy)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		r.name = u.Scheme + "://" + u.Host
	}
	if f.proxyCA != "" {
		roots := x509.NewCertPool()
		if pem, err := os.ReadFile(f.proxyCA); err != nil {
			return nil, fmt.Errorf("-proxy-ca: %w", err)
		} else if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("-proxy-ca: %s holds no PEM certificate", f.proxyCA)
		}
		r.options = &connect.Options{ProxyTLS: &tls.Config{RootCAs: roots}}
	}
	return &demo{
		intro:  fmt.Sprintf("The API server is the one of %s: %s", f.kubeconfig, spec.Endpoint),
		spec:   spec,
		routes: []route{r},
		close:  func() {},
	}, nil
}

// specOf takes the current context of a kubeconfig apart.
func specOf(config *clientcmdapi.Config) (kubeconfig.Spec, error) {
	var spec kubeconfig.Spec
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return spec, errors.New("its current-context names no context")
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return spec, errors.New("its current context names no cluster or no user")
	}
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Scheme != "https" {
		return spec, errors.New("server is not an https URL")
	}
	port := 443
	if p := server.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return spec, fmt.Errorf("server: %w", err)
		}
	}
	spec = kubeconfig.Spec{
		Name:          current.Cluster,
		Endpoint:      kubeconfig.Endpoint{Host: server.Hostname(), Port: int32(port)},
		CA:            cluster.CertificateAuthorityData,
		TLSServerName: cluster.TLSServerName,
		Credentials:   kubeconfig.Credentials{AuthInfo: user},
	}
	// Other tools name clusters as they like; a Secret's name can't.
	if len(validation.IsDNS1123Label(spec.Name)) > 0 {
		spec.Name = "quickstart"
	}
	if len(spec.CA) == 0 && cluster.CertificateAuthority != "" {
		spec.CA, err = os.ReadFile(cluster.CertificateAuthority)
	}
	return spec, err
}

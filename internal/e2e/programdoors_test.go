package e2e

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

// The ports of the program's doors, on loopback.
const (
	doorConnect = 3128
	doorTLS     = 3129
	doorSOCKS5  = 1080
	doorSNI     = 6444
	doorForward = 6443
)

func doorAddress(loopback string, port int) string {
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}

// doorFlags are the flags of a server with a door of each kind. The doors without tickets
// lead to the API server of a cluster.
func (p *programs) doorFlags(loopback string, ca *pki.CA, cluster string) []string {
	cert, key := p.writeCertificate("door", ca, loopback) // kubectl trusts a proxy as it does the API server
	return []string{
		"--connect", doorAddress(loopback, doorConnect),
		"--connect-tls", doorAddress(loopback, doorTLS), "--door-cert", cert, "--door-key", key,
		"--socks5", doorAddress(loopback, doorSOCKS5),
		"--sni", doorAddress(loopback, doorSNI), "--sni-name", bed.SNIName + "=" + cluster + "/" + apiTarget,
		"--forward", doorAddress(loopback, doorForward) + "=" + cluster + "/" + apiTarget,
	}
}

// writeCertificate writes a certificate and its key among the programs.
func (p *programs) writeCertificate(name string, ca *pki.CA, hosts ...string) (cert, key string) {
	p.t.Helper()
	cert, key = p.path(name+".crt"), p.path(name+".key")
	certPEM, keyPEM := pki.PEM(ca.Server(hosts...))
	writeFile(p.t, cert, string(certPEM))
	writeFile(p.t, key, string(keyPEM))
	return cert, key
}

// useDoors has kubectl in a namespace reach a cluster at each door.
func (p *programs) useDoors(ns *bed.Namespace, loopback string, kube *bed.Kube, cluster string) {
	p.t.Helper()
	for _, d := range []struct {
		scheme string
		port   int
	}{{"http", doorConnect}, {"https", doorTLS}, {"socks5", doorSOCKS5}} {
		p.useTicket(ns, d.scheme+"://"+doorAddress(loopback, d.port), kube, cluster)
	}
	for _, d := range []struct {
		name, serverName string
		port             int32
	}{{"SNI", bed.SNIName, doorSNI}, {"the forward listener", "kubernetes.default.svc", doorForward}} {
		p.gets(ns, d.name, kubeconfigOf(p.t, kube, kubeconfig.Endpoint{Host: loopback, Port: d.port}, d.serverName, kubeconfig.Route{}))
	}
}

// useTicket has kubectl reach a cluster at a door by a ticket.
func (p *programs) useTicket(ns *bed.Namespace, door string, kube *bed.Kube, cluster string) {
	p.t.Helper()
	beside := kubeconfigOf(p.t, kube, kubeconfig.Endpoint{Host: kube.Host(), Port: kube.Port()}, "", kubeconfig.Route{})
	p.gets(ns, door+" to "+cluster, []byte(p.command(string(beside), "kubeconfig", "--state", p.path("server"), "--gateway", door, cluster)))
}

// kubeconfigOf leads an administrator to an API server.
func kubeconfigOf(t testing.TB, kube *bed.Kube, endpoint kubeconfig.Endpoint, serverName string, r kubeconfig.Route) []byte {
	t.Helper()
	config, err := kubeconfig.Spec{Name: "admin", Endpoint: endpoint, TLSServerName: serverName, CA: kube.CA.CertPEM(),
		Credentials: kubeconfig.Credentials{CAKey: kube.CA.KeyPEM()}, Route: r}.Build()
	if err != nil {
		t.Fatal(err)
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// gets waits until kubectl works with a kubeconfig.
func (p *programs) gets(ns *bed.Namespace, what string, config []byte) {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), "kubeconfig")
	writeFile(p.t, path, string(config))
	err := bed.Poll(p.t.Context(), "kubectl by "+what, func(ctx context.Context) error {
		out, err := ns.Run(ctx, p.bed.Kubectl(path, "get", "namespaces", "-o", "name", "--request-timeout=5s"))
		if err == nil && !strings.Contains(out, "namespace/default\n") {
			err = fmt.Errorf("got %q", out)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// ipv6 is hosts without IPv4, with the programs.
type ipv6 struct {
	*bed.IPv6Only
	*programs
}

// TestIPv6Only is what works on hosts that have no IPv4 address, not even 127.0.0.1:
// all of it.
func TestIPv6Only(t *testing.T) {
	t.Parallel() // waits much
	b := sharedBed(t)
	hosts, err := b.NewIPv6Only(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hosts.Close(); err != nil {
			t.Error(err)
		}
	})
	o := &ipv6{IPv6Only: hosts, programs: buildPrograms(t, b)}
	goBuild(t, "../..", o.dir, "./examples/quickstart")
	for _, part := range []struct {
		name string
		run  func(*ipv6, *testing.T)
	}{
		{"no IPv4", (*ipv6).testNone}, {"routes", (*ipv6).testRoutes}, {"defaults", (*ipv6).testDefaults},
		{"exec's bridge", (*ipv6).testBridge}, {"tunnel", (*ipv6).testTunnel}, {"provider", (*ipv6).testProvider},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(&ipv6{hosts, o.within(t)}, t) })
	}
}

// The hosts are what the other parts need.
func (o *ipv6) testNone(t *testing.T) {
	for _, ns := range []*bed.Namespace{o.Client, o.Proxy, o.API} {
		out, err := ns.Run(t.Context(), bed.Command{Argv: []string{"ip", "-4", "-oneline", "address"}})
		if err != nil || out != "" {
			t.Errorf("%s has %q, %v, want no IPv4 address", ns.Name, out, err)
		}
	}
	if _, err := o.Client.DialContext(t.Context(), "tcp", o.Kube.Address()); err == nil {
		t.Error("the client reaches the API server directly")
	}
}

// write writes a file among the programs and returns its path.
func (o *ipv6) write(t *testing.T, name string, data []byte) string {
	t.Helper()
	writeFile(t, o.path(name), string(data))
	return o.path(name)
}

// kubeconfig leads to the API server through the proxy, or directly if it is nil.
func (o *ipv6) kubeconfig(t *testing.T, proxy *url.URL) []byte {
	t.Helper()
	var r kubeconfig.Route
	if proxy != nil {
		r.ProxyURL = proxy.String()
	}
	return kubeconfigOf(t, o.Kube, kubeconfig.Endpoint{Host: o.Kube.Host(), Port: o.Kube.Port()}, "", r)
}

// A real API server is reached by each kind of proxy, and quickstart's stand-ins work.
func (o *ipv6) testRoutes(t *testing.T) {
	ca := o.write(t, "proxy-ca.pem", o.Squid.CA.CertPEM())
	doctor := func(name string, proxy *url.URL) []string {
		return []string{"causeway", "doctor", "--kubeconfig", o.write(t, name, o.kubeconfig(t, proxy))}
	}
	reached := []string{"the API server is reached: " + bed.KubeVersion()}
	for _, tt := range []struct {
		name string
		argv []string
		want []string
	}{
		{"squid", doctor("by-squid", o.Squid.URL()), reached},
		{"squid, TLS", doctor("by-squid-tls", o.Squid.TLSURL()), reached},
		{"dante", doctor("by-dante", o.Dante.URL()), reached},
		{"stand-ins", []string{"quickstart"}, []string{"HTTP proxy ", "HTTPS proxy ", "SOCKS5 proxy ", "TUNNEL ", "readyz ok", "network is unreachable"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := o.Client.Run(t.Context(), bed.Command{Argv: append([]string{o.path(tt.argv[0])}, tt.argv[1:]...), Env: []string{"SSL_CERT_FILE=" + ca}})
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("got\n%s\nwant %q in it", out, want)
				}
			}
		})
	}
}

// A program whose default address is not there says which flag to set, and to what.
func (o *ipv6) testDefaults(t *testing.T) {
	config := o.write(t, "defaults", o.kubeconfig(t, o.Squid.URL()))
	for _, tt := range []struct {
		argv []string
		want string
	}{
		{[]string{"causeway", "server", "--state", o.path("defaults-server"), "--listen", "[::1]:0"}, "--status: listen tcp 127.0.0.1:8080: bind: cannot assign requested address: this host has no IPv4; take [::1]:8080"},
		{[]string{"causeway", "provider", "--kubeconfig", config}, "--health: listen tcp 127.0.0.1:8082: bind: cannot assign requested address: this host has no IPv4; take [::1]:8082"},
	} {
		t.Run(strings.Join(tt.argv[:2], " "), func(t *testing.T) {
			argv := append([]string{o.path(tt.argv[0])}, tt.argv[1:]...)
			if _, err := o.Client.Run(t.Context(), bed.Command{Argv: argv}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

type bridgeInput struct{ Kubeconfig []byte }

type bridgeAnswer struct{ Host, Body string }

// bridgeRole asks the API server by what a Client has for exec and port-forward: a proxy
// on loopback.
func bridgeRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input bridgeInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return err
	}
	c, err := newClient(input.Kubeconfig, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	proxy, err := c.Config().Proxy(nil)
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(input.Kubeconfig)
	if err != nil {
		return err
	}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
	defer transport.CloseIdleConnections()
	if transport.TLSClientConfig, err = rest.TLSConfigFor(config); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return errors.Join(err, json.NewEncoder(out).Encode(bridgeAnswer{proxy.Hostname(), string(body)}))
}

// Exec and port-forward have a listener on loopback.
func (o *ipv6) testBridge(t *testing.T) {
	var got bridgeAnswer
	if err := o.Client.Play(t.Context(), "bridge", bridgeInput{o.kubeconfig(t, o.Squid.URL())}, &got); err != nil {
		t.Fatal(err)
	}
	if want := (bridgeAnswer{"::1", "ok"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Where the servers of the tunnel are, and the name that both have.
var (
	ipv6First  = net.JoinHostPort(bed.IPv6ClientIP, tunnelPort)
	ipv6Second = net.JoinHostPort(bed.IPv6OtherIP, tunnelPort)
)

const ipv6Names = "::1 localhost\n" +
	bed.IPv6ClientIP + " replicas.causeway.test\n" + bed.IPv6OtherIP + " replicas.causeway.test\n" +
	bed.IPv6OtherIP + " second.causeway.test\n"

// named runs a command with ipv6Names as the only names.
func (o *ipv6) named(t *testing.T, ns *bed.Namespace, env []string, argv ...string) *bed.Running {
	t.Helper()
	hosts := o.write(t, "hosts", []byte(ipv6Names))
	script := `mount --bind "$0" /etc/hosts && exec "$@"`
	return o.start(ns, bed.Command{Argv: append([]string{"/bin/sh", "-c", script, hosts}, argv...), Env: env})
}

// Two servers find each other, one by a name and one by an address. An agent enrols at
// each of them, one through a proxy and one by a name. Clients reach the clusters of both
// agents at all doors of the first.
func (o *ipv6) testTunnel(t *testing.T) {
	const byProxy, byName = "ipv6/proxy", "ipv6/name"
	server := func(name, address string, flags ...string) *bed.Running {
		return o.named(t, o.Client, nil, append([]string{o.path("causeway"), "server", "--state", o.path("server"), "--name", name,
			"--listen", address, "--advertise", ipv6First, "--status", "[::1]:0"}, flags...)...)
	}
	first := server("first", ipv6First, append(o.doorFlags("::1", o.Kube.CA, byProxy), "--peers", "replicas.causeway.test:"+tunnelPort)...)
	second := server("second", ipv6Second, "--peers", ipv6First)

	agent := func(ns *bed.Namespace, cluster, server string, env ...string) *bed.Running {
		invitation := o.command("", "enroll", "--state", o.path("server"), "--format", "env", "--server", server, cluster)
		return o.named(t, ns, env, o.path("causeway-agent"), "--state", o.path(cluster), "--status", "[::1]:0",
			"--alias", apiTarget+"="+o.Kube.Address(), "--invitation", o.write(t, strings.ReplaceAll(cluster, "/", "-"), []byte(invitation)))
	}
	agents := []*bed.Running{
		agent(o.API, byProxy, ipv6First, "HTTPS_PROXY="+o.Office.URL().String()),
		agent(o.Proxy, byName, "second.causeway.test:"+tunnelPort),
	}
	o.useDoors(o.Client, "::1", o.Kube, byProxy)
	o.useTicket(o.Client, "http://"+doorAddress("::1", doorConnect), o.Kube, byName)
	if log := second.Stderr(); !strings.Contains(log, "cluster="+byName) {
		t.Errorf("the agent of %s is not at the second server:\n%s", byName, log)
	}
	for _, r := range append(agents, second, first) {
		o.ends(r)
	}
}

// The kubeconfig of a Cluster with an address of IPv6 leads to it through the proxy.
func (o *ipv6) testProvider(t *testing.T) {
	const namespace = "ipv6"
	if err := bed.InstallClusterAPI(t.Context(), o.Kube); err != nil {
		t.Fatal(err)
	}
	scheme, err := capiScheme()
	if err != nil {
		t.Fatal(err)
	}
	m := &management{Kube: o.Kube, bed: o.bed}
	if m.admin, err = client.NewWithWatch(o.Kube.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	annotations := m.routeBy(t, namespace, "route", kubeconfig.Route{ProxyURL: o.Squid.URL().String()})
	config := o.write(t, "management", o.kubeconfig(t, o.Squid.URL()))
	program := o.start(o.Client, bed.Command{Argv: []string{o.path("causeway"), "provider", "--kubeconfig", config, "--health", "[::1]:0",
		"--namespace", namespace, "--proxy-url", annotations[provider.AnnotationProxyURL], "--route-secret", namespace + "/route"}})
	c := m.bear(t, namespace, "own", workload{kube: o.Kube}, birth{noControlPlane: true})
	m.routeReady(t, c, "True")
	server, proxy, _, err := m.entry(t.Context(), c)
	if want := "https://[" + bed.IPv6APIIP + "]:6443"; err != nil || server != want || !strings.Contains(proxy, "@["+bed.IPv6ProxyIP+"]:") {
		t.Errorf("got the server %q, the proxy %q, %v, want %q and the proxy's address", server, proxy, err, want)
	}
	s, err := m.stored(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	o.gets(o.Client, "the Cluster's Secret", s.Data[kubeconfig.SecretKey])
	o.ends(program)
}

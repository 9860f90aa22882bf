package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

// doctorTest is a kubeconfig, and what the doctor has to say of it.
type doctorTest struct {
	name   string
	from   *bed.Namespace
	proxy  *url.URL
	change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
	want   []string
}

// The doctor finds the way to the real API server good, and names the phase and
// the remedy of what people meet.
func TestDoctor(t *testing.T) {
	b := sharedBed(t)
	p := buildPrograms(t, b)
	wrong := *b.Squid.URL()
	wrong.User = url.UserPassword(bed.ProxyUser, "wrong")
	wrongSOCKS := *b.Dante.URL()
	wrongSOCKS.User = wrong.User
	asSOCKS, asHTTP := *b.Squid.URL(), *b.Dante.URL()
	asSOCKS.Scheme, asHTTP.Scheme = asHTTP.Scheme, asSOCKS.Scheme
	none, noneSOCKS := *b.Squid.URL(), *b.Dante.URL()
	none.User, noneSOCKS.User = nil, nil
	good := []string{"\n  ok     readyz ", "  as kubernetes-admin\n", "\ngood     the API server is reached: v1."}
	for _, test := range []doctorTest{
		{"direct", b.Network.Proxy, nil, nil, append(good, "route    direct")},
		{"squid", b.Network.Client, b.Squid.URL(), nil, good},
		{"dante", b.Network.Client, b.Dante.URL(), nil, append(good, "\n  ok     proxy auth ")},
		{"wrong-password", b.Network.Client, &wrong, nil, []string{"\n  FAIL   proxy auth ", "\nremedy   Correct user name and password in the kubeconfig's proxy-url"}},
		{"wrong-password-socks5", b.Network.Client, &wrongSOCKS, nil, []string{"\n  FAIL   proxy auth ", "\nremedy   Correct user name and password in the kubeconfig's proxy-url"}},
		{"no-password", b.Network.Client, &none, nil, []string{"\n  FAIL   proxy auth ", "407: it wants a user name and password, and proxy-url has none", "\nremedy   Set user name and password in the kubeconfig's proxy-url"}},
		{"no-password-socks5", b.Network.Client, &noneSOCKS, nil, []string{"\n  FAIL   proxy auth ", "wants a user name and password, and proxy-url has none", "--proxy-url=socks5://USER:PASSWORD@HOST:PORT"}},
		{"squid-as-socks5", b.Network.Client, &asSOCKS, nil, []string{"\n  FAIL   connect ", "speaks HTTP, and proxy-url begins with socks5://", "\nremedy   Write http:// in place of socks5://"}},
		{"dante-as-http", b.Network.Client, &asHTTP, nil, []string{"\n  FAIL   connect ", "speaks SOCKS5, and proxy-url begins with http://", "\nremedy   Write socks5:// in place of http://"}},
		{"port-not-allowed", b.Network.Client, b.Squid.URL(), func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://" + b.Kube.Host() + ":" + deniedPort
		}, []string{"\n  FAIL   connect ", "\nremedy   Allow CONNECT to 192.0.2.10:2379", "acl SSL_ports port 2379"}},
		{"refused-behind-squid", b.Network.Client, b.Squid.URL(), func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://" + bed.ProxyAPIIP + ":6443"
		}, []string{"\n  FAIL   connect ", "the proxy reaches nothing at", "\nremedy   Correct host and port in server"}},
		{"wrong-ca", b.Network.Client, b.Squid.URL(), func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = pki.NewCA("another").CertPEM()
		}, []string{"\n  FAIL   tls ", `issued by "kubernetes", and the kubeconfig trusts "another"`, "\nremedy   Put this cluster's CA into certificate-authority-data"}},
		{"recreated-ca", b.Network.Client, b.Squid.URL(), func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = pki.NewCA("kubernetes").CertPEM()
		}, []string{"\n  FAIL   tls ", "the keys differ", "\nremedy   Check whether the cluster was made anew"}},
		{"wrong-name", b.Network.Client, b.Squid.URL(), func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.TLSServerName = "api.example.com"
		}, []string{"\n  FAIL   tls ", "\nremedy   Set tls-server-name: kubernetes.default.svc"}},
		{"expired-certificate", b.Network.Client, b.Squid.URL(), func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			expire(t, u)
		}, []string{"\n  FAIL   auth ", `the client certificate "kubernetes-admin" expired on 2`, "\nremedy   Get a new kubeconfig"}},
		{"foreign-certificate", b.Network.Client, b.Squid.URL(), func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = pki.PEM(pki.NewCA("stranger").Client("kubernetes-admin", "system:masters"))
		}, []string{"\n  FAIL   auth ", `issued by "stranger"`, "\nremedy   Check that the kubeconfig is of this cluster"}},
		{"wrong-token", b.Network.Client, b.Squid.URL(), func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Token: "wrong"}
		}, []string{"\n  FAIL   auth ", "\nremedy   Get a new token"}},
		{"no-credentials", b.Network.Client, b.Squid.URL(), func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{}
		}, []string{"\n  ok     auth ", "as system:anonymous"}},
		{"wrong-path", b.Network.Client, b.Squid.URL(), func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server += "/k8s/clusters/c-wrong"
		}, []string{"\n  FAIL   auth ", "no API server of Kubernetes answers at https://", "(404)", "\nremedy   Correct server in the kubeconfig, path included"}},
		{"wrong-path-without-rights", b.Network.Client, b.Squid.URL(), func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			c.Server, *u = c.Server+"/k8s/clusters/c-wrong", clientcmdapi.AuthInfo{}
		}, []string{"\n  FAIL   auth ", "no API server of Kubernetes answers at https://", "(403)", "\nremedy   Correct server in the kubeconfig, path included"}},
		{"no-such-name", b.Network.Client, nil, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://api.prod.example.com:6443"
		}, []string{"\n  FAIL   dns ", "the name api.prod.example.com", "\nremedy   C", "the host in server"}},
		{"no-route", b.Network.Client, nil, nil, []string{"\n  FAIL   tcp ", "this machine has no route", "set proxy-url"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out := p.doctor(t, test.from, writeFor(t, b, test), 0)
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("got\n%s\nwant %q in it", out, want)
				}
			}
		})
	}
	t.Run("tunnel", func(t *testing.T) { doctorTunnel(t, p) })
}

// doctor runs the doctor to its end, and wants its status to be what it says.
func (p *programs) doctor(t *testing.T, from *bed.Namespace, path string, timeout time.Duration) string {
	t.Helper()
	argv := []string{p.path("causeway"), "doctor", "--kubeconfig", path}
	if timeout > 0 {
		argv = append(argv, "--timeout", timeout.String())
	}
	out, err := from.Run(t.Context(), bed.Command{Argv: argv, Env: []string{"GORACE=atexit_sleep_ms=0"}})
	t.Logf("%s:\n%s", t.Name(), out)
	if (err == nil) != strings.Contains(out, "\ngood ") {
		t.Errorf("got %v of\n%s", err, out)
	}
	if exit := (*exec.ExitError)(nil); strings.Contains(out, "no agent is connected") && (!errors.As(err, &exit) || exit.ExitCode() != 5) {
		t.Errorf("got %v, want status 5 for the tunnel", err)
	}
	if strings.Contains(out, "p@ss") || strings.Contains(out, "p%40ss") {
		t.Errorf("the password is in\n%s", out)
	}
	return out
}

func writeFor(t *testing.T, b *bed.Bed, test doctorTest) string {
	t.Helper()
	r := route{proxy: test.proxy}
	if test.proxy == nil {
		r.proxy = &url.URL{}
	}
	config, err := clientcmd.Load(secretFor(t, b, "bed", r).Data[kubeconfig.SecretKey])
	if err != nil {
		t.Fatal(err)
	}
	if test.change != nil {
		test.change(config.Clusters["bed"], config.AuthInfos["bed-admin"])
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// expire gives a user a client certificate of yesterday.
func expire(t *testing.T, u *clientcmdapi.AuthInfo) {
	t.Helper()
	ca := pki.NewCA("kubernetes")
	cert, key := pki.PEM(ca.ClientFor("kubernetes-admin", time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour), "system:masters"))
	u.ClientCertificateData, u.ClientKeyData = cert, key
}

// A gateway whose tunnel has no agent, and then one.
func doctorTunnel(t *testing.T, p *programs) {
	p.t = t
	p.startServer()
	invitation := p.command("", "enroll", "--state", p.path("server"), "--format", "env", cluster)
	for path, content := range map[string]string{p.path("invitation"): invitation, p.path("ticketed"): p.ticketed()} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := p.doctor(t, p.bed.Network.Hub, p.path("ticketed"), 0)
	for _, want := range []string{"\n  FAIL   connect ", "no agent is connected", "\nremedy   Start the tunnel's agent"} {
		if !strings.Contains(out, want) {
			t.Errorf("got\n%s\nwant %q in it", out, want)
		}
	}
	p.startAgent()
	err := bed.Poll(t.Context(), "the doctor to be content", func(context.Context) error {
		if out := p.doctor(t, p.bed.Network.Hub, p.path("ticketed"), 0); !strings.Contains(out, "\ngood ") || !strings.Contains(out, ":443 by agent ") {
			return errors.New(fmt.Sprint("it says\n", out))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	doctorRefusals(t, p)
}

// What the gateway answers to a target that the agent does not allow, and to a ticket that
// was revoked.
func doctorRefusals(t *testing.T, p *programs) {
	config, err := clientcmd.LoadFromFile(p.path("ticketed"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server = "https://kubernetes.default.svc:6444"
	}
	if err := clientcmd.WriteToFile(*config, p.path("denied")); err != nil {
		t.Fatal(err)
	}
	out := p.doctor(t, p.bed.Network.Hub, p.path("denied"), 0)
	for _, want := range []string{"\n  FAIL   connect ", "the agent's policy does not allow the target", "\nremedy   Add kubernetes.default.svc:6444 to --allow of causeway-agent"} {
		if !strings.Contains(out, want) {
			t.Errorf("got\n%s\nwant %q in it", out, want)
		}
	}
	p.command("", "ticket", "--state", p.path("server"), "--revoke-all")
	err = bed.Poll(t.Context(), "the ticket to be refused", func(context.Context) error {
		out := p.doctor(t, p.bed.Network.Hub, p.path("ticketed"), 0)
		for _, want := range []string{"\n  FAIL   proxy auth ", "the ticket was revoked", "\nremedy   Make a new ticket"} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("it says\n%s\nwant %q", out, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

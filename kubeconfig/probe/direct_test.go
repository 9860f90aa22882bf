package probe_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

func TestProbeDirectFails(t *testing.T) {
	runProbeTests(t, []probeTest{
		{"nothing listens", server(closedPort),
			failure{probe.PhaseTCP, "the API server refuses connections", "correct host and port in server"}},
		{"plain HTTP", server(scripted(blurts("HTTP/1.1 400 Bad Request\r\n" + noLength))),
			failure{probe.PhaseTLS, "answers in plain HTTP", "Correct the port in server"}},
		{"ssh", server(scripted(blurts("SSH-2.0-OpenSSH_9.9\r\n"))),
			failure{probe.PhaseTLS, `"SSH-2"`, "it is not an API server's"}},
		{"hangs up", server(scripted(hangsUp)),
			failure{probe.PhaseTLS, "closed the connection in the TLS handshake", "behind the load balancer"}},
		{"another CA", func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			for _, name := range []string{"mine", "new", "mine", "mine"} {
				ca := pki.NewCAWith(nil, func(c *x509.Certificate) { c.Subject.CommonName = name })
				c.CertificateAuthorityData = append(ca.CertPEM(), c.CertificateAuthorityData...)
			}
			c.CertificateAuthorityData = c.CertificateAuthorityData[:bytes.LastIndex(c.CertificateAuthorityData, []byte("-----BEGIN"))]
		}, failure{probe.PhaseTLS, `issued by "kubernetes", and the kubeconfig trusts "mine", "new"`, "Put this cluster's CA into certificate-authority-data"}},
		{"another CA of that name", func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = pki.NewCAWith(nil, nil).CertPEM()
		}, failure{probe.PhaseTLS, `another CA of the name "kubernetes"`, "Check whether the cluster was made anew"}},
		{"no CA", func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = nil
		}, failure{probe.PhaseTLS, "the kubeconfig has no CA", "certificate-authority-data"}},
		{"another name", func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.TLSServerName = "kubernetes.default.svc"
		}, failure{probe.PhaseTLS, "not for kubernetes.default.svc, but for api.test, 127.0.0.1", "set tls-server-name in the cluster entry to one of these"}},
		{"kubeadm's names", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			kubeadm := startProbed(t, &probed{ca: api.ca}, "kubernetes.default.svc")
			c.Server, c.TLSServerName = kubeadm.URL, "api.example.com"
		}, failure{probe.PhaseTLS, "not for api.example.com", "Set tls-server-name: kubernetes.default.svc in"}},
		{"expired", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			cert, key := api.ca.Issue("api.test", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
			c.Server = "https://" + script(t, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}, mute)
		}, failure{probe.PhaseTLS, "the API server's certificate expired on", "kubeadm certs renew apiserver"}},
		{"early", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			cert, key := api.ca.Issue("api.test", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
			c.Server = "https://" + script(t, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}, mute)
		}, failure{probe.PhaseTLS, "is not valid before", "clock"}},
		{"old TLS", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://" + script(t, &tls.Config{Certificates: []tls.Certificate{api.ca.Server("p", "127.0.0.1")}, CipherSuites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}, MaxVersion: tls.VersionTLS12}, mute)
		}, failure{probe.PhaseTLS, "the API server ended the TLS handshake", "Read the log"}},
	})
}

func TestProbeConfigFails(t *testing.T) {
	runProbeTests(t, []probeTest{
		{"proxy-url", func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = "ftp://p"
		},
			failure{probe.PhaseConfig, `clusters["c1"].proxy-url: the scheme "ftp"`, `Correct clusters["c1"].proxy-url`}},
		{"server", func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "api.test:6443"
		},
			failure{probe.PhaseConfig, "want a URL", `Correct clusters["c1"].server`}},
		{"a Secret", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			spec := kubetest.Spec(api.ca)
			spec.Route = kubeconfig.Route{ProxyURL: "https://proxy.test", ProxyTLS: &kubeconfig.ProxyTLS{Secret: &kubeconfig.SecretRef{Namespace: "a", Name: "b"}}}
			config, err := spec.Build()
			if err != nil {
				t.Fatal(err)
			}
			*c = *config.Clusters["c1"]
		}, failure{probe.PhaseConfig, "in a Secret, which is not read here: required for", "in proxyTLS in place of secret"}},
		{"a file that is not there", func(_ *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{ClientCertificate: "/nonexistent/a.crt", ClientKey: "/nonexistent/a.key"}
		}, failure{probe.PhaseConfig, "/nonexistent/a.", ""}},
		{"a client certificate that expired", func(t *testing.T, api *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			cert, key := api.ca.Issue("kubernetes-admin", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
			u.ClientCertificateData, u.ClientKeyData = pki.CertPEM(cert), pki.KeyPEM(key)
		}, failure{probe.PhaseAuth, `the client certificate "kubernetes-admin" expired on`, "Get a new kubeconfig"}},
		{"a client certificate of tomorrow", func(t *testing.T, api *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			cert, key := api.ca.Issue("kubernetes-admin", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
			u.ClientCertificateData, u.ClientKeyData = pki.CertPEM(cert), pki.KeyPEM(key)
		}, failure{probe.PhaseAuth, "is not valid before", "clock"}},
		{"a token that expired", func(_ *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Token: jwt(time.Now().Add(-time.Minute))}
		}, failure{probe.PhaseAuth, "the token expired on", "Get a new kubeconfig"}},
		{"a token of two lines", func(_ *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Token: "secret\ninjected: x"}
		}, failure{probe.PhaseConfig, "the token has a line break", "as one line"}},
		{"a port that can't be", func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://api.test:99999999"
		}, failure{probe.PhaseConfig, "want a port from 1 to 65535", "Correct"}},
	})
	t.Run("no context", func(t *testing.T) {
		config := newProbed(t, nil).config(t)
		config.CurrentContext = "x"
		r := probe.Run(probeContext(t), config)
		checkFailure(t, r, failure{probe.PhaseConfig, `there is no context "x"`, "kubectl config use-context"})
	})
}

func jwt(expires time.Time) string {
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return part(map[string]string{"alg": "none"}) + "." + part(map[string]any{"exp": expires.Unix(), "sub": "a"}) + ".c2lnbmF0dXJl"
}

func TestProbeAuthFails(t *testing.T) {
	type answers = map[string]http.HandlerFunc
	token := func(text string) clientcmdapi.AuthInfo { return clientcmdapi.AuthInfo{Token: text} }
	plugin := func(command string) clientcmdapi.AuthInfo {
		return clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: command, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
	}
	stranger, strangerKey := pki.NewCAWith(nil, func(c *x509.Certificate) { c.Subject.CommonName = "stranger" }).Issue("x", nil)
	for _, test := range []struct {
		name    string
		user    *clientcmdapi.AuthInfo // nil: as it is
		answers answers
		want    failure
	}{
		{"token", ptr(token("bad")), nil, failure{probe.PhaseAuth, "the token (401)", "Get a new token"}},
		{"certificate", &clientcmdapi.AuthInfo{ClientCertificateData: pki.CertPEM(stranger), ClientKeyData: pki.KeyPEM(strangerKey)}, nil,
			failure{probe.PhaseAuth, `issued by "stranger"`, "of its present CA"}},
		{"none", &clientcmdapi.AuthInfo{}, answers{review: reply(401, "application/json", "{}")}, failure{probe.PhaseAuth, "the kubeconfig has none", "Add a user"}},
		{"password", &clientcmdapi.AuthInfo{Username: "u", Password: "p"}, answers{review: reply(401, "application/json", "{}")},
			failure{probe.PhaseAuth, "user name and password (401)", "Use a certificate or token"}},
		{"plugin that is not there", ptr(plugin("/nonexistent/plugin")), nil, failure{probe.PhaseAuth, "the exec plugin plugin gives no credentials", "Run the plugin's command by hand"}},
		{"plugin that fails", ptr(plugin("false")), nil, failure{probe.PhaseAuth, "exit code 1", "Run the plugin's command by hand"}},
		{"plugin that prints something else", ptr(plugin("pwd")), nil, failure{probe.PhaseAuth, "gives no credentials", "Run the plugin's command by hand"}},
		{"TLS ends before", nil, answers{review: reply(403, "application/json", `{"kind":"Status","message":"User \"system:anonymous\" cannot"}`)},
			failure{probe.PhaseAuth, "takes us for system:anonymous", "pass TLS through"}},
		{"a password that is not looked at", &clientcmdapi.AuthInfo{Username: "u", Password: "p"}, answers{review: reply(403, "application/json", `{"kind":"Status","message":"User \"system:anonymous\" cannot"}`)},
			failure{probe.PhaseAuth, "takes us for system:anonymous", "kube-apiserver takes no user name and password since Kubernetes 1.19"}},
		{"a header is lost", ptr(token("good")), answers{review: reply(201, "application/json", `{"status":{"userInfo":{"username":"system:anonymous"}}}`)},
			failure{probe.PhaseAuth, "takes us for system:anonymous", "Authorization"}},
		{"login page", nil, answers{"*": reply(200, "text/html; charset=utf-8", "<html>")}, failure{probe.PhaseAuth, "a web page (200)", "Correct server"}},
		{"redirect", nil, answers{"*": reply(302, "text/plain", "")}, failure{probe.PhaseAuth, "a web page (302)", "Correct server"}},
		{"no backend", nil, answers{review: reply(503, "text/plain", "")}, failure{probe.PhaseAuth, "503", "Try again"}},
		{"broken", nil, answers{"*": reply(500, "text/plain", "panic")}, failure{probe.PhaseAuth, "answers 500", "Try again"}},
		{"hangs up", nil, answers{review: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
			failure{probe.PhaseAuth, "", ""}},
		{"not ready", nil, answers{"/readyz": reply(500, "text/plain", "[+]ping ok\n[-]etcd failed: reason withheld\n[-]informer-sync failed: reason withheld\n[+]a ok\nreadyz check failed\n")},
			failure{probe.PhaseReady, "not ready: etcd, informer-sync", "Look at etcd first"}},
		{"not ready, and says no more", nil, answers{"/readyz": reply(503, "text/plain", "")}, failure{probe.PhaseReady, "it answers 503", "the API server's log"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := newProbed(t, test.answers).config(t)
			if test.user != nil {
				config.AuthInfos["c1-admin"] = test.user
			}
			checkFailure(t, probe.Run(probeContext(t), config), test.want)
		})
	}
}

func ptr[T any](v T) *T { return &v }

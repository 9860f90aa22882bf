package kubeconfig_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig"
)

func TestProbeDirectFails(t *testing.T) {
	runProbeTests(t, []probeTest{
		{"nothing listens", server(closedPort),
			failure{kubeconfig.PhaseTCP, "the API server refuses connections", "correct host and port in server"}},
		{"plain HTTP", server(scripted(blurts("HTTP/1.1 400 Bad Request\r\n" + noLength))),
			failure{kubeconfig.PhaseTLS, "answers in plain HTTP", "Correct the port in server"}},
		{"ssh", server(scripted(blurts("SSH-2.0-OpenSSH_9.9\r\n"))),
			failure{kubeconfig.PhaseTLS, `"SSH-2"`, "it is not an API server's"}},
		{"hangs up", server(scripted(hangsUp)),
			failure{kubeconfig.PhaseTLS, "closed the connection in the TLS handshake", "behind the load balancer"}},
		{"another CA", func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = newAuthority(t, nil, func(c *x509.Certificate) { c.Subject.CommonName = "mine" }).certPEM()
		}, failure{kubeconfig.PhaseTLS, `issued by "kubernetes", and the kubeconfig trusts "mine"`, "Put this cluster's CA into certificate-authority-data"}},
		{"another CA of that name", func(t *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = newAuthority(t, nil, nil).certPEM()
		}, failure{kubeconfig.PhaseTLS, `another CA of the name "kubernetes"`, "Check whether the cluster was made anew"}},
		{"no CA", func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = nil
		}, failure{kubeconfig.PhaseTLS, "the kubeconfig has no CA", "certificate-authority-data"}},
		{"another name", func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.TLSServerName = "kubernetes.default.svc"
		}, failure{kubeconfig.PhaseTLS, "not for kubernetes.default.svc, but for api.test, 127.0.0.1", "set tls-server-name in the cluster entry to one of these"}},
		{"kubeadm's names", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			kubeadm := startProbed(t, &probed{ca: api.ca}, "kubernetes.default.svc")
			c.Server, c.TLSServerName = kubeadm.URL, "api.example.com"
		}, failure{kubeconfig.PhaseTLS, "not for api.example.com", "Set tls-server-name: kubernetes.default.svc in"}},
		{"expired", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			cert, key := api.ca.issue(t, "api.test", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
			c.Server = "https://" + script(t, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}, mute)
		}, failure{kubeconfig.PhaseTLS, "the API server's certificate expired on", "kubeadm certs renew apiserver"}},
		{"early", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			cert, key := api.ca.issue(t, "api.test", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
			c.Server = "https://" + script(t, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}, mute)
		}, failure{kubeconfig.PhaseTLS, "is not valid before", "clock"}},
		{"old TLS", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://" + script(t, &tls.Config{Certificates: []tls.Certificate{api.ca.serving(t, "p")}, CipherSuites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}, MaxVersion: tls.VersionTLS12}, mute)
		}, failure{kubeconfig.PhaseTLS, "the API server ended the TLS handshake", "Read the log"}},
	})
}

func TestProbeConfigFails(t *testing.T) {
	runProbeTests(t, []probeTest{
		{"proxy-url", func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = "ftp://p"
		},
			failure{kubeconfig.PhaseConfig, `clusters["c1"].proxy-url: the scheme "ftp"`, `Correct clusters["c1"].proxy-url`}},
		{"server", func(_ *testing.T, _ *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "api.test:6443"
		},
			failure{kubeconfig.PhaseConfig, "want a URL", `Correct clusters["c1"].server`}},
		{"a Secret", func(t *testing.T, api *probed, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			spec := goodSpec(t, api.ca)
			spec.Route = kubeconfig.Route{ProxyURL: "https://proxy.test", ProxyTLS: &kubeconfig.ProxyTLS{Secret: &kubeconfig.SecretRef{Namespace: "a", Name: "b"}}}
			config, err := spec.Build()
			if err != nil {
				t.Fatal(err)
			}
			*c = *config.Clusters["c1"]
		}, failure{kubeconfig.PhaseConfig, "ClientOptions.ReadSecret: required for", "in the program that connects"}},
		{"a file that is not there", func(_ *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{ClientCertificate: "/nonexistent/a.crt", ClientKey: "/nonexistent/a.key"}
		}, failure{kubeconfig.PhaseConfig, "/nonexistent/a.", ""}},
		{"a client certificate that expired", func(t *testing.T, api *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			cert, key := api.ca.issue(t, "kubernetes-admin", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
			u.ClientCertificateData, u.ClientKeyData = certPEM(cert), keyPEM(t, key)
		}, failure{kubeconfig.PhaseConfig, `the client certificate "kubernetes-admin" expired on`, "Get a new kubeconfig"}},
		{"a client certificate of tomorrow", func(t *testing.T, api *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			cert, key := api.ca.issue(t, "kubernetes-admin", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
			u.ClientCertificateData, u.ClientKeyData = certPEM(cert), keyPEM(t, key)
		}, failure{kubeconfig.PhaseConfig, "is not valid before", "clock"}},
		{"a token that expired", func(_ *testing.T, _ *probed, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Token: jwt(time.Now().Add(-time.Minute))}
		}, failure{kubeconfig.PhaseConfig, "the token expired on", "Get a new kubeconfig"}},
	})
	t.Run("no context", func(t *testing.T) {
		config := newProbed(t, nil).config(t)
		config.CurrentContext = "x"
		r := kubeconfig.Probe(probeContext(t), config)
		checkFailure(t, r, failure{kubeconfig.PhaseConfig, `there is no context "x"`, "kubectl config use-context"})
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
	const review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	token := func(text string) clientcmdapi.AuthInfo { return clientcmdapi.AuthInfo{Token: text} }
	plugin := func(command string) clientcmdapi.AuthInfo {
		return clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: command, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
	}
	stranger, strangerKey := newAuthority(t, nil, func(c *x509.Certificate) { c.Subject.CommonName = "stranger" }).issue(t, "x", nil)
	for _, test := range []struct {
		name    string
		user    *clientcmdapi.AuthInfo // nil: as it is
		answers answers
		want    failure
	}{
		{"token", ptr(token("bad")), nil, failure{kubeconfig.PhaseAuth, "the token (401)", "Get a new token"}},
		{"certificate", &clientcmdapi.AuthInfo{ClientCertificateData: certPEM(stranger), ClientKeyData: keyPEM(t, strangerKey)}, nil,
			failure{kubeconfig.PhaseAuth, `issued by "stranger"`, "of its present CA"}},
		{"none", &clientcmdapi.AuthInfo{}, answers{review: reply(401, "application/json", "{}")}, failure{kubeconfig.PhaseAuth, "the kubeconfig has none", "Add a user"}},
		{"password", &clientcmdapi.AuthInfo{Username: "u", Password: "p"}, answers{review: reply(401, "application/json", "{}")},
			failure{kubeconfig.PhaseAuth, "user name and password (401)", "Use a certificate or token"}},
		{"plugin that is not there", ptr(plugin("/nonexistent/plugin")), nil, failure{kubeconfig.PhaseAuth, "the exec plugin plugin gives no credentials", "Run the plugin's command by hand"}},
		{"plugin that fails", ptr(plugin("false")), nil, failure{kubeconfig.PhaseAuth, "exit code 1", "Run the plugin's command by hand"}},
		{"plugin that prints something else", ptr(plugin("pwd")), nil, failure{kubeconfig.PhaseAuth, "gives no credentials", "Run the plugin's command by hand"}},
		{"TLS ends before", nil, answers{review: reply(403, "application/json", `{"kind":"Status","message":"User \"system:anonymous\" cannot"}`)},
			failure{kubeconfig.PhaseAuth, "takes us for system:anonymous", "pass TLS through"}},
		{"a header is lost", ptr(token("good")), answers{review: reply(201, "application/json", `{"status":{"userInfo":{"username":"system:anonymous"}}}`)},
			failure{kubeconfig.PhaseAuth, "takes us for system:anonymous", "Authorization"}},
		{"login page", nil, answers{review: reply(200, "text/html; charset=utf-8", "<html>")}, failure{kubeconfig.PhaseAuth, "a web page (200)", "Correct server"}},
		{"redirect", nil, answers{review: reply(302, "text/plain", "")}, failure{kubeconfig.PhaseAuth, "a web page (302)", "Correct server"}},
		{"no backend", nil, answers{review: reply(503, "text/plain", "")}, failure{kubeconfig.PhaseAuth, "503", "Try again"}},
		{"hangs up", nil, answers{review: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
			failure{kubeconfig.PhaseAuth, "", ""}},
		{"not ready", nil, answers{"/readyz": reply(500, "text/plain", "[+]ping ok\n[-]etcd failed: reason withheld\n[-]informer-sync failed: reason withheld\n[+]a ok\nreadyz check failed\n")},
			failure{kubeconfig.PhaseReady, "not ready: etcd, informer-sync", "Look at etcd first"}},
		{"not ready, and says no more", nil, answers{"/readyz": reply(503, "text/plain", "")}, failure{kubeconfig.PhaseReady, "it answers 503", "the API server's log"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := newProbed(t, test.answers).config(t)
			if test.user != nil {
				config.AuthInfos["c1-admin"] = test.user
			}
			checkFailure(t, kubeconfig.Probe(probeContext(t), config), test.want)
		})
	}
}

func ptr[T any](v T) *T { return &v }

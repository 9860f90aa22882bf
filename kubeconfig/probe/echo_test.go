package probe_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// checkReport fails t if r, which becomes a condition and an Event, holds the canary.
func checkReport(t *testing.T, what string, r probe.Report) {
	t.Helper()
	login := base64.RawStdEncoding.EncodeToString([]byte("user:" + kubetest.Canary))
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	kubetest.CheckLeaks(t, what, r)
	for _, e := range kubetest.ErrorTree(r.Err()) {
		kubetest.CheckLeaks(t, what, e)
		text = fmt.Append(text, e)
	}
	if r.OK() || strings.Contains(string(text), login) {
		t.Errorf("%s: got %s, want a failure without the login", what, text)
	}
}

// A proxy that answers with what it was sent.
func TestNoEchoOfProxyInReport(t *testing.T) {
	echo := func(_ context.Context, conn net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		username, password, _ := (&http.Request{Header: http.Header{"Authorization": req.Header["Proxy-Authorization"]}}).BasicAuth()
		u := "http://" + username + ":" + password + "@proxy"
		for _, status := range []string{"401", "403", "407", "429", "502", "509"} {
			if strings.HasSuffix(req.Host, status) {
				fmt.Fprintf(conn, "HTTP/1.1 %s %s for %s\r\nProxy-Authenticate: %s\r\nX-Squid-Error: %s\r\nProxy-Status: causeway; details=%q\r\n\r\n%s\n",
					status, req.Header.Get("Proxy-Authorization"), u, u, u, u, u)
			}
		}
	}
	for _, port := range []string{"6401", "6403", "6407", "6429", "6502", "6509"} {
		config := newProbed(t, nil).config(t)
		config.Clusters["c1"].Server = "https://api.test:" + port
		config.Clusters["c1"].ProxyURL = "http://user:" + kubetest.EncodedCanary + "@" + script(t, nil, echo)
		checkReport(t, port, probe.Run(probeContext(t), config))
	}
}

// What stands in the place of the API server answers with what it was sent.
func TestNoEchoOfServerInReport(t *testing.T) {
	statusOf := func(code int) func(string) string {
		return func(sent string) string {
			body := fmt.Sprintf(`{"kind":"Status","message":%q}`, "bad "+sent)
			return fmt.Sprintf("HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", code, len(body), body)
		}
	}
	for name, answer := range map[string]func(sent string) string{
		"429":        statusOf(429),
		"502":        statusOf(502),
		"not HTTP":   func(sent string) string { return sent + "\r\n\r\n" },
		"status":     func(sent string) string { return "HTTP/1.1 " + sent + "\r\n\r\n" },
		"header":     func(sent string) string { return "HTTP/1.1 200 OK\r\n" + sent + "\r\n\r\n" },
		"user name":  func(sent string) string { return reviewOf(sent) },
		"user, then": func(string) string { return reviewOf("me") },
	} {
		for user, sent := range map[*clientcmdapi.AuthInfo]string{
			{Token: kubetest.Canary}:                      kubetest.Canary,
			{Username: "user", Password: kubetest.Canary}: "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+kubetest.Canary)),
		} {
			api := newProbed(t, nil)
			config := api.config(t)
			config.AuthInfos["c1-admin"] = user
			config.Clusters["c1"].Server = "https://" + script(t, &tls.Config{Certificates: []tls.Certificate{api.ca.Server("api.test", "127.0.0.1")}}, func(_ context.Context, conn net.Conn) {
				br := bufio.NewReader(conn)
				for {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					if req.URL.Path == "/readyz" {
						body := "[-]" + sent + " failed"
						fmt.Fprintf(conn, "HTTP/1.1 500 x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
						continue
					}
					fmt.Fprint(conn, answer(sent))
				}
			})
			checkReport(t, name, probe.Run(probeContext(t), config))
		}
	}
}

func reviewOf(name string) string {
	body := fmt.Sprintf(`{"kind":"SelfSubjectReview","status":{"userInfo":{"username":%q}}}`, name)
	return fmt.Sprintf("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// The reader of a remedy may have it from an Event, about an annotation that
// everybody can read: it must not lead a password there.
func TestRemedyNamesNoPlaceForAll(t *testing.T) {
	for name, answer := range map[string]string{
		"login":   "HTTP/1.1 407 x\r\n" + noLength,
		"401":     "HTTP/1.1 401 x\r\n" + noLength,
		"gateway": "HTTP/1.1 407 x\r\nProxy-Status: causeway; error=x\r\n" + noLength,
	} {
		config := newProbed(t, nil).config(t)
		config.Clusters["c1"].ProxyURL = "http://" + script(t, nil, says(answer))
		r := probe.Run(probeContext(t), config)
		if failed := r.Failed(); failed == nil || !strings.Contains(failed.Advice, "the Secret that the annotation route-secret names") {
			t.Errorf("%s: got %+v, want a remedy that names the Secret", name, failed)
		}
	}
}

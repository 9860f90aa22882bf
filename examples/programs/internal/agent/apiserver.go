package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/printable"
)

const (
	// accountDir is where the kubelet puts the pod's token, the API server's authority
	// and the name of the namespace.
	accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

	apiTimeout = 10 * time.Second // of a request
	maxAnswer  = 4 << 20          // bytes: a Secret has 1 MiB at most, before base64
	maxReason  = 300              // bytes of what the API server says, in an error
)

// podClient asks the API server as the pod's ServiceAccount. The kubelet replaces the
// token and the authority, so each request reads them; and requests are days apart,
// so each has a connection of its own. It uses no proxy.
type podClient struct {
	dir     string // has the files token, ca.crt and namespace
	address string // host:port of the API server
}

// newPodClient returns an error if this is not a pod, or one without a token.
func newPodClient() (*podClient, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("this is not a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
	}
	c := &podClient{dir: accountDir, address: net.JoinHostPort(strings.Trim(host, "[]"), port)}
	if _, err := c.read("namespace"); err != nil {
		return nil, fmt.Errorf("the pod has no token (automountServiceAccountToken): %w", err)
	}
	return c, nil
}

func (c *podClient) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	return strings.TrimSpace(string(text)), err
}

// statusError is an answer of the API server that is not 200.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// newStatusError keeps what the API server says of the reason.
func newStatusError(res *http.Response, body []byte) *statusError {
	var status struct{ Message string }
	_ = json.Unmarshal(body, &status) // a proxy in between has its own pages
	text := "the API server answers " + printable.Text(res.Status, maxReason)
	if status.Message != "" {
		text += ": " + printable.Text(status.Message, maxReason)
	}
	if res.StatusCode == http.StatusUnauthorized {
		text += ": it does not take the pod's token"
	}
	return &statusError{res.StatusCode, text}
}

// request sends body, in JSON, to a Secret of the pod's namespace, and returns the answer
// to it.
func (c *podClient) request(ctx context.Context, method, secret string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	namespace, errNamespace := c.read("namespace")
	token, errToken := c.read("token")
	ca, errCA := c.read("ca.crt")
	if err := cmp.Or(errNamespace, errToken, errCA); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		return nil, fmt.Errorf("%s/ca.crt has no certificate", c.dir)
	}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/secrets/" + url.PathEscape(secret)
	req, err := http.NewRequestWithContext(ctx, method, "https://"+c.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not one")
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "causeway-agent") // managedFields have it, too
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
	res, err := transport.RoundTrip(req) // which follows no redirect
	if err != nil {
		return nil, fmt.Errorf("the API server at %s: %w", c.address, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, newStatusError(res, answer)
	}
	return answer, nil
}

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
	"slices"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel"
)

// credentialsKey is the Secret's entry with the credentials, as the file of a
// tunnel.FileStore has them.
const credentialsKey = "credentials.pem"

// maxConflicts is how often a write is tried while others write to the Secret, too.
const maxConflicts = 5

// secretStore keeps the agent's credentials in a Secret of the pod's namespace, which
// must exist: it takes the rights to get and to update that one. One agent uses it,
// from one goroutine at a time.
//
// The pods of a Deployment share the Secret, each with a secretStore of its own. It does
// not replace credentials that another pod has written meanwhile: those are the newer
// ones, and the Secret is all that a next pod has.
type secretStore struct {
	api  *podClient
	name string

	known []string // what may be in the Secret: read or written by this process
}

var _ tunnel.CredentialStore = (*secretStore)(nil)

// secretObject is a Secret with all its fields: what is not the agent's is sent back
// as it came.
type secretObject map[string]json.RawMessage

// Load implements [tunnel.CredentialStore].
func (s *secretStore) Load(ctx context.Context) (*tunnel.Credentials, error) {
	_, data, err := s.read(ctx)
	if err != nil {
		return nil, s.wrap(err)
	}
	text := data[credentialsKey]
	var c *tunnel.Credentials
	if len(text) > 0 {
		if c, err = tunnel.ParseCredentials(text); err != nil {
			return nil, s.wrap(fmt.Errorf("entry %s: %w; remove the entry, and put a new invitation in place", credentialsKey, err))
		}
	}
	s.known = []string{string(text)}
	return c, nil
}

// Save implements [tunnel.CredentialStore].
func (s *secretStore) Save(ctx context.Context, c *tunnel.Credentials) error {
	text, err := c.PEM()
	if err != nil {
		return err
	}
	for range maxConflicts {
		if err = s.replace(ctx, text); !isStatus(err, http.StatusConflict) {
			break
		}
	}
	return s.wrap(err)
}

// replace is one attempt: the API server refuses it if the Secret has changed since
// it was read.
func (s *secretStore) replace(ctx context.Context, text []byte) error {
	object, data, err := s.read(ctx)
	if err != nil {
		return err
	}
	// An empty Secret was lost, and made again.
	before := string(data[credentialsKey])
	if before != "" && !slices.Contains(s.known, before) {
		return tunnel.ErrCredentialsChanged
	}
	data[credentialsKey] = text
	if object["data"], err = json.Marshal(data); err != nil {
		return err
	}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	// If the answer is lost, either may be there.
	s.known = []string{before, string(text)}
	_, err = s.api.request(ctx, http.MethodPut, s.name, body)
	return err
}

func (s *secretStore) read(ctx context.Context) (secretObject, map[string][]byte, error) {
	answer, err := s.api.request(ctx, http.MethodGet, s.name, nil)
	if err != nil {
		return nil, nil, err
	}
	object, data := secretObject{"data": []byte("null")}, map[string][]byte{}
	if json.Unmarshal(answer, &object) != nil || json.Unmarshal(object["data"], &data) != nil {
		return nil, nil, errors.New("the answer of the API server is not a Secret")
	}
	if data == nil {
		data = map[string][]byte{}
	}
	return object, data, nil
}

// wrap names the Secret, and says what to do about what will not pass by itself.
func (s *secretStore) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case isStatus(err, http.StatusNotFound):
		err = fmt.Errorf("%w: apply the agent's manifest, which has an empty one", err)
	case isStatus(err, http.StatusForbidden):
		err = fmt.Errorf("%w: a Role must allow get and update of this Secret", err)
	}
	return fmt.Errorf("the Secret %s: %w", s.name, err)
}

func isStatus(err error, code int) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.code == code
}

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

package connect_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// apiServer stands in for a kube-apiserver. It is known as api.test:6443,
// which no resolver knows: only what maps that name reaches it.
type apiServer struct {
	*httptest.Server
	name string // in its certificate
	ca   *pki.CA
	pods http.Handler // what is below /api/v1/namespaces/default/pods/
	// route, if not nil, takes the place of dial, for a proxy that leads to
	// more than one server.
	route func(ctx context.Context, network, address string) (net.Conn, error)

	mu       sync.Mutex
	accepted int
	closed   chan struct{} // one for each connection that ended
	hanging  chan struct{} // one for each request that is not answered; nil: none is
	clients  []string      // common names, "" for none
	headers  []http.Header
	host     string // that the last request was for
	protos   map[string]int
}

const (
	apiAddress = "api.test:6443"
	podPath    = "/api/v1/namespaces/default/pods/"
)

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	return newAPIServerNamed(t, "api.test")
}

// newAPIServerNamed starts one whose certificate is for name.
func newAPIServerNamed(t *testing.T, name string) *apiServer {
	t.Helper()
	s := &apiServer{name: name, ca: pki.NewCAWith(nil, nil), closed: make(chan struct{}, 100), hanging: make(chan struct{}), protos: make(map[string]int)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch state {
		case http.StateNew:
			s.accepted++
		case http.StateClosed:
			s.closed <- struct{}{}
		}
	}
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{s.ca.Server(name, "127.0.0.1")},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    s.ca.Pool(),
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	name := ""
	if len(r.TLS.PeerCertificates) > 0 {
		name = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	s.mu.Lock()
	s.clients = append(s.clients, name)
	s.headers = append(s.headers, r.Header.Clone())
	s.host = r.Host
	s.protos[r.Proto]++
	s.mu.Unlock()
	if name == "" && r.Header.Get("Authorization") == "" {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/version":
		fmt.Fprint(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`)
	case r.URL.Path == "/hang" && s.hanging != nil:
		s.hanging <- struct{}{}
		<-r.Context().Done()
	case r.URL.Query().Get("watch") != "":
		fmt.Fprintln(w, `{"type":"ADDED","object":{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}}`)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case s.pods != nil && strings.HasPrefix(r.URL.Path, podPath):
		s.pods.ServeHTTP(w, r)
	case r.URL.Path == "/api/v1/namespaces":
		fmt.Fprint(w, `{"kind":"NamespaceList","apiVersion":"v1","items":[{"metadata":{"name":"default"}}]}`)
	default:
		http.NotFound(w, r)
	}
}

func (s *apiServer) acceptedConns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

func (s *apiServer) lastHeader() http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.headers) == 0 {
		return nil
	}
	return s.headers[len(s.headers)-1]
}

func (s *apiServer) lastHost() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host
}

func (s *apiServer) lastClient() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.clients) == 0 {
		return "(no request)"
	}
	return s.clients[len(s.clients)-1]
}

// dial connects to the server if it is asked for by its name.
func (s *apiServer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.route != nil {
		return s.route(ctx, network, address)
	}
	if address != apiAddress {
		return nil, fmt.Errorf("%s was asked for instead of %s", address, apiAddress)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, s.Listener.Addr().String())
}

func (s *apiServer) dialer() dialer.Dialer { return dialer.Func(s.dial) }

// proxy is a proxy that reaches one API server, and what it saw.
type proxy struct {
	addr string
	api  *apiServer
	user *url.Userinfo // nil: anyone

	mu    sync.Mutex // guards the fields below
	peers []int      // whether each request over TLS came with a certificate: 0 or 1
	seen  []string   // targets asked for
}

// newProxy starts a proxy. config makes it an https proxy.
func newProxy(t *testing.T, api *apiServer, user *url.Userinfo, config *tls.Config, serve func(*proxy) proxyFunc) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	p := &proxy{addr: l.Addr().String(), api: api, user: user}
	s := proxytest.Serve(l, serve(p))
	t.Cleanup(s.Close)
	return p
}

// proxyFunc is what proxytest.Serve runs.
type proxyFunc = func(context.Context, net.Conn)

func (p *proxy) credentials() (username, password string) {
	if p.user == nil {
		return "", ""
	}
	password, _ = p.user.Password()
	return p.user.Username(), password
}

func serveConnect(p *proxy) proxyFunc {
	username, password := p.credentials()
	return (&proxytest.HTTP{Username: username, Password: password, Dial: p.api.dial, Log: p.log}).Handle
}

func serveSOCKS(p *proxy) proxyFunc {
	username, password := p.credentials()
	return (&proxytest.SOCKS5{Username: username, Password: password, Dial: p.api.dial, Log: p.log}).Handle
}

func (p *proxy) log(r proxytest.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.ClientCertificate:
		p.peers = append(p.peers, 1)
	case r.TLS:
		p.peers = append(p.peers, 0)
	}
	if r.Accepted {
		p.seen = append(p.seen, r.Target)
	}
}

// url returns the proxy's URL with its user, its host as a name where TLS
// needs one.
func (p *proxy) url(scheme string) string {
	u := url.URL{Scheme: scheme, User: p.user, Host: p.addr}
	return u.String()
}

func (p *proxy) targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.seen...)
}

func (p *proxy) shown() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int(nil), p.peers...)
}

package kubeconfig_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/dialer"
)

// apiServer stands in for a kube-apiserver. It is known as api.test:6443,
// which no resolver knows: only what maps that name reaches it.
type apiServer struct {
	*httptest.Server
	ca *authority

	mu       sync.Mutex
	accepted int
	closed   chan struct{} // one for each connection that ended
	hanging  chan struct{} // one for each request that is not answered
	clients  []string      // common names, "" for none
	headers  []http.Header
	protos   map[string]int
}

const apiAddress = "api.test:6443"

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{ca: newAuthority(t, nil, nil), closed: make(chan struct{}, 100), hanging: make(chan struct{}), protos: make(map[string]int)}
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
		Certificates: []tls.Certificate{s.ca.serving(t, "api.test")},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    s.ca.pool(),
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
	case r.URL.Path == "/hang":
		s.hanging <- struct{}{}
		<-r.Context().Done()
	case r.URL.Query().Get("watch") != "":
		fmt.Fprintln(w, `{"type":"ADDED","object":{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}}`)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
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
	if address != apiAddress {
		return nil, fmt.Errorf("%s was asked for instead of %s", address, apiAddress)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, s.Listener.Addr().String())
}

func (s *apiServer) dialer() dialer.Dialer { return dialer.Func(s.dial) }

// proxy is a CONNECT proxy, or a SOCKS5 one, that reaches one API server.
type proxy struct {
	listener net.Listener
	api      *apiServer
	user     *url.Userinfo // nil: anyone
	wg       sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]struct{}
	peers []int    // certificates that each TLS client showed
	seen  []string // targets asked for
	fails []error
}

// newProxy starts a proxy. config makes it an https proxy.
func newProxy(t *testing.T, api *apiServer, user *url.Userinfo, config *tls.Config, serve func(*proxy, net.Conn) error) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, api: api, user: user, open: make(map[net.Conn]struct{})}
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if !p.track(conn, true) {
				conn.Close()
				return
			}
			p.wg.Go(func() {
				defer p.track(conn, false)
				defer conn.Close()
				if err := p.handle(conn, config, serve); err != nil {
					p.mu.Lock()
					p.fails = append(p.fails, err)
					p.mu.Unlock()
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for conn := range p.open {
			conn.Close()
		}
		p.open = nil
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) track(conn net.Conn, open bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return false
	}
	if open {
		p.open[conn] = struct{}{}
	} else {
		delete(p.open, conn)
	}
	return true
}

func (p *proxy) handle(conn net.Conn, config *tls.Config, serve func(*proxy, net.Conn) error) error {
	if config == nil {
		return serve(p, conn)
	}
	tc := tls.Server(conn, config)
	if err := tc.Handshake(); err != nil {
		return err
	}
	p.mu.Lock()
	p.peers = append(p.peers, len(tc.ConnectionState().PeerCertificates))
	p.mu.Unlock()
	return serve(p, tc)
}

// relay connects to the target and copies until either side ends.
func (p *proxy) relay(target string, client net.Conn, from io.Reader, ok string) error {
	p.mu.Lock()
	p.seen = append(p.seen, target)
	p.mu.Unlock()
	server, err := p.api.dial(context.Background(), "tcp", target)
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := io.WriteString(client, ok); err != nil {
		return err
	}
	p.wg.Go(func() {
		_, _ = io.Copy(client, server)
		client.Close()
	})
	_, _ = io.Copy(server, from)
	return nil
}

// serveConnect is an HTTP proxy's side of RFC 9110, section 9.3.6.
func serveConnect(p *proxy, conn net.Conn) error {
	br := bufio.NewReader(conn)
	req, err := http.ReadRequest(br)
	if err != nil {
		return err
	}
	if p.user != nil && req.Header.Get("Proxy-Authorization") != basicAuth(p.user) {
		_, err := io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return err
	}
	return p.relay(req.Host, conn, br, "HTTP/1.1 200 Connection established\r\n\r\n")
}

func basicAuth(user *url.Userinfo) string {
	password, _ := user.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
}

// serveSOCKS is a SOCKS5 proxy's side of RFC 1928 for names and no method but
// "none".
func serveSOCKS(p *proxy, conn net.Conn) error {
	b := make([]byte, 255)
	if _, err := io.ReadFull(conn, b[:2]); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, b[:b[1]]); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{5, 0}); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, b[:5]); err != nil {
		return err
	}
	if b[3] != 3 {
		return fmt.Errorf("address type %d was sent instead of a name", b[3])
	}
	n := int(b[4])
	if _, err := io.ReadFull(conn, b[:n+2]); err != nil {
		return err
	}
	target := fmt.Sprintf("%s:%d", b[:n], int(b[n])<<8|int(b[n+1]))
	return p.relay(target, conn, conn, "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
}

// url returns the proxy's URL with its user, its host as a name where TLS
// needs one.
func (p *proxy) url(scheme string) string {
	u := url.URL{Scheme: scheme, User: p.user, Host: p.listener.Addr().String()}
	return u.String()
}

func (p *proxy) targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.seen...)
}

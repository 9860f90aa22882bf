package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// standInHost is an address for documentation (RFC 5737): nobody has it. The
// proxies below connect it to the stand-in.
const (
	standInHost = "192.0.2.10"
	standInPort = 6443
)

// A password with all that gets lost in URLs and headers.
const username, password = "controller", "p@ss:w/rd%+&'"

// next is what to try after the stand-ins.
const next = `Try next:
  go run ./examples/quickstart -kubeconfig FILE -proxy URL   a cluster and a proxy of yours
  go run ./examples/doctor -kubeconfig FILE                  what stops a connection, and the remedy
  docs/tunnel.md                                             a tunnel to a cluster that nothing leads into
  README.md                                                  which package you need
`

// standIns starts a stand-in for an API server, and the proxies and the tunnel
// in front of it.
func standIns() (*demo, error) {
	var s starter
	ca, proxyCA := pki.NewCA("kubernetes"), pki.NewCA("corporate proxy")
	api := s.listen()
	stopAPI := s.serveAPI(api, ca)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != fmt.Sprintf("%s:%d", standInHost, standInPort) {
			return nil, fmt.Errorf("no route to %s", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, api.Addr().String())
	}
	plain, secure, socks := s.listen(), s.listen(), s.listen()
	if s.err != nil {
		return nil, s.err
	}
	secure = tls.NewListener(secure, &tls.Config{Certificates: []tls.Certificate{proxyCA.Server("127.0.0.1")}})
	httpProxy := &proxytest.HTTP{Username: username, Password: password, Dial: dial}
	socksProxy := &proxytest.SOCKS5{Username: username, Password: password, Dial: dial}
	servers := []*proxytest.Server{
		proxytest.Serve(plain, httpProxy.Handle),
		proxytest.Serve(secure, httpProxy.Handle),
		proxytest.Serve(socks, socksProxy.Handle),
	}
	through := func(scheme string, l net.Listener) kubeconfig.Route {
		u := url.URL{Scheme: scheme, User: url.UserPassword(username, password), Host: l.Addr().String()}
		return kubeconfig.Route{ProxyURL: u.String()}
	}
	closeAll := func() {
		for _, p := range servers {
			p.Close()
		}
		stopAPI()
	}
	tunnelRoute, stopTunnel, err := startTunnel(api.Addr().String())
	if err != nil {
		closeAll()
		return nil, err
	}
	return &demo{
		intro: fmt.Sprintf("The API server is a stand-in in this process: it knows /version, /readyz and namespaces.\n"+
			"Only the proxies and the tunnel, in the same process, lead to its address, %s:%d.", standInHost, standInPort),
		spec: kubeconfig.Spec{
			Name:     "quickstart",
			Endpoint: kubeconfig.Endpoint{Host: standInHost, Port: standInPort},
			CA:       ca.CertPEM(),
			// The endpoint is not in the certificate, as with many a load
			// balancer; this name always is.
			TLSServerName: "kubernetes.default.svc",
			Credentials:   kubeconfig.Credentials{CAKey: ca.KeyPEM()},
		},
		routes: []route{
			{"HTTP proxy", through("http", plain), nil},
			{"HTTPS proxy", through("https", secure), &connect.Options{ProxyTLS: &tls.Config{RootCAs: proxyCA.Pool()}}},
			{"SOCKS5 proxy", through("socks5", socks), nil},
			{"TUNNEL", tunnelRoute, nil},
		},
		standIn: true,
		next:    next,
		close: func() {
			stopTunnel()
			closeAll()
		},
	}, nil
}

// starter keeps the first error of several listeners.
type starter struct{ err error }

func (s *starter) listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil && s.err == nil {
		s.err = err
	}
	return l
}

// serveAPI starts the stand-in, which wants a client certificate of ca, as
// kube-apiserver does, and returns what stops it.
func (s *starter) serveAPI(l net.Listener, ca *pki.CA) (stop func()) {
	if s.err != nil {
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.0-stand-in"})
	})
	mux.HandleFunc("GET /api/v1/namespaces", namespaces)
	server := &http.Server{
		Handler:           authenticated(mux),
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{ca.Server("kubernetes.default.svc")},
			ClientAuth:   tls.VerifyClientCertIfGiven,
			ClientCAs:    ca.Pool(),
			NextProtos:   []string{"h2", "http/1.1"},
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.ServeTLS(l, "", "")
	}()
	return func() {
		server.Close()
		<-done
	}
}

func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status:   metav1.StatusFailure, Reason: metav1.StatusReasonUnauthorized,
				Message: "Unauthorized", Code: http.StatusUnauthorized,
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// namespaces lists and watches.
func namespaces(w http.ResponseWriter, r *http.Request) {
	var items []corev1.Namespace
	for i, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		items = append(items, corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: fmt.Sprint(i + 1)},
		})
	}
	if watch := r.URL.Query().Get("watch"); watch != "true" && watch != "1" {
		writeJSON(w, corev1.NamespaceList{
			TypeMeta: metav1.TypeMeta{Kind: "NamespaceList", APIVersion: "v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "4"},
			Items:    items,
		})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for _, item := range items {
		json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": item})
	}
	http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

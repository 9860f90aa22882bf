package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
)

// A faultProxy leads to an API server, and breaks some of the requests.
type faultProxy struct {
	url  string
	next *httputil.ReverseProxy

	mu      sync.Mutex // guards the fields below
	rand    *rand.Rand
	faults  bool
	denied  time.Time     // until when writes are
	held    chan struct{} // writes wait until it is closed; nil: they do not wait
	counts  map[string]int
	watches map[*http.Request]context.CancelFunc
	written map[string]int
	asked   int
}

// startFaultProxy starts one beside the management cluster, without faults.
func startFaultProxy(t *testing.T, m *management, seed uint64) *faultProxy {
	t.Helper()
	target := &url.URL{Scheme: "https", Host: m.Address()}
	transport := &http.Transport{DialContext: m.bed.Network.Client.DialContext, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: m.CA.Pool()}}
	p := &faultProxy{rand: rand.New(rand.NewPCG(seed, 1)), counts: map[string]int{}, watches: map[*http.Request]context.CancelFunc{}, written: map[string]int{}}
	p.next = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	l := listen(t, m.bed.Network.Client, "127.0.0.1:0")
	p.url = "https://" + l.Addr().String()
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{m.CA.Server("127.0.0.1")}}, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
		transport.CloseIdleConnections()
	})
	return p
}

// ServeHTTP breaks a request, or passes it on.
func (p *faultProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	watch := r.URL.Query().Get("watch") != ""
	write := r.Method != http.MethodGet && r.Method != http.MethodHead
	if write {
		p.awaitRelease(r.Context())
	}
	fault := p.choose(r, watch, write)
	switch {
	case fault == "429":
		w.Header().Set("Retry-After", "1")
		answerStatus(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	case fault == "500":
		answerStatus(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case fault == "410":
		answerStatus(w, http.StatusGone, metav1.StatusReasonExpired)
	case fault == "409":
		answerStatus(w, http.StatusConflict, metav1.StatusReasonConflict)
	case fault == "403":
		answerStatus(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case fault == "no request":
		panic(http.ErrAbortHandler)
	case fault == "answer lost":
		p.next.ServeHTTP(&noAnswer{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	case watch:
		ctx, cancel := context.WithCancel(r.Context())
		p.mu.Lock()
		p.watches[r] = cancel
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			delete(p.watches, r)
			p.mu.Unlock()
			cancel()
		}()
		p.next.ServeHTTP(w, r.WithContext(ctx))
	default:
		p.next.ServeHTTP(w, r)
	}
}

// holdWrites has writes wait until it is called again.
func (p *faultProxy) holdWrites(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.held = make(chan struct{})
		return
	}
	close(p.held)
	p.held = nil
}

func (p *faultProxy) awaitRelease(ctx context.Context) {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case <-held:
	case <-ctx.Done():
	}
}

// choose chooses the fault, and counts it. Events get answers: client-go's recorder
// would repeat one without for minutes.
func (p *faultProxy) choose(r *http.Request, watch, write bool) (fault string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if write {
		p.written[r.Method+" "+r.URL.Path]++
	}
	event := strings.HasSuffix(r.URL.Path, "/events")
	n := p.rand.IntN(100)
	switch {
	case !p.faults || !strings.Contains(r.URL.Path, "/namespaces"): // what asks for kinds is asked once, at the start
		return ""
	case write && time.Now().Before(p.denied):
		fault = "403"
	case watch && n < 30:
		fault = "410"
	case watch:
		return ""
	case n < 8:
		fault = "429"
	case n < 20:
		fault = "500"
	case write && n < 32:
		fault = "409"
	case write && n < 44 && !event:
		fault = "answer lost"
	case n < 50 && !event:
		fault = "no request"
	default:
		return ""
	}
	p.counts[fault]++
	return fault
}

// noAnswer drops what is written to it.
type noAnswer struct{ header http.Header }

func (n *noAnswer) Header() http.Header            { return n.header }
func (n *noAnswer) Write(data []byte) (int, error) { return len(data), nil }
func (n *noAnswer) WriteHeader(int)                {}

func answerStatus(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "the test wants it"})
}

func (p *faultProxy) setFaults(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = on
}

// deny denies all writes for half a second.
func (p *faultProxy) deny() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = time.Now().Add(time.Second / 2)
	p.counts["writes denied"]++
}

func (p *faultProxy) cutWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.watches {
		if p.rand.IntN(3) == 0 {
			cancel()
			p.counts["watch cut"]++
		}
	}
}

func (p *faultProxy) counted() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// resetWrites begins to count anew.
func (p *faultProxy) resetWrites() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.written)
	p.asked = 0
}

func (p *faultProxy) writes() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.written)
}

func (p *faultProxy) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// hammerDoors are two ways to many API servers, a direct one and one by two proxies.
type hammerDoors struct {
	ns      *bed.Namespace
	port    int32
	proxies []string
	gateway string // host:port that leads to all of them, as a server in their place

	mu       sync.Mutex      // guards the fields below
	blocked  map[string]bool // hosts that the proxies don't reach
	directly map[string]int  // requests by versions of Secrets
	through  int
}

// hammerHost is the address of a Cluster's API server.
func hammerHost(i int) string { return fmt.Sprintf("127.0.1.%d", i+1) }

func (d *hammerDoors) endpoint(i int) kubeconfig.Endpoint {
	return kubeconfig.Endpoint{Host: hammerHost(i), Port: d.port}
}

func openHammerDoors(t *testing.T, ns *bed.Namespace, ca *pki.CA, n int) *hammerDoors {
	t.Helper()
	d := &hammerDoors{ns: ns, blocked: map[string]bool{}, directly: map[string]int{}}
	hosts := []string{"kubernetes.default.svc"}
	for i := range n {
		hosts = append(hosts, hammerHost(i))
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ca.Server(hosts...)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
	direct, routed := listen(t, ns, "0.0.0.0:0"), listen(t, ns, "127.0.0.1:0")
	d.port, d.gateway = int32(direct.Addr().(*net.TCPAddr).Port), routed.Addr().String()
	for l, isDirect := range map[net.Listener]bool{direct: true, routed: false} {
		serveTLS(t, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.answer(w, r, isDirect) }), config)
	}
	proxy := &proxytest.HTTP{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(address)
		d.mu.Lock()
		blocked := d.blocked[host]
		d.mu.Unlock()
		if blocked {
			return nil, errors.New("the test cut it off")
		}
		return ns.DialContext(ctx, network, routed.Addr().String())
	}}
	for range 2 {
		l := listen(t, ns, "127.0.0.1:0")
		s := proxytest.Serve(l, proxy.Handle)
		t.Cleanup(func() { s.Close() })
		d.proxies = append(d.proxies, "http://"+l.Addr().String())
	}
	return d
}

// answer is what a probe asks of an API server.
func (d *hammerDoors) answer(w http.ResponseWriter, r *http.Request, direct bool) {
	if version, ok := strings.CutPrefix(r.UserAgent(), readerAgent+"/"); ok {
		d.mu.Lock()
		if direct {
			d.directly[version]++
		} else {
			d.through++
		}
		d.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"admin"}}}`)
		return
	}
	io.WriteString(w, `{"major":"1","minor":"36","gitVersion":"v1.36.0"}`)
}

func (d *hammerDoors) block(i int, blocked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocked[hammerHost(i)] = blocked
}

func (d *hammerDoors) isBlocked(i int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocked[hammerHost(i)]
}

func (d *hammerDoors) requests() (directly map[string]int, through int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.directly), d.through
}

// routed says whether a kubeconfig has one of the routes.
func (d *hammerDoors) routed(value []byte) bool {
	for _, proxy := range d.proxies {
		if bytes.Contains(value, []byte("proxy-url: "+proxy)) {
			return true
		}
	}
	return bytes.Contains(value, []byte("server: https://"+d.gateway))
}

// ask makes one request by a Secret, as plain client-go does.
func (d *hammerDoors) ask(ctx context.Context, s *corev1.Secret) error {
	config, err := clientcmd.RESTConfigFromKubeConfig(s.Data[kubeconfig.SecretKey])
	if err != nil {
		return err
	}
	config.Dial, config.Timeout, config.UserAgent = d.ns.DialContext, 5*time.Second, readerAgent+"/"+s.ResourceVersion
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer utilnet.CloseIdleConnectionsFor(httpClient.Transport)
	clients, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err == nil {
		_, err = clients.RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	}
	return err
}

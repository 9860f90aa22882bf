package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// testAdmission counts how often a client-go that watches the Secret goes
// directly while Cluster API regenerates it, without the webhook and with it, and
// says what happens while the webhook is down.
func (m *management) testAdmission(t *testing.T) {
	t.Parallel()
	const namespace, rounds, fewRounds = "admission", 100, 20
	d := m.openDoors(t)
	c := m.bear(t, namespace, "prod", m.squid, birth{endpoint: d.endpoint, annotations: map[string]string{
		provider.AnnotationProxyURL: d.proxy, provider.AnnotationProbe: "off"}})
	if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
		t.Fatal(err)
	}
	program := m.run(t, "--namespace", namespace)
	eventually(t, "the first decoration", func(ctx context.Context) error { return m.routed(ctx, c, d) })
	r := m.startReader(t, c, d)
	r.await(t)

	// One: the provider answers a second one soon after less quickly.
	without := r.measure(t, "no webhook", 1, func() { m.regenerate(t, c) })
	if without.versions != 1 {
		t.Errorf("got %+v without a webhook, want a version without a route", without)
	}

	program.Stop()
	hook := m.startRouteWebhook(t, namespace)
	hook.register(namespace)
	hook.await("it to be asked", c, nil)
	if got := r.measure(t, "webhook", rounds, func() { m.regenerate(t, c) }); got.versions != 0 || got.requests != 0 {
		t.Errorf("got %+v with the webhook, want 0", got)
	}
	anew := func() {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Name + "-kubeconfig"}}
		if err := m.admin.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.measure(t, "webhook, deleted and created anew", fewRounds, anew); got.versions != 0 || got.requests != 0 {
		t.Errorf("got %+v of Secrets that are created anew, want 0", got)
	}
	for range 2 { // one that is starting
		hook.program.Stop()
		hook.restart()
		if got := r.measure(t, "webhook, restarted", 1, func() {
			hook.await("it to answer again", c, func(err error) bool { return err == nil })
			m.regenerate(t, c)
		}); got.versions != 0 || got.requests != 0 {
			t.Errorf("got %+v after a restart, want 0", got)
		}
	}

	hook.program.Stop()
	refused := func() {
		s, err := m.stored(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		err = capikubeconfig.RegenerateSecret(t.Context(), m.admin, s, quickly)
		if err == nil || !strings.Contains(err.Error(), hook.failure()) {
			t.Errorf("got %v, want that the write is refused", err)
		}
	}
	if got := r.measure(t, "down, Fail", fewRounds, refused); got.versions != 0 || got.requests != 0 {
		t.Errorf("got %+v while the webhook is down and Fail, want 0", got)
	}
	m.testUnasked(t, namespace, c)
	m.run(t, "--namespace", namespace)
	hook.setPolicy(admissionregistrationv1.Ignore)
	hook.await("writes to pass", c, func(err error) bool { return err == nil })
	if got := r.measure(t, "down, Ignore", 1, func() { m.regenerate(t, c) }); got.versions != 1 {
		t.Errorf("got %+v while the webhook is down and Ignore, want a version without a route", got)
	}
}

// testUnasked makes the writes that pass while the webhook is down and Fail.
func (m *management) testUnasked(t *testing.T, namespace string, c *clusterv1.Cluster) {
	t.Helper()
	s, err := m.stored(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	m.change(t, s, func() { s.Data["theirs"] = []byte("another key") })
	other := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other-values", Labels: map[string]string{clusterv1.ClusterNameLabel: "other"}},
		Data:       map[string][]byte{kubeconfig.SecretKey: []byte("a")},
	}
	m.create(t, other)
	m.change(t, other, func() { other.Data[kubeconfig.SecretKey] = []byte("b") })
	if err := m.admin.Delete(t.Context(), other); err != nil {
		t.Error(err)
	}
}

// doors are two ways to the API server of a workload cluster, which count the
// requests of the reader: one by a proxy, and one without.
type doors struct {
	endpoint       kubeconfig.Endpoint // the direct one
	proxy          string
	direct, routed atomic.Int64
}

const readerAgent = "reader"

func (m *management) openDoors(t *testing.T) *doors {
	t.Helper()
	d, ns := &doors{}, m.bed.Network.Client
	direct, routed := m.openDoor(t, &d.direct), m.openDoor(t, &d.routed)
	proxy := &proxytest.HTTP{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return ns.DialContext(ctx, network, routed.Addr().String())
	}}
	l := listen(t, ns, "127.0.0.1:0")
	s := proxytest.Serve(l, proxy.Handle)
	t.Cleanup(func() { s.Close() })
	d.proxy = "http://" + l.Addr().String()
	d.endpoint = kubeconfig.Endpoint{Host: "127.0.0.1", Port: int32(direct.Addr().(*net.TCPAddr).Port)}
	return d
}

// openDoor serves /version to clients with a certificate of the cluster's CA.
func (m *management) openDoor(t *testing.T, count *atomic.Int64) net.Listener {
	t.Helper()
	ca := m.squid.kube.CA
	l := listen(t, m.bed.Network.Client, "127.0.0.1:0")
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() == readerAgent {
			count.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"major":"1","minor":"36"}`)
	})
	serveTLS(t, l, handler, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ca.Server("127.0.0.1")},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()})
	return l
}

// routed says whether the stored Secret has the route.
func (m *management) routed(ctx context.Context, c *clusterv1.Cluster, d *doors) error {
	_, proxy, _, err := m.entry(ctx, c)
	if err == nil && proxy != d.proxy {
		err = fmt.Errorf("its proxy-url is %q", proxy)
	}
	return err
}

// A reader is a controller that watches the kubeconfig Secret of a Cluster, and
// makes requests all the time by the last version of it.
type reader struct {
	m *management
	c *clusterv1.Cluster
	d *doors

	ready  chan struct{} // closed when there is a client
	failed atomic.Int64  // requests

	asking sync.RWMutex // read-locked by each request
	client *discovery.DiscoveryClient

	mu       sync.Mutex // guards the fields below
	direct   int        // versions without a route
	last     uint64     // the version that has come last
	lastGood bool       // it has a route
	since    time.Time  // the version without a route that is the last
	windows  []time.Duration
}

func (m *management) startReader(t *testing.T, c *clusterv1.Cluster, d *doors) *reader {
	t.Helper()
	r := &reader{m: m, c: c, d: d, ready: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	watch, err := m.admin.Watch(ctx, &corev1.SecretList{}, &client.ListOptions{Namespace: c.Namespace,
		FieldSelector: fields.OneTermEqualSelector("metadata.name", c.Name+"-kubeconfig")})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		watch.Stop()
		running.Wait()
	})
	running.Go(func() {
		for event := range watch.ResultChan() {
			s, ok := event.Object.(*corev1.Secret)
			switch {
			case ctx.Err() != nil:
				return
			case !ok:
				t.Errorf("got %v of the watch", event)
				return
			case event.Type == apiwatch.Deleted:
			default:
				if err := r.take(s); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 2 {
		running.Go(func() {
			select {
			case <-r.ready:
			case <-ctx.Done():
			}
			for ctx.Err() == nil {
				r.asking.RLock()
				_, err := r.client.ServerVersion()
				r.asking.RUnlock()
				if err != nil && ctx.Err() == nil {
					r.failed.Add(1)
				}
			}
		})
	}
	return r
}

// take makes a client of a version, and closes the one before.
func (r *reader) take(s *corev1.Secret) error {
	value := s.Data[kubeconfig.SecretKey]
	config, err := clientcmd.RESTConfigFromKubeConfig(value)
	if err != nil {
		return err
	}
	config.Dial = r.m.bed.Network.Client.DialContext
	config.UserAgent, config.QPS, config.Burst = readerAgent, 500, 1
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	fresh, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return err
	}
	now := time.Now()
	r.asking.Lock()
	old := r.client
	r.client = fresh
	r.asking.Unlock() // no request by the old one is left
	if old == nil {
		close(r.ready)
	} else {
		utilnet.CloseIdleConnectionsFor(old.RESTClient().(*rest.RESTClient).Client.Transport)
	}
	version, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
	if err != nil {
		return err
	}
	good := bytes.Contains(value, []byte("proxy-url: "+r.d.proxy))
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !good:
		r.direct++
		r.since = now
	case !r.since.IsZero():
		r.windows = append(r.windows, now.Sub(r.since))
		r.since = time.Time{}
	}
	r.last, r.lastGood = version, good
	return nil
}

// await waits until the reader has the stored version, and that has the route.
func (r *reader) await(t *testing.T) {
	t.Helper()
	eventually(t, "the reader to go by the route", func(ctx context.Context) error {
		s, err := r.m.stored(ctx, r.c)
		if err != nil {
			return err
		}
		want, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
		if err != nil {
			return bed.Stop(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.last < want || !r.lastGood {
			return fmt.Errorf("it has the version %d, with a route: %t; want %d", r.last, r.lastGood, want)
		}
		return nil
	})
}

// window is what a reader saw in some rounds.
type window struct {
	versions int   // of the Secret, without a route
	requests int64 // that went directly
}

// measure writes the Secret again and again, and waits for the reader each time.
func (r *reader) measure(t *testing.T, what string, rounds int, write func()) window {
	t.Helper()
	r.mu.Lock()
	first := r.direct
	r.windows = nil
	r.mu.Unlock()
	direct, routed, failed := r.d.direct.Load(), r.d.routed.Load(), r.failed.Load()
	var took []time.Duration
	for range rounds {
		began := time.Now()
		write()
		took = append(took, time.Since(began))
		r.await(t)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	got := window{r.direct - first, r.d.direct.Load() - direct}
	slices.Sort(took)
	text := "none"
	if len(r.windows) > 0 {
		slices.Sort(r.windows)
		text = fmt.Sprintf("median %v, longest %v", r.windows[len(r.windows)/2], r.windows[len(r.windows)-1])
	}
	t.Logf("%s: %d rounds, %d versions without the route; requests: %d directly, %d by the route, %d failed; windows: %s; a write took %v (median)",
		what, rounds, got.versions, got.requests, r.d.routed.Load()-routed, r.failed.Load()-failed, text, took[len(took)/2])
	return got
}

// routeWebhook is the webhook of the component route-admission.
type routeWebhook struct {
	t       *testing.T
	m       *management
	name    string
	address string
	program *bed.Running
	restart func()
}

// startRouteWebhook runs the provider with the webhook, beside the management
// cluster.
func (m *management) startRouteWebhook(t *testing.T, namespace string) *routeWebhook {
	t.Helper()
	h := &routeWebhook{t: t, m: m}
	var args []string
	h.address, args = m.webhookFlags(t)
	h.restart = func() { h.program = m.run(t, append(args, "--namespace", namespace)...) }
	h.restart()
	return h
}

// webhookFlags are those of a program with the webhook, which listens at the address.
func (m *management) webhookFlags(t *testing.T) (address string, flags []string) {
	t.Helper()
	dir := t.TempDir()
	cert, key := pki.PEM(m.CA.Server("127.0.0.1"))
	for name, text := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := listen(t, m.bed.Network.Client, "127.0.0.1:0")
	l.Close()
	return l.Addr().String(), []string{"--webhook-listen", l.Addr().String(),
		"--webhook-cert", filepath.Join(dir, "tls.crt"), "--webhook-key", filepath.Join(dir, "tls.key")}
}

// serveTLS serves until the test ends.
func serveTLS(t *testing.T, l net.Listener, h http.Handler, config *tls.Config) {
	server := &http.Server{Handler: h, TLSConfig: config, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
}

// register creates the component's configuration. What differs: the address, since
// Services lead nowhere here, and the namespaces, since other tests have Secrets.
func (h *routeWebhook) register(namespaces ...string) {
	h.t.Helper()
	text, err := os.ReadFile("../../examples/deploy/components/route-admission/manifest.yaml")
	if err != nil {
		h.t.Fatal(err)
	}
	documents := bytes.Split(text, []byte("\n---\n"))
	n := slices.IndexFunc(documents, func(d []byte) bool { return bytes.Contains(d, []byte("kind: MutatingWebhookConfiguration\n")) })
	if n < 0 {
		h.t.Fatal("the manifest has no MutatingWebhookConfiguration")
	}
	var config admissionregistrationv1.MutatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(documents[n], &config); err != nil {
		h.t.Fatal(err)
	}
	w := &config.Webhooks[0]
	url := "https://" + h.address + *w.ClientConfig.Service.Path
	w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: h.m.CA.CertPEM()}
	w.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces}}}
	h.name = config.Name
	h.m.create(h.t, &config)
	h.t.Cleanup(func() {
		if err := h.m.admin.Delete(context.WithoutCancel(h.t.Context()), &config); err != nil {
			h.t.Error(err)
		}
	})
}

// failure is what the API server says when the webhook is down and Fail.
func (h *routeWebhook) failure() string {
	return `failed calling webhook "route.kubeconfig-provider.causewayproject.github.io"`
}

func (h *routeWebhook) setPolicy(policy admissionregistrationv1.FailurePolicyType) {
	h.t.Helper()
	config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: h.name}}
	h.m.change(h.t, config, func() { config.Webhooks[0].FailurePolicy = &policy })
}

// await waits until the API server knows the configuration: a regeneration that is
// not stored comes back with the route, or ends as done says.
func (h *routeWebhook) await(what string, c *clusterv1.Cluster, done func(error) bool) {
	h.t.Helper()
	eventually(h.t, what, func(ctx context.Context) error {
		s, err := h.m.stored(ctx, c)
		if err != nil {
			return bed.Stop(err)
		}
		err = capikubeconfig.RegenerateSecret(ctx, client.NewDryRunClient(h.m.admin), s, quickly)
		if done != nil {
			if done(err) {
				return nil
			}
			return fmt.Errorf("got %w", err)
		}
		if err == nil && !bytes.Contains(s.Data[kubeconfig.SecretKey], []byte("proxy-url: ")) {
			err = errors.New("the answer has no route")
		}
		return err
	})
}

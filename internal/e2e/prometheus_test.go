package e2e

import (
	"context"
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
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
)

// testAlerts has a Prometheus scrape the programs with the alerts of tunnel/prometheus,
// which wait for seconds here instead of minutes. Each of six alerts fires when its cause is
// made, and ends with it.
func (m *management) testAlerts(t *testing.T) {
	t.Parallel()
	w := &scraped{management: m, t: t, ns: m.bed.Network.Client, dir: t.TempDir(), jobs: map[string][]string{}}
	w.startTunnel()
	w.startProviders()
	w.startOthers()
	w.startPrometheus()
	w.checkPages()
	causes := w.causes()
	for _, c := range causes {
		w.await(c.alert, false)
	}
	began := time.Now()
	for _, c := range causes {
		c.begin()
	}
	for _, c := range causes {
		w.await(c.alert, true)
	}
	t.Logf("all fired after %v", time.Since(began))
	began = time.Now()
	for _, c := range causes {
		c.end()
	}
	for _, c := range causes {
		w.await(c.alert, false)
	}
	t.Logf("all ended after %v", time.Since(began))
}

// scraped are the programs that a Prometheus scrapes.
type scraped struct {
	*management
	t    *testing.T
	ns   *bed.Namespace
	dir  string
	jobs map[string][]string // addresses by job

	agents, connect string // addresses of the first server
	ca              *pki.CA
	stopAgent       func()
	startAgent      func()
	peers           []*tcpRelay
	toSquid         *tcpRelay
	api             *faultProxy
	prometheus      string // its address
}

// run runs a program until the test ends. If it has a page, that one is scraped.
func (w *scraped) run(job, page string, argv ...string) *bed.Running {
	w.t.Helper()
	r, err := w.ns.Start(w.t.Context(), bed.Command{Argv: argv})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		r.Stop()
		if w.t.Failed() {
			w.t.Logf("%q: %s", argv, r.Stderr())
		}
	})
	w.jobs[job] = append(w.jobs[job], w.address(r, page))
	return r
}

// address returns where a program listens.
func (w *scraped) address(r *bed.Running, name string) string {
	w.t.Helper()
	return w.logged(r, ` for=`+name+` address=(\S+)`)
}

func (w *scraped) logged(r *bed.Running, pattern string) (found string) {
	w.t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(w.t, pattern, func(context.Context) error {
		if err := r.Ended(); err != nil {
			return bed.Stop(err)
		}
		m := re.FindStringSubmatch(r.Stderr())
		if m == nil {
			return fmt.Errorf("got %s", r.Stderr())
		}
		found = m[1]
		return nil
	})
	return found
}

// startTunnel starts two servers that are peers, and an agent.
func (w *scraped) startTunnel() {
	w.ca = pki.NewCA("metrics")
	w.writeCertificate(30)
	goBuild(w.t, programsModule, w.dir, "./causeway-agent")
	state := filepath.Join(w.dir, "server")
	server := func(name string, to *tcpRelay, more ...string) *bed.Running {
		return w.run("tunnel-server", "status", append([]string{w.deployed.program, "server", "--state", state, "--name", name, "--listen", "127.0.0.1:0",
			"--status", "127.0.0.1:0", "--peers", to.address, "--grace", "0s"}, more...)...)
	}
	w.peers = []*tcpRelay{newTCPRelay(w.t, w.ns), newTCPRelay(w.t, w.ns)}
	first := server("first", w.peers[0], "--connect", "127.0.0.1:0", "--connect-tls", "127.0.0.1:0",
		"--door-cert", filepath.Join(w.dir, "tls.crt"), "--door-key", filepath.Join(w.dir, "tls.key"))
	second := server("second", w.peers[1])
	w.agents, w.connect = w.address(first, "listen"), w.address(first, "connect")
	w.peers[1].lead(w.agents)
	w.peers[0].lead(w.address(second, "listen"))
	invitation, err := w.ns.Run(w.t.Context(), bed.Command{Argv: []string{w.deployed.program, "enroll", cluster, "--state", state,
		"--server", w.agents, "--format", "env"}})
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, "invitation.env"), []byte(invitation), 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.startAgent = func() {
		agent := w.run("tunnel-agent", "status", filepath.Join(w.dir, "causeway-agent"), "--invitation", filepath.Join(w.dir, "invitation.env"),
			"--state", filepath.Join(w.dir, "agent"), "--status", "127.0.0.1:0")
		w.logged(agent, `(msg=connected)`)
		w.stopAgent = agent.Stop
	}
	w.startAgent()
}

// writeCertificate writes a certificate that ends after some days.
func (w *scraped) writeCertificate(days int) {
	w.t.Helper()
	cert, key := w.ca.Issue("door", func(c *x509.Certificate) { c.NotAfter = time.Now().AddDate(0, 0, days) })
	for name, data := range map[string][]byte{"tls.key": pki.KeyPEM(key), "tls.crt": pki.CertPEM(cert)} {
		if err := os.WriteFile(filepath.Join(w.dir, name), data, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

const (
	probedIn = "alerts"
	stuckIn  = "alerts-stuck"
)

// startProviders starts one that probes a Cluster behind squid, and one that reaches the
// management cluster by a proxy.
func (w *scraped) startProviders() {
	w.toSquid = newTCPRelay(w.t, w.ns)
	squid, err := url.Parse(w.squid.route.ProxyURL)
	if err != nil {
		w.t.Fatal(err)
	}
	w.toSquid.lead(squid.Host)
	squid.Host = w.toSquid.address
	c := w.bear(w.t, probedIn, "probed", w.squid, birth{noControlPlane: true,
		annotations: w.routeBy(w.t, probedIn, "route", kubeconfig.Route{ProxyURL: squid.String()})})
	w.namespace(w.t, stuckIn)
	w.api = startFaultProxy(w.t, w.management, 1)
	config, err := clientcmd.LoadFromFile(w.deployed.kubeconfig)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server, c.TLSServerName = w.api.url, ""
	}
	throughProxy := filepath.Join(w.dir, "proxied.conf")
	if err := clientcmd.WriteToFile(*config, throughProxy); err != nil {
		w.t.Fatal(err)
	}
	for namespace, kubeconfig := range map[string]string{probedIn: w.deployed.kubeconfig, stuckIn: throughProxy} {
		w.run("kubeconfig-provider", "health", w.deployed.program, "provider", "--kubeconfig", kubeconfig, "--health", "127.0.0.1:0",
			"--namespace", namespace, "--interval", "1s")
	}
	w.routeReady(w.t, c, metav1.ConditionTrue)
}

// startOthers starts what is only scraped.
func (w *scraped) startOthers() {
	config := filepath.Join(w.dir, "config")
	admin := filepath.Join(w.dir, "admin.conf")
	err := os.MkdirAll(config, 0o700)
	for name, text := range map[string]string{filepath.Join(config, "HTTPS_PROXY"): "http://proxy:3128", admin: string(w.config)} {
		err = errors.Join(err, os.WriteFile(name, []byte(text), 0o600))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.run("proxy-injector", "health", w.deployed.program, "injector", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0", "--config", config,
		"--cert", filepath.Join(w.dir, "tls.crt"), "--key", filepath.Join(w.dir, "tls.key"))
	w.run("proxy-propagator", "health", w.deployed.program, "propagator", "--kubeconfig", admin, "--health", "127.0.0.1:0", "--namespace", probedIn)
	w.run("egress", "health", w.deployed.program, "egress", "serve", cluster, "--gateway", "http://"+w.connect, "--credentials", w.dir, "--dir", w.dir,
		"--health", "127.0.0.1:0")
}

// quickRules are the rules with seconds in the place of minutes.
func quickRules(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../tunnel/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{`for: \d+[mh]\n`: "for: 1s\n", `\[\d+m\]`: "[8s]", `> 300\n`: "> 3\n"} {
		quick := regexp.MustCompile(from).ReplaceAll(text, []byte(to))
		if string(quick) == string(text) {
			t.Fatalf("alerts.yaml has no %s", from)
		}
		text = quick
	}
	return text
}

func (w *scraped) startPrometheus() {
	type static struct {
		Targets []string `json:"targets"`
	}
	type job struct {
		Name    string   `json:"job_name"`
		Statics []static `json:"static_configs"`
	}
	config := map[string]any{
		"global":     map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{"rules.yaml"},
	}
	var jobs []job
	targets := 0
	for name, addresses := range w.jobs {
		jobs = append(jobs, job{name, []static{{addresses}}})
		targets += len(addresses)
	}
	config["scrape_configs"] = jobs
	text, err := sigsyaml.Marshal(config)
	for name, data := range map[string][]byte{"prometheus.yml": text, "rules.yaml": quickRules(w.t)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(w.dir, name), data, 0o600))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := w.ns.Start(w.t.Context(), bed.Command{Argv: []string{"prometheus", "--config.file", filepath.Join(w.dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(w.dir, "data"), "--web.listen-address", "127.0.0.1:0"}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(r.Stop)
	w.prometheus = w.logged(r, `msg="Listening on" address=(\S+)`)
	eventually(w.t, "all targets to be up", func(ctx context.Context) error {
		var up []struct{ Metric map[string]string }
		if err := w.query(ctx, "up == 1", &up); err != nil || len(up) != targets {
			return fmt.Errorf("got %v, %w; want %d targets", up, err, targets)
		}
		return nil
	})
}

// get returns a page of a program.
func (w *scraped) get(ctx context.Context, address string) ([]byte, error) {
	transport := &http.Transport{DialContext: w.ns.DialContext, DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return nil, err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address, res.Status, text)
	}
	return text, err
}

// query asks Prometheus.
func (w *scraped) query(ctx context.Context, expr string, result any) error {
	text, err := w.get(ctx, w.prometheus+"/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return err
	}
	var answer struct {
		Data struct{ Result json.RawMessage }
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	return json.Unmarshal(answer.Data.Result, result)
}

// await waits until alerts that the matchers select fire, or until none does.
func (w *scraped) await(matchers string, fires bool) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("alert %s: %t", matchers, fires), func(ctx context.Context) error {
		var found []struct{ Metric map[string]string }
		err := w.query(ctx, `ALERTS{alertstate="firing",`+matchers+`}`, &found)
		if err == nil && len(found) > 0 != fires {
			err = fmt.Errorf("got %v", found)
		}
		return err
	})
}

// checkPages has promtool read each page, and finds each family of ours in metrics.md. What
// promtool says about the names of others is theirs.
func (w *scraped) checkPages() {
	list, err := os.ReadFile("../../tunnel/prometheus/metrics.md")
	if err != nil {
		w.t.Fatal(err)
	}
	family := regexp.MustCompile(`(?m)^# TYPE (causeway_\w+) `)
	for job, addresses := range w.jobs {
		page, err := w.get(w.t.Context(), addresses[0]+"/metrics")
		if err != nil {
			w.t.Fatal(err)
		}
		families := family.FindAllSubmatch(page, -1)
		for _, f := range families {
			if !strings.Contains(string(list), "| `"+string(f[1])+"` |") {
				w.t.Errorf("%s: metrics.md does not list %s", job, f[1])
			}
		}
		r, err := w.ns.Start(w.t.Context(), bed.Command{Argv: []string{"promtool", "check", "metrics"}, Stdin: strings.NewReader(string(page))})
		if err != nil {
			w.t.Fatal(err)
		}
		err = r.Wait()
		if said := r.Stdout() + r.Stderr(); strings.Contains(said, "error") || strings.Contains(said, "causeway_") {
			w.t.Errorf("%s: promtool: %v: %s", job, err, said)
		}
		w.t.Logf("%s: %d families of ours; promtool: %v %s", job, len(families), err, r.Stderr())
	}
}

// A cause makes an alert fire.
type cause struct {
	alert      string // matchers
	begin, end func()
}

func (w *scraped) causes() []cause {
	var stopStrangers func()
	return []cause{
		{`alertname="CausewayClusterWithoutAgent",cluster="` + cluster + `"`, func() { w.stopAgent() }, func() { w.startAgent() }},
		{`alertname="CausewayReplicaWithoutPeers"`, func() { w.cutPeers(true) }, func() { w.cutPeers(false) }},
		{`alertname="CausewayListenerCertificateNearExpiry",listener="connect-tls"`, func() { w.writeCertificate(2) }, func() { w.writeCertificate(30) }},
		{`alertname="CausewayStrangers"`, func() { stopStrangers = w.knock() }, func() { stopStrangers() }},
		{`alertname="CausewayQueueStuck",name="kubeconfig-provider"`, func() {
			w.api.holdWrites(true)
			w.bear(w.t, stuckIn, "stuck", w.squid, birth{noControlPlane: true, annotations: w.routeBy(w.t, stuckIn, "route", w.squid.route)})
		}, func() { w.api.holdWrites(false) }},
		{`alertname="CausewayProviderProbesFail"`, func() { w.toSquid.cut() }, func() { w.toSquid.open() }},
	}
}

func (w *scraped) cutPeers(cut bool) {
	for _, r := range w.peers {
		if cut {
			r.cut()
		} else {
			r.open()
		}
	}
}

// knock comes to both listeners without credentials until stop is called.
func (w *scraped) knock() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var knocking sync.WaitGroup
	for address, text := range map[string]string{w.agents: "hello\r\n", w.connect: "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"} {
		for range 4 {
			knocking.Go(func() {
				for ctx.Err() == nil {
					conn, err := w.ns.DialContext(ctx, "tcp", address)
					if err != nil {
						continue
					}
					io.WriteString(conn, text)
					conn.Read(make([]byte, 1))
					conn.Close()
				}
			})
		}
	}
	stop = func() {
		cancel()
		knocking.Wait()
	}
	w.t.Cleanup(stop)
	return stop
}

// A tcpRelay leads from its address to another one, unless it is cut.
type tcpRelay struct {
	t       *testing.T
	ns      *bed.Namespace
	address string
	server  *proxytest.Server
	target  atomic.Value // address
}

// newTCPRelay returns one that leads nowhere yet.
func newTCPRelay(t *testing.T, ns *bed.Namespace) *tcpRelay {
	t.Helper()
	r := &tcpRelay{t: t, ns: ns, address: "127.0.0.1:0"}
	r.open()
	t.Cleanup(func() { r.server.Close() })
	return r
}

func (r *tcpRelay) lead(address string) { r.target.Store(address) }

func (r *tcpRelay) cut() { r.server.Close() }

func (r *tcpRelay) open() {
	r.t.Helper()
	l, err := r.ns.Listen(r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.address = l.Addr().String()
	r.server = proxytest.Serve(l, r.handle)
}

func (r *tcpRelay) handle(ctx context.Context, conn net.Conn) {
	target, ok := r.target.Load().(string)
	if !ok {
		return
	}
	out, err := r.ns.DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		io.Copy(out, conn)
		out.Close()
	})
	io.Copy(conn, out)
	conn.Close()
	sending.Wait()
}

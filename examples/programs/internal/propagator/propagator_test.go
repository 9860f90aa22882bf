package propagator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

func TestMain(m *testing.M) {
	// controller-runtime's wrapper of a watch keeps this if the watch ends while an event comes.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
}

// managementArgs returns the arguments that lead to an API server.
func managementArgs(t *testing.T, server string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "management.conf")
	config := clientcmdapi.NewConfig()
	config.Clusters["m"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["m"] = &clientcmdapi.Context{Cluster: "m"}
	config.CurrentContext = "m"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return []string{"--kubeconfig", path, "--health", "127.0.0.1:0"}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	_, err := command.Execute(ctx, Command(), args, stdin, stdout, stderr)
	return err
}

// TestRun: one Cluster's objects, and the end as a signal has it.
func TestRun(t *testing.T) {
	const password = "Canary7f3aSecret"
	s := apitest.New(t)
	s.Set("secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "proxy-propagator", "name": "installation-proxy"},
		"data": map[string]any{"HTTP_PROXY": "aHR0cDovL3U6Q2FuYXJ5N2YzYVNlY3JldEBwcm94eS50ZXN0OjE="},
	})
	s.Set("clusters", map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": map[string]any{"namespace": "org", "name": "prod"},
		"spec": map[string]any{"controlPlaneEndpoint": map[string]any{"host": "192.0.2.1", "port": int64(6443)}},
	})
	args := append(managementArgs(t, s.URL), "--node-cidr", "10.1.1.0/24", "--cloud", "openstack", "--values-name", "proxy-values", "--values-layout", "rfc")
	p := clitest.Start(t, run, nil, args...)
	address := p.Await(`for=health address=(\S+)`)
	p.Await(`msg=wrote .*target="ConfigMap org/prod-proxy-values" verb=create`)
	p.Await(`msg=".*has no spec.clusterNetwork.services: kubeadm's default 10.96.0.0/12 is taken`)
	values, _, _ := unstructured.NestedString(s.Get(apitest.Named("configmaps", "org", "prod-proxy-values")).Object, "data", "values")
	if want := "kubernetes:\n  API:\n    clusterIPRange: 10.96.0.0/12\n  DNS:\n    IP: 10.96.0.10\nproxy:\n  noProxy: cluster.local,10.96.0.0/12,192.0.2.1,10.1.1.0/24,169.254.169.254,svc,127.0.0.1,localhost\n"; values != want {
		t.Errorf("got %q, want %q", values, want)
	}
	for name, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ok", "/metrics": `causeway_propagate_writes_total{kind="create",result="ok"} 3`,
	} {
		if code, text := clitest.Get(t, "http://"+address+name); code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("got %d %q of %s, want 200 and %s", code, text, name, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := p.Stop(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if strings.Contains(p.Text(), password) {
		t.Errorf("the password is in\n%s", p.Text())
	}
}

// TestNetworks: the flags count for Clusters that name none of their own.
func TestNetworks(t *testing.T) {
	named := map[string]any{"cidrBlocks": []any{"10.7.0.0/16"}}
	for name, tt := range map[string]struct {
		network any
		want    string
	}{
		"none":          {nil, "cluster.local,10.5.0.0/16,fd00::/112,10.6.0.0/16,"},
		"pods":          {map[string]any{"pods": named}, "cluster.local,10.5.0.0/16,fd00::/112,10.7.0.0/16,"},
		"services":      {map[string]any{"services": named}, "cluster.local,10.7.0.0/16,10.6.0.0/16,"},
		"empty":         {map[string]any{"services": map[string]any{}, "pods": map[string]any{"cidrBlocks": []any{}}}, "cluster.local,10.5.0.0/16,fd00::/112,10.6.0.0/16,"},
		"only a domain": {map[string]any{"serviceDomain": "a.test"}, "a.test,10.5.0.0/16,fd00::/112,10.6.0.0/16,"},
	} {
		t.Run(name, func(t *testing.T) {
			f, cmd := new(flags), new(cobra.Command)
			f.add(cmd)
			if err := cmd.ParseFlags([]string{"--service-cidr", "10.5.0.0/16,fd00::/112", "--pod-cidr", "10.6.0.0/16"}); err != nil {
				t.Fatal(err)
			}
			r, err := f.reconciler()
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": map[string]any{"namespace": "org", "name": "one"}, "spec": map[string]any{}}}
			if tt.network != nil {
				u.Object["spec"].(map[string]any)["clusterNetwork"] = tt.network
			}
			c, err := propagate.ReadCluster(u)
			if err != nil {
				t.Fatal(err)
			}
			r.Facts(u, &c.Facts)
			c.UID = "u"
			held := propagate.Held{Installation: &corev1.Secret{Data: map[string][]byte{"direct": []byte("true")}}}
			action, err := propagate.Plan(c, held, r.Config)
			if err != nil || len(action.Events) > 0 || !strings.Contains(action.Writes[1].ConfigMap.Data["values"], "noProxy: "+tt.want) {
				t.Errorf("got %v, %v and\n%v\nwant %s", action.Events, err, action.Writes[1].ConfigMap.Data, tt.want)
			}
		})
	}
}

// reconciled counts the Clusters that were looked at in this process.
func reconciled(t *testing.T) (n int) {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, found := range regexp.MustCompile(`controller_runtime_reconcile_total{controller="proxy",result="success"} (\d+)`).FindAllStringSubmatch(w.Body.String(), -1) {
		count, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		n += count
	}
	return n
}

// TestNoInstallation: that the installation's Secret is missing is one line, however
// many Clusters wait for it; what is wrong with a Cluster's own is
// another.
func TestNoInstallation(t *testing.T) {
	s := apitest.New(t)
	for _, name := range []string{"one", "two", "three"} {
		s.Set("clusters", map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": map[string]any{"namespace": "org", "name": name}})
	}
	before := reconciled(t)
	p := clitest.Start(t, run, nil, managementArgs(t, s.URL)...)
	p.Await(`level=ERROR msg="the installation's Secret can't be used: nothing is written" .*there is none`)
	deadline := time.Now().Add(20 * time.Second)
	for reconciled(t) < before+3 {
		if time.Now().After(deadline) {
			t.Fatalf("got %d reconciled, want the Clusters", reconciled(t)-before)
		}
	}
	s.Set("secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": "org", "name": "one-proxy-override", "labels": map[string]any{propagate.LabelOverride: ""}},
		"data":     map[string]any{"direct": "bWF5YmU="},
	})
	s.Set("secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "proxy-propagator", "name": "installation-proxy"},
		"data": map[string]any{"direct": "dHJ1ZQ=="},
	})
	p.Await(`msg=".*want true or false" .*name=one .*reason=InvalidProxyOverride`)
	p.Await(`msg=wrote .*target="ConfigMap org/two-cluster-values"`)
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(p.Text(), "there is none"); n != 1 {
		t.Errorf("got %d lines about the Secret that is missing, want one", n)
	}
}

// TestNoClusterAPI: it is alive, and says what is missing.
func TestNoClusterAPI(t *testing.T) {
	s := apitest.New(t)
	s.Serve("cluster.x-k8s.io", nil)
	p := clitest.Start(t, run, nil, managementArgs(t, s.URL)...)
	address := p.Await(`for=health address=(\S+)`)
	p.Await(`clusters.cluster.x-k8s.io`)
	for name, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200} {
		if code, _ := clitest.Get(t, "http://"+address+name); code != want {
			t.Errorf("got %d of %s, want %d", code, name, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"extra"}, {"--credentials", "some"}, {"--containerd", "none"}, {"--node-cidr", "10.0.0.1"}, {"--cloud", "x"}, {"--cloud", "aws"}, {"--service-cidr", "10.0.0.1"}, {"--pod-cidr", "x"},
		{"--values-layout", "x"}, {"--values-name", "systemd-proxy"}, {"--systemd-name", "ca"}, {"--env-secret", "A B"},
		{"--env-secret", "proxy", "--values-layout", "rfc"},
	} {
		err := run(t.Context(), args, nil, io.Discard, io.Discard)
		if !errors.As(err, new(cli.UsageError)) {
			t.Errorf("got %v of %q, want a UsageError", err, args)
		}
	}
	for _, installation := range []string{"", "noslash", "/name", "namespace/", "a/b/c"} {
		err := run(t.Context(), []string{"--installation", installation}, nil, io.Discard, io.Discard)
		if want := "--installation " + strconv.Quote(installation) + " is not NAMESPACE/NAME"; !errors.As(err, new(cli.UsageError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a UsageError with %q", err, want)
		}
	}
	for _, args := range [][]string{{"--installation", "noslash"}, {"--managed-by", "x y"}} {
		if err := run(t.Context(), append(managementArgs(t, "http://127.0.0.1:1"), args...), nil, io.Discard, io.Discard); err == nil {
			t.Errorf("got no error of %q", args)
		}
	}
}

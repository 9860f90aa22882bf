package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
)

// chartSource is the chart, which is also the bases' folder.
const chartSource = "../../examples/deploy"

// A chartBed is a cluster in which Helm installs the chart.
type chartBed struct {
	d       *deploying
	w       *workers
	program string // helm
	current string // the chart's folder
	gateway string // the address of the Service
	tickets *url.URL
}

// TestChart: a kube-apiserver takes what the chart renders. Helm upgrades the server and the
// agent from the previous release, and rolls them back, and no dial fails meanwhile.
func TestChart(t *testing.T) {
	t.Parallel() // waits much
	d := startDeploying(t, "chart")
	c := &chartBed{d: d}
	out, err := exec.CommandContext(t.Context(), "go", "-C", "../tools", "tool", "-n", "helm").Output()
	if err != nil {
		t.Fatal(err)
	}
	c.program = strings.TrimSpace(string(out))
	if c.current, err = filepath.Abs(chartSource); err != nil {
		t.Fatal(err)
	}
	c.testDryRun(t)
	c.w = d.startWorkers(t, "one", "two")
	defer c.w.stop()
	previous := c.previous(t)
	c.installServer(t, previous)
	c.installAgent(t, previous)
	t.Run("dials", func(t *testing.T) {
		dials := startDials(c.dial)
		defer dials.stop(t)
		c.testUpgrade(t)
	})
}

// helm runs as the administrator, beside the API server.
func (c *chartBed) helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.d.Node.Run(t.Context(), bed.Command{
		Argv: append([]string{c.program}, args...),
		Env:  []string{"KUBECONFIG=" + c.d.path("admin"), "HELM_CACHE_HOME=" + c.d.path("helm"), "HELM_CONFIG_HOME=" + c.d.path("helm"), "HELM_DATA_HOME=" + c.d.path("helm")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// testDryRun: the API server takes each part in its namespace, with all of its components,
// and knows every field.
func (c *chartBed) testDryRun(t *testing.T) {
	components := map[string]string{
		"tunnel-server": "cluster-agents,token-review,monitoring", "tunnel-agent": "monitoring", "kubeconfig-provider": "route-admission,monitoring",
		"proxy-propagator": "monitoring", "proxy-injector": "pod-secrets,monitoring",
	}
	for _, part := range bases {
		c.d.kubectl(t, "", "create", "namespace", part)
		args := []string{"template", part, c.current, "--namespace", part, "--set", "part=" + part, "--set", "image=causeway:dev", "--set", "components={" + components[part] + "}"}
		if part == "tunnel-agent" {
			args = append(args, "--set", "invitationSecret="+agentInvitation)
		}
		rendered := c.helm(t, args...)
		out := c.d.kubectl(t, rendered, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		if want := strings.Count(rendered, "\nkind: "); want < 4 || strings.Count(out, "(server dry run)") != want {
			t.Errorf("%s: got %s, want %d objects", part, out, want)
		}
	}
}

// previous returns the chart of the last release, or else this one with a lower version.
func (c *chartBed) previous(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	last, err := exec.CommandContext(t.Context(), "git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*").Output()
	source := c.current
	if tag := strings.TrimSpace(string(last)); err == nil {
		archive, err := exec.CommandContext(t.Context(), "git", "-C", c.current, "archive", tag, ".").Output()
		if err != nil {
			t.Fatal(err)
		}
		source = filepath.Join(dir, "chart")
		if err := os.Mkdir(source, 0o700); err != nil {
			t.Fatal(err)
		}
		untar := exec.CommandContext(t.Context(), "tar", "-x", "-C", source)
		untar.Stdin = bytes.NewReader(archive)
		if out, err := untar.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if _, err := os.Stat(filepath.Join(source, "Chart.yaml")); err != nil {
			source = c.current // a release before the chart
		}
	}
	c.helm(t, "package", source, "--version", "0.0.0-0.previous", "--app-version", "previous", "--destination", dir)
	return filepath.Join(dir, "causeway-0.0.0-0.previous.tgz")
}

const (
	previousImage = "previous.example.com/causeway"
	currentImage  = "current.example.com/causeway"
)

// installServer installs two replicas, which the Services then lead to.
func (c *chartBed) installServer(t *testing.T, chart string) {
	t.Helper()
	notes := c.helm(t, "install", serverBase, chart, "--namespace", serverBase, "--set", "part="+serverBase, "--set", "image="+previousImage+":1",
		"--set", "replicas=2", "--set", "service.type=ClusterIP", "--wait", "--timeout=2m")
	if !strings.Contains(notes, "kubectl -n tunnel-server exec deploy/tunnel-server -- /causeway enroll") {
		t.Errorf("got the notes %s", notes)
	}
}

// installAgent enrols by a pod of the server, as the notes say, and waits for the agent.
func (c *chartBed) installAgent(t *testing.T, chart string) {
	t.Helper()
	agents := c.d.service(t, serverBase, "tunnel-server", c.lead)
	c.gateway = c.d.service(t, serverBase, "tunnel-server-gateway", c.lead)
	server := c.w.ready(serverBase)[0]
	invitation := c.d.path("invitation.env")
	if err := os.WriteFile(invitation, []byte(server.exec(t, "", "enroll", "--server", agents, "--format", "env", workloadName)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.helm(t, "install", "tunnel-agent", chart, "--namespace", "tunnel-agent", "--set", "part=tunnel-agent", "--set", "image="+previousImage+"-agent:1",
		"--set-file", "invitation="+invitation, "--wait", "--timeout=2m")

	admin := string(c.d.kubeconfig(kubeconfig.Credentials{CAKey: c.d.Kube.CA.KeyPEM()}, "nowhere.example.com", 1))
	found := regexp.MustCompile(`proxy-url: (\S+)`).FindStringSubmatch(server.exec(t, admin, "kubeconfig", workloadName))
	if found == nil {
		t.Fatal("the kubeconfig has no proxy")
	}
	var err error
	if c.tickets, err = url.Parse(found[1]); err != nil {
		t.Fatal(err)
	}
	c.tickets.Host = c.gateway
	eventually(t, "a connection to the cluster", func(context.Context) error { return c.dial() })
}

// lead is a ready replica, as that of a Service.
func (c *chartBed) lead(port string) string {
	pods := c.w.ready(serverBase)
	if len(pods) == 0 {
		return ""
	}
	return pods[rand.IntN(len(pods))].address(port)
}

// dial reaches the API server as a client of the gateway does.
func (c *chartBed) dial() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	d, err := dialer.FromURL(c.tickets, &dialer.Options{Forward: c.d.Node})
	if err != nil {
		return err
	}
	conn, err := d.DialContext(ctx, "tcp", "kubernetes.default.svc:443")
	if err != nil {
		return err
	}
	return conn.Close()
}

// testUpgrade takes this version of the chart, with another image, and goes back.
func (c *chartBed) testUpgrade(t *testing.T) {
	saved, err := c.d.secret(t.Context(), "tunnel-agent", agentState)
	if err != nil || len(saved.Data) == 0 {
		t.Fatalf("the agent has saved %d keys, %v", len(saved.Data), err)
	}
	c.runs(t, previousImage)
	for part, image := range map[string]string{serverBase: currentImage + ":2", "tunnel-agent": currentImage + "-agent:2"} {
		c.helm(t, "upgrade", part, c.current, "--namespace", part, "--reset-then-reuse-values", "--set", "image="+image, "--wait", "--timeout=3m")
	}
	c.runs(t, currentImage)
	for _, part := range []string{"tunnel-agent", serverBase} {
		c.helm(t, "rollback", part, "1", "--namespace", part, "--wait", "--timeout=3m")
		if history := c.helm(t, "history", part, "--namespace", part); !strings.Contains(history, "Rollback to 1") {
			t.Errorf("got the history %s", history)
		}
	}
	c.runs(t, previousImage)
	if again, err := c.d.secret(t.Context(), "tunnel-agent", agentState); err != nil || !bytes.Equal(again.Data["credentials.pem"], saved.Data["credentials.pem"]) {
		t.Errorf("the agent's credentials are others, %v", err)
	}
}

// runs waits until two pods of each program are ready, and all have the image.
func (c *chartBed) runs(t *testing.T, image string) {
	t.Helper()
	for _, part := range []string{serverBase, "tunnel-agent"} {
		eventually(t, "pods of "+part+" with "+image, func(context.Context) error {
			pods := slices.DeleteFunc(c.w.all(), func(p *worked) bool { return p.object.Labels[programLabel] != part })
			for _, p := range pods {
				if got := p.object.Spec.Containers[0].Image; !strings.HasPrefix(got, image) {
					return fmt.Errorf("%s has %s", p.name, got)
				}
			}
			if ready := len(c.w.ready(part)); ready != 2 || len(pods) != 2 {
				return fmt.Errorf("%d of %d are ready", ready, len(pods))
			}
			return nil
		})
	}
}

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// kubectl returns the command in the cell's namespace of the API server.
func (c *cell) kubectl(stdin string, args ...string) bed.Command {
	cmd := c.bed.Kubectl(c.kubeconfig, append([]string{"--namespace=" + c.namespace}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}

// want runs a command and wants its output.
func (c *cell) want(ctx context.Context, cmd bed.Command, want string) error {
	out, err := c.hub.Run(ctx, cmd)
	if err == nil && out != want {
		err = fmt.Errorf("got %q, want %q", out, want)
	}
	return err
}

func kubectlGet(ctx context.Context, c *cell) error {
	return c.want(ctx, c.kubectl("", "get", "pods", "-o", "name"), "pod/pod\n")
}

func kubectlCreate(ctx context.Context, c *cell) error {
	return c.want(ctx, c.kubectl("", "create", "configmap", "before"), "configmap/before created\n")
}

// kubectlWatch sees what is made while it runs; it runs once it has printed
// what was there.
func kubectlWatch(ctx context.Context, c *cell) error {
	w, err := c.hub.Start(ctx, c.kubectl("", "get", "configmaps", "--watch", "-o", "name"))
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := w.WaitFor(ctx, "configmap/before\n"); err != nil {
		return err
	}
	if err := c.want(ctx, c.kubectl("", "create", "configmap", "during"), "configmap/during created\n"); err != nil {
		return err
	}
	return w.WaitFor(ctx, "configmap/during\n")
}

// kubectlLogs reads lines that are written while it runs.
func kubectlLogs(ctx context.Context, c *cell) error {
	r, err := c.hub.Start(ctx, c.kubectl("", "logs", "-f", "pod"))
	if err != nil {
		return err
	}
	defer r.Stop()
	return r.WaitFor(ctx, "line 3\nline 4\nline 5\nline 6\n")
}

// streaming is the rows whose protocol kubectl lets one choose.
type streaming struct{ spdy bool }

func (s streaming) env() []string {
	websockets := "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=%t KUBECTL_PORT_FORWARD_WEBSOCKETS=%[1]t"
	return strings.Fields(fmt.Sprintf(websockets, !s.spdy))
}

func (s streaming) kubectl(c *cell, stdin string, args ...string) bed.Command {
	cmd := c.kubectl(stdin, args...)
	cmd.Env = s.env()
	return cmd
}

func (s streaming) exec(ctx context.Context, c *cell) error {
	out, err := c.hub.Run(ctx, s.kubectl(c, "some input", "exec", "-i", "pod", "--", "sh", "-c", "cat; exit 7"))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 || out != "some input" {
		return errors.Join(fmt.Errorf("got %q, want the input and exit code 7", out), err)
	}
	return nil
}

func (s streaming) attach(ctx context.Context, c *cell) error {
	return c.want(ctx, s.kubectl(c, "some input", "attach", "-i", "-q", "pod"), "attached\nsome input")
}

// cp copies a file to the pod, whose files are the machine's, and back.
func (s streaming) cp(ctx context.Context, c *cell) error {
	dir := filepath.Join(c.dir, fmt.Sprintf("cp-%t", s.spdy))
	if err := os.MkdirAll(filepath.Join(dir, "pod"), 0o755); err != nil {
		return err
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := os.WriteFile(filepath.Join(dir, "file"), sent, 0o644); err != nil {
		return err
	}
	there, back := filepath.Join(dir, "pod", "file"), filepath.Join(dir, "back")
	for _, args := range [][]string{{filepath.Join(dir, "file"), "pod:" + there}, {"pod:" + there, back}} {
		if _, err := c.hub.Run(ctx, s.kubectl(c, "", append([]string{"cp"}, args...)...)); err != nil {
			return err
		}
	}
	for _, path := range []string{there, back} {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, sent) {
			return errors.Join(fmt.Errorf("%s has %d bytes, not the %d that were copied", path, len(got), len(sent)), err)
		}
	}
	return nil
}

func (s streaming) portForward(ctx context.Context, c *cell) error {
	r, err := c.hub.Start(ctx, s.kubectl(c, "", "port-forward", "pod", ":"+strconv.Itoa(bed.PodPort)))
	if err != nil {
		return err
	}
	defer r.Stop()
	if err := r.WaitFor(ctx, " -> "+strconv.Itoa(bed.PodPort)+"\n"); err != nil {
		return err
	}
	_, address, _ := strings.Cut(r.Stdout(), "Forwarding from ")
	address, _, _ = strings.Cut(address, " ")
	transport := &http.Transport{DialContext: c.hub.DialContext, DisableKeepAlives: true}
	for range 3 {
		if err := wantPage(ctx, transport, "http://"+address); err != nil {
			return err
		}
	}
	return nil
}

func wantPage(ctx context.Context, transport *http.Transport, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && string(got) != bed.PodPage {
		err = fmt.Errorf("got %q, want the pod's page", got)
	}
	return err
}

// Counters of the API server: requests to stream as WebSockets.
const (
	translatedStreams = "apiserver_stream_translator_requests_total"
	tunneledStreams   = "apiserver_stream_tunnel_requests_total"
)

// webSockets reads both counters.
func webSockets(t *testing.T, b *bed.Bed) map[string]int {
	t.Helper()
	clients, err := kubernetes.NewForConfig(b.Kube.Config())
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(metrics)) {
		name, _, _ := strings.Cut(line, "{")
		if fields := strings.Fields(line); (name == translatedStreams || name == tunneledStreams) && len(fields) == 2 {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			counts[name] += n
		}
	}
	return counts
}

// wantWebSockets wants the API server to have seen one half of the streaming
// rows as WebSockets: kubectl goes over to SPDY by itself where they fail.
func wantWebSockets(t *testing.T, before, after map[string]int, doors []*door) {
	t.Helper()
	kubectls := 0
	for _, d := range doors {
		if _, cannot := d.cannot["kubectl"]; !cannot {
			kubectls++
		}
	}
	for name, want := range map[string]int{
		translatedStreams: 5 * kubectls, // exec, attach, cp to the pod (two) and back
		tunneledStreams:   kubectls,     // port-forward
	} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
}

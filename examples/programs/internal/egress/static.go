package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/tunnel/egress"
)

// A place is where a kube-apiserver is defined.
type place struct {
	read func(ctx context.Context) (manifest []byte, err error)
	// write replaces the manifest by next, if it is still the one that was read.
	write func(ctx context.Context, before, next []byte, phase egress.Phase) error
	// ready returns nil when the kube-apiserver of the manifest serves, and not the one
	// before it.
	ready func(ctx context.Context) error
	// compare connects to targets by both ways, from where the sidecar is.
	compare func(ctx context.Context, targets []string) ([]comparison, error)
	former  string // says where the manifest of the phase before is
}

// A staticPod is a manifest that a kubelet runs.
type staticPod struct {
	path, state string
	cluster     *cluster
	started     string // when the process that served last has started
}

func newStaticPlace(ctx context.Context, f *placeFlags, c *cluster) (*place, error) {
	p := &staticPod{path: f.manifest, state: f.state, cluster: c}
	var err error
	if p.started, err = p.startTime(ctx); err != nil && !f.force { // with it, whatever serves later has been restarted
		return nil, fmt.Errorf("--kubeconfig: the API server's /metrics: %w; if kube-apiserver is down, --force goes back to the phase before", err)
	}
	return &place{
		read:  func(context.Context) ([]byte, error) { return os.ReadFile(f.manifest) },
		write: p.write,
		ready: p.ready,
		compare: func(ctx context.Context, targets []string) ([]comparison, error) {
			if err := checkListens(ctx, f.sidecar.SocketDir()); err != nil {
				return nil, fmt.Errorf("the sidecar does not listen: %w", err)
			}
			return compareWays(ctx, f.sidecar.SocketDir(), targets), nil
		},
		former: "the manifest of the phase before is in " + f.state,
	}, nil
}

// write keeps the manifest in the state directory, and replaces it at once: the kubelet
// reads every file in the directory of manifests, complete or not.
func (p *staticPod) write(_ context.Context, before, next []byte, phase egress.Phase) error {
	now, err := os.ReadFile(p.path)
	if err != nil {
		return fmt.Errorf("--manifest: %w", err)
	}
	if !bytes.Equal(now, before) {
		return errors.New("--manifest: somebody has changed it meanwhile: run the command again")
	}
	info, err := os.Lstat(p.path)
	switch {
	case err != nil:
		return fmt.Errorf("--manifest: %w", err)
	case info.Mode().Type() != 0:
		return errors.New("--manifest: it is not a file but a link, or something else: name the file itself")
	}
	if err := os.MkdirAll(p.state, 0o700); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	name := filepath.Base(p.path)
	if err := writeWhole(filepath.Join(p.state, name+"."+string(phase)), before, info); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	fresh := filepath.Join(p.state, name+".new")
	if err := writeWhole(fresh, next, info); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	switch err := os.Rename(fresh, p.path); {
	case errors.Is(err, syscall.EXDEV):
		return fmt.Errorf("--state: %s is on another file system than --manifest, so that the kubelet could read half a manifest: name another directory", p.state)
	case err != nil:
		return fmt.Errorf("--manifest: %w", err)
	}
	return nil
}

// writeWhole writes a file with the mode and the owner of another one.
func writeWhole(path string, data []byte, like os.FileInfo) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, cli.KeepOwner(f, like), f.Chmod(like.Mode().Perm()), f.Sync(), f.Close())
}

// ready returns nil if another process serves than before.
func (p *staticPod) ready(ctx context.Context) error {
	started, err := p.startTime(ctx)
	switch {
	case err != nil:
		return err
	case started == p.started:
		return errors.New("the kubelet has not restarted kube-apiserver yet")
	}
	if _, err := p.cluster.CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return err
	}
	p.started = started
	return nil
}

var startMetric = regexp.MustCompile(`(?m)^process_start_time_seconds (.+)$`)

// startTime returns when the process of the API server started.
func (p *staticPod) startTime(ctx context.Context) (string, error) {
	metrics, err := p.cluster.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	m := startMetric.FindSubmatch(metrics)
	if m == nil {
		return "", errors.New("there is no process_start_time_seconds")
	}
	return string(m[1]), nil
}

var addressFlag, portFlag = regexp.MustCompile(`--advertise-address=([^\s"',\]]+)`), regexp.MustCompile(`--secure-port=(\d+)`)

// localServer returns the URL of the kube-apiserver of a manifest; "" if the manifest does
// not say its address. A kubeconfig may lead to a load balancer, and so to another one.
func localServer(manifest []byte) string {
	host, port := addressFlag.FindSubmatch(manifest), portFlag.FindSubmatch(manifest)
	switch {
	case host == nil:
		return ""
	case port == nil:
		port = [][]byte{nil, []byte("6443")}
	}
	return "https://" + net.JoinHostPort(string(host[1]), string(port[1]))
}

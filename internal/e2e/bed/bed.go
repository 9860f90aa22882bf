package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// BinEnv names the environment variable with the folder of kube-apiserver, etcd,
// kubeadm and the others, as kube/build.sh prints it.
const BinEnv = "CAUSEWAY_E2E_BIN"

// KubeVersion is the version of Kubernetes in BinEnv's folder, v1.37.2: its name begins with it.
func KubeVersion() string {
	version, _, _ := strings.Cut(filepath.Base(os.Getenv(BinEnv)), "-")
	return version
}

// maxDir leaves room for a socket's name: the kernel takes 107 bytes in all.
const maxDir = 90

// A Bed is a running test bed. Its methods are safe for concurrent use.
type Bed struct {
	Network *Network
	Kube    *Kube
	Kubelet *Kubelet

	Squid, HAProxy, Tinyproxy, Dante, Microsocks, Office *Proxy

	SSH *SSH

	// Dir is a folder that lives as long as the bed, and the HOME of the
	// commands that run in it.
	Dir string

	bin string
	run *runner
}

// Start starts the bed and waits until all of it is ready. The caller closes
// it; on an error nothing is left behind.
func Start(ctx context.Context) (*Bed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the bed was not ready in time"))
	defer cancel()
	if err := errors.Join(removeNamespaces(ctx, isStale), removeStaleFolders()); err != nil {
		return nil, err
	}
	b, name, err := prepareBed()
	if err != nil {
		return nil, err
	}
	if b.Network, err = newNetwork(ctx, name, b.run); err == nil {
		err = b.startServers(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// prepareBed makes the bed's folder and starts what outlives the servers.
func prepareBed() (*Bed, string, error) {
	name := runName()
	b := &Bed{Dir: filepath.Join(os.TempDir(), name), bin: os.Getenv(BinEnv)}
	if len(b.Dir) > maxDir {
		return nil, "", fmt.Errorf("bed: %s is too long for the sockets in it: set TMPDIR to a shorter path", b.Dir)
	}
	if err := os.Mkdir(b.Dir, 0o755); err != nil {
		return nil, "", fmt.Errorf("bed: make folder: %w", err)
	}
	// squid, no longer root, has to get through, whatever the umask.
	if err := os.Chmod(b.Dir, 0o755); err != nil {
		return nil, "", errors.Join(fmt.Errorf("bed: make folder: %w", err), os.RemoveAll(b.Dir))
	}
	b.run = newRunner(b.Dir)
	return b, name, nil
}

func (b *Bed) startServers(ctx context.Context) error {
	ca := pki.NewCA("kubernetes")
	folder := func(name string) string { return filepath.Join(b.Dir, name) }
	proxies := proxyHost{ns: b.Network.Proxy, dir: b.Dir, inside: ProxyIP, outside: ProxyAPIIP, api: APIIP}
	return startAll(
		func() (err error) {
			b.Kube = &Kube{CA: ca, ns: b.Network.API, host: APIIP, bin: b.bin, dir: folder("kube")}
			if err = b.Kube.start(ctx); err != nil {
				return err
			}
			if b.Kubelet, err = startKubelet(b.Network.API, b.Kube); err != nil {
				return err
			}
			return b.Kube.addNode(ctx)
		},
		func() (err error) { b.Squid, err = startSquid(ctx, proxies, ca); return err },
		func() (err error) { b.HAProxy, err = startHAProxy(ctx, proxies, ca); return err },
		func() (err error) { b.Tinyproxy, err = startTinyproxy(ctx, proxies); return err },
		func() (err error) { b.Dante, err = startDante(ctx, proxies); return err },
		func() (err error) { b.Microsocks, err = startMicrosocks(ctx, proxies); return err },
		func() (err error) { b.Office, err = startOffice(ctx, proxies); return err },
		func() (err error) { b.SSH, err = startSSH(ctx, b.Network, folder("ssh")); return err },
	)
}

// startAll runs functions side by side.
func startAll(starts ...func() error) error {
	errs := make([]error, len(starts))
	var wg sync.WaitGroup
	for i, start := range starts {
		wg.Go(func() { errs[i] = start() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close stops all that runs in the bed, waits for its end, and removes the
// namespaces and the folder, and what runs that crashed have left.
func (b *Bed) Close() error {
	if b.Kubelet != nil {
		b.Kubelet.close()
	}
	b.run.close()
	own := filepath.Base(b.Dir) + "-"
	return Poll(context.Background(), "namespaces and folder to go", func(ctx context.Context) error {
		return errors.Join(removeNamespaces(ctx, func(name string) bool { return strings.HasPrefix(name, own) || isStale(name) }), os.RemoveAll(b.Dir), removeStaleFolders())
	})
}

// Kubectl returns the command that runs kubectl with a kubeconfig file.
func (b *Bed) Kubectl(kubeconfig string, args ...string) Command {
	return Command{Argv: append([]string{filepath.Join(b.bin, "kubectl"), "--kubeconfig=" + kubeconfig}, args...)}
}

// Logs returns the last lines of each of the bed's logs, for a test that failed.
func (b *Bed) Logs() string {
	var text string
	for _, pattern := range []string{"*.log", "*/*.log"} {
		paths, _ := filepath.Glob(filepath.Join(b.Dir, pattern))
		for _, path := range paths {
			text += fmt.Sprintf("--- %s\n%s\n", path, tail(path))
		}
	}
	return text
}

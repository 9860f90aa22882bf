package bed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Missing returns what the bed needs and this machine lacks, each with what to
// do about it.
func Missing(ctx context.Context) []string {
	var missing []string
	unshare := func() error { return unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS) }
	if err := onOwnThread(unshare); err != nil {
		missing = append(missing, fmt.Sprintf("the right to make network namespaces (%v): run as root", err))
	}
	for _, name := range []string{
		"ip", "nft", "mount", "unshare", "nsenter", "/lib/systemd/systemd", "cloud-init", "containerd", "docker",
		"squid", squidAuth, "haproxy", "tinyproxy", "danted", "microsocks", "sshd", "ssh", "ssh-keygen",
		"curl", "ncat", "wget", "chromium", "git", "java", "python3", "perl", "bash", "dash", "prometheus", "promtool",
	} {
		if _, err := exec.LookPath(programPath(name)); err != nil {
			missing = append(missing, name+": run .ci/install, or install its Debian package")
		}
	}
	if version, err := runOutput(ctx, "", "squid", "-v"); err == nil && !strings.Contains(version, "--with-openssl") {
		missing = append(missing, "a squid with TLS: install the Debian package squid-openssl in place of squid")
	}
	return append(missing, missingBinaries()...)
}

func missingBinaries() []string {
	bin := os.Getenv(BinEnv)
	if bin == "" {
		return []string{BinEnv + " in the environment, the folder that internal/e2e/kube/build.sh prints: run .ci/e2e"}
	}
	var missing []string
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "etcd", "kubeadm", "kubectl"} {
		if _, err := exec.LookPath(filepath.Join(bin, name)); err != nil {
			missing = append(missing, fmt.Sprintf("%s in %s (%s): run .ci/e2e", name, bin, BinEnv))
		}
	}
	return missing
}
